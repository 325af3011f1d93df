package tokenizer

import (
	"fmt"
	"time"
	"unicode/utf8"

	"github.com/dlclark/regexp2"
)

// MatchTimeout is how long a pattern may look for one match: nested repetitions can take a time that doubles with every character. What
// was not searched by then stays one piece. Oniguruma, which tokenizers uses, gives up after ten million steps.
const MatchTimeout = 10 * time.Second

// pattern is a regular expression of a tokenizer.json.
type pattern struct{ re *regexp2.Regexp }

func newPattern(source string) (*pattern, error) {
	re, err := regexp2.Compile(source, regexp2.None)
	if err != nil {
		return nil, fmt.Errorf("pattern %q: %w", source, err)
	}
	re.MatchTimeout = MatchTimeout
	return &pattern{re}, nil
}

// spans gives the matches in text and what is between them. An empty match right behind another match does not count.
func (p *pattern) spans(text string) []span {
	runes := []rune(text)
	var out []span
	done, last := 0, -1 // in bytes: end of the last span; in runes: end of the last match
	at, offset := 0, 0  // the same place in runes and in bytes
	advance := func(to int) int {
		for ; at < to; at++ {
			offset += utf8.RuneLen(runes[at])
		}
		return offset
	}
	for start := 0; start <= len(runes); {
		m, err := p.re.FindRunesMatchStartingAt(runes, start)
		if err != nil || m == nil {
			break
		}
		if m.Length == 0 && m.Index == last {
			start++
			continue
		}
		from := advance(m.Index)
		to := advance(m.Index + m.Length)
		if done < from {
			out = append(out, span{done, from, false})
		}
		out = append(out, span{from, to, true})
		done, start, last = to, m.Index+m.Length, m.Index+m.Length
	}
	if done < len(text) {
		out = append(out, span{done, len(text), false})
	}
	return out
}
