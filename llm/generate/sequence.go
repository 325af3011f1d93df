package generate

import (
	"strings"
	"time"
)

// Token is a generated token.
type Token struct {
	Prompt int   // the index of its prompt
	ID     int64 //
	// the text that it adds, with Options.NewStream: empty inside a character, or while a stop text may begin
	Text   string
	Margin float32
	Stop   Reason // why it is the last of its sequence, else ""
}

// Sequence is the result for one prompt.
type Sequence struct {
	Prompt  []int64
	IDs     []int64   // including a stop token
	Text    string    // without the stop token and stop text
	Margins []float32 // with Options.Margins: each step's distance of the greatest logit from the next one
	Stop    Reason
}

// Times reports how long each part of a run took.
type Times struct {
	PromptTokens    int           // of all prompts, without padding
	GeneratedTokens int           // of all sequences
	Prefill         time.Duration // until the logits after the prompts are ready
	Decode          time.Duration // from then to the end
	DecodedTokens   int           // tokens that took their own run: all except the first of each sequence
}

// TextStream turns ids into text as they arrive; tokenizer.Stream implements it.
type TextStream interface {
	Add(id int64) string // returns the text that is certain now
	Flush() string       // returns the remaining text at the end
}

// sequence is a Sequence that grows.
type sequence struct {
	Sequence
	sampler *Sampler
	// accepted is the number of accepted tokens of the last step that tried any in advance.
	accepted int
	stream   TextStream
	cut      cutter
}

// text sets the text of the token, and ends the sequence at a stop text.
func (s *sequence) text(t *Token) {
	if s.stream == nil {
		return
	}
	var added string
	if t.Stop != StopToken {
		added = s.stream.Add(t.ID)
	}
	if t.Stop != "" {
		added += s.stream.Flush()
	}
	var cut bool
	if t.Text, cut = s.cut.add(added); cut {
		t.Stop = StopText
	} else if t.Stop != "" {
		t.Text += s.cut.flush()
	}
	s.Text += t.Text
}

// Reason is the reason why a sequence ended.
type Reason string

// The reasons. A sequence without one did not end: the run was canceled, or its reader stopped.
const (
	StopToken   Reason = "stop token"   // the last id is one of Options.StopTokens
	StopText    Reason = "stop text"    // the text reached one of Options.StopTexts
	StopLength  Reason = "max tokens"   // the sequence has Options.MaxTokens
	StopContext Reason = "context full" // the model has no position for another token
)

// cutter returns text up to the first of several stop texts. It holds back a possible start of a stop text until the
// text is certain.
type cutter struct {
	stops []string
	held  string
}

// add returns the text that is certain, and whether a stop text was found.
func (c *cutter) add(text string) (string, bool) {
	c.held += text
	first := -1
	for _, s := range c.stops {
		if i := strings.Index(c.held, s); i >= 0 && (first < 0 || i < first) {
			first = i
		}
	}
	if first >= 0 {
		out := c.held[:first]
		c.held = ""
		return out, true
	}
	keep := 0
	for _, s := range c.stops {
		for n := min(len(s)-1, len(c.held)); n > keep; n-- {
			if strings.HasSuffix(c.held, s[:n]) {
				keep = n
			}
		}
	}
	out := c.held[:len(c.held)-keep]
	c.held = c.held[len(c.held)-keep:]
	return out, false
}

// flush returns the text that was held back.
func (c *cutter) flush() string {
	out := c.held
	c.held = ""
	return out
}
