package tokenizer

import (
	"time"

	"github.com/mojo-patch/mojo-patch/llm/tokenizer/internal/onig"
)

// MatchTimeout is the time limit for one match of a pattern: nested repetitions may double the time with every
// character. The unsearched rest stays one piece. Oniguruma, which tokenizers uses, gives up after ten million steps.
const MatchTimeout = 10 * time.Second

// pattern is a regular expression of a tokenizer.json.
type pattern struct{ re *onig.Regexp }

func newPattern(source string) (*pattern, error) {
	re, err := onig.Compile(source, MatchTimeout)
	if err != nil {
		return nil, err
	}
	return &pattern{re}, nil
}

// spans returns the matches in text and the spans between them.
func (p *pattern) spans(text string) []span {
	var out []span
	done := 0
	p.re.Each(text, func(start, end int) {
		if done < start {
			out = append(out, span{done, start, false})
		}
		out = append(out, span{start, end, true})
		done = end
	})
	if done < len(text) {
		out = append(out, span{done, len(text), false})
	}
	return out
}
