package tokenizer

import (
	"strconv"
	"strings"
	"unicode/utf8"
)

// byteFallbackStep decodes consecutive tokens <0xNN>: to their text if the bytes together are UTF-8, else to one U+FFFD
// each.
type byteFallbackStep struct{ held []byte }

func (s *byteFallbackStep) add(token string, next func(string)) {
	if len(token) == 6 && strings.HasPrefix(token, "<0x") && token[5] == '>' {
		if b, err := strconv.ParseUint(strings.TrimPrefix(token[3:5], "+"), 16, 8); err == nil {
			s.held = append(s.held, byte(b))
			return
		}
	}
	s.flush(next)
	next(token)
}

func (s *byteFallbackStep) flush(next func(string)) {
	switch {
	case len(s.held) == 0:
	case utf8.Valid(s.held):
		next(string(s.held))
	default:
		for range s.held {
			next("\uFFFD")
		}
	}
	s.held = nil
}

// replaceStep replaces text in each token.
type replaceStep normalizer

func (s replaceStep) add(token string, next func(string)) { next(s(token)) }
func (replaceStep) flush(func(string))                    {}

// stripStep removes a character up to count times from the start of each token, or of the whole text.
type stripStep struct {
	char        rune
	count, left int
	all         bool
}

func (s *stripStep) add(token string, next func(string)) {
	if !s.all {
		s.left = s.count
	}
	for s.left > 0 && token != "" {
		r, n := utf8.DecodeRuneInString(token)
		if r != s.char {
			s.left = 0
			break
		}
		token = token[n:]
		s.left--
	}
	next(token)
}

func (*stripStep) flush(func(string)) {}
