package onig

import (
	"fmt"
	"time"
	"unicode/utf8"

	"github.com/dlclark/regexp2"
)

// Regexp is a compiled pattern. It is safe for concurrent use.
type Regexp struct {
	re      *regexp2.Regexp
	classes *classes
}

// Compile compiles a pattern. A search for one match ends after timeout. The error names the invalid or unsupported
// syntax.
func Compile(source string, timeout time.Duration) (*Regexp, error) {
	tree, err := parse(source)
	if err != nil {
		return nil, fmt.Errorf("pattern %q: %w", source, err)
	}
	var sets []set
	tree.sets(func(s set) { sets = append(sets, s) })
	w := &writer{classes: newClasses(sets)}
	tree.write(w)
	re, err := regexp2.Compile(w.String(), regexp2.None)
	if err != nil {
		return nil, fmt.Errorf("pattern %q: %w", source, err)
	}
	re.MatchTimeout = timeout
	return &Regexp{re, w.classes}, nil
}

// Each calls match with the byte offsets of each match in text, from left to right. An empty match directly after
// another match does not count. Each stops if a search exceeds the timeout.
func (p *Regexp) Each(text string, match func(start, end int)) {
	letters := make([]rune, 0, len(text))
	for _, r := range text {
		letters = append(letters, p.classes.letter(r))
	}
	at, offset := 0, 0 // the same position in letters and in bytes
	advance := func(to int) int {
		for ; at < to; at++ {
			_, n := utf8.DecodeRuneInString(text[offset:])
			offset += n
		}
		return offset
	}
	last := -1
	for start := 0; start <= len(letters); {
		m, err := p.re.FindRunesMatchStartingAt(letters, start)
		if err != nil || m == nil {
			return
		}
		if m.Length == 0 && m.Index == last {
			start++
			continue
		}
		from := advance(m.Index)
		match(from, advance(m.Index+m.Length))
		start = m.Index + m.Length
		last = start
	}
}
