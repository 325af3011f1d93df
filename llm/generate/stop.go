package generate

import "strings"

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
