package generate

import "time"

// Token is one that was generated.
type Token struct {
	Prompt int   // the index of its prompt
	ID     int64 //
	// what it adds to the text, with Options.NewStream: nothing for a part of a character, or where a stop text may
	// begin
	Text   string
	Margin float32
	Stop   Reason // why it is the last of its sequence, else ""
}

// Sequence is what was generated for one prompt.
type Sequence struct {
	Prompt  []int64
	IDs     []int64   // a stop token among them
	Text    string    // without the stop token and stop text
	Margins []float32 // with Options.Margins: how far the chosen step's greatest logit was above the next one
	Stop    Reason
}

// Times say where the time of a run went.
type Times struct {
	PromptTokens    int           // of all prompts, without padding
	GeneratedTokens int           // of all sequences
	Prefill         time.Duration // until the logits behind the prompts were there
	Decode          time.Duration // from there to the end
	DecodedTokens   int           // those that took a run of their own: all but the first of each sequence
}

// TextStream turns ids into text as they come: tokenizer.Stream is one.
type TextStream interface {
	Add(id int64) string // the text that is certain now
	Flush() string       // what is left, at the end
}

// sequence is a Sequence that grows.
type sequence struct {
	Sequence
	sampler *Sampler
	stream  TextStream
	cut     cutter
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
