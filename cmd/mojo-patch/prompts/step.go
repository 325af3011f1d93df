package prompts

import (
	"fmt"
	"strconv"

	"github.com/mojo-patch/mojo-patch/llm/generate"
)

// Step describes a step in one line.
func (t *Texts) Step(s *generate.Step, limit float64) string {
	line := fmt.Sprintf("token %d is %s", s.Position, t.name(s.Want))
	if s.WantMargin != nil {
		line += fmt.Sprintf(" (margin %.3g)", *s.WantMargin)
	}
	if s.Differs() {
		line += fmt.Sprintf(", here %s", t.name(s.Got))
	} else {
		line += " here too"
	}
	line += fmt.Sprintf(" (margin %.3g)", s.GotMargin)
	if s.KL != nil {
		line += fmt.Sprintf(", KL %.3g, max abs %.3g", *s.KL, *s.MaxAbs)
	}
	if s.NearTie {
		line += fmt.Sprintf(": a near tie (rounding may decide margins up to %g)", limit)
	}
	return line
}

func (t *Texts) name(id int64) string {
	if t.Tokenizer == nil {
		return strconv.FormatInt(id, 10)
	}
	return fmt.Sprintf("%d %q", id, t.Tokenizer.Decode([]int64{id}, false))
}
