package tokenizer

import "strings"

// preTokenizer splits pieces of text into smaller ones. No piece is empty.
type preTokenizer interface {
	split(pieces []string) []string
}

// sequence applies pre-tokenizers one after the other.
type sequence []preTokenizer

func (s sequence) split(pieces []string) []string {
	for _, p := range s {
		pieces = p.split(pieces)
	}
	return pieces
}

// byteLevel writes bytes as characters, after an optional split by GPT-2's pattern.
type byteLevel struct {
	prefixSpace bool
	pattern     *pattern // nil: use_regex is false
}

// gpt2 is the pattern of GPT-2, which ByteLevel splits by.
const gpt2 = `'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+`

func (b byteLevel) split(pieces []string) []string {
	var out []string
	for _, p := range pieces {
		if b.prefixSpace && !strings.HasPrefix(p, " ") {
			p = " " + p
		}
		if b.pattern == nil {
			out = append(out, toByteChars(p))
			continue
		}
		for _, s := range b.pattern.spans(p) {
			if s.start < s.end {
				out = append(out, toByteChars(p[s.start:s.end]))
			}
		}
	}
	return out
}

// splitter splits pieces at the spans that it finds.
type splitter struct {
	find     interface{ spans(text string) []span }
	behavior behavior
	invert   bool
}

func (s splitter) split(pieces []string) []string {
	var out []string
	for _, p := range pieces {
		spans := s.find.spans(p)
		if s.invert {
			for i := range spans {
				spans[i].match = !spans[i].match
			}
		}
		for _, c := range s.behavior(spans) {
			if c.start < c.end {
				out = append(out, p[c.start:c.end])
			}
		}
	}
	return out
}

// span is a part of a text, in bytes, and whether it was a match. The spans of a text cover it.
type span struct {
	start, end int
	match      bool
}

// behavior treats matches and the spans between them (SplitDelimiterBehavior of tokenizers).
type behavior func([]span) []span

var behaviors = map[string]behavior{
	"Removed":            removed,
	"Isolated":           func(s []span) []span { return s },
	"MergedWithPrevious": mergedWithPrevious,
	"MergedWithNext":     mergedWithNext,
	"Contiguous":         contiguous,
}

func removed(spans []span) []span {
	out := spans[:0]
	for _, s := range spans {
		if !s.match {
			out = append(out, s)
		}
	}
	return out
}

func mergedWithPrevious(spans []span) []span {
	var out []span
	previous := false
	for _, s := range spans {
		if s.match && !previous && len(out) > 0 {
			out[len(out)-1].end = s.end
		} else {
			out = append(out, s)
		}
		previous = s.match
	}
	return out
}

func mergedWithNext(spans []span) []span {
	out := make([]span, len(spans))
	first := len(out) // out[first:] is filled, from the end
	previous := false
	for i := len(spans) - 1; i >= 0; i-- {
		s := spans[i]
		if s.match && !previous && first < len(out) {
			out[first].start = s.start
		} else {
			first--
			out[first] = s
		}
		previous = s.match
	}
	return out[first:]
}

func contiguous(spans []span) []span {
	var out []span
	previous := false
	for _, s := range spans {
		if s.match == previous && len(out) > 0 {
			out[len(out)-1].end = s.end
		} else {
			out = append(out, s)
		}
		previous = s.match
	}
	return out
}

// digits finds numeric characters (Rust's char::is_numeric: Nd, Nl, No) individually.
type digits struct{}

func (digits) spans(text string) []span {
	var out []span
	done := 0
	for i, r := range text {
		if !isNumeric(r) {
			continue
		}
		if done < i {
			out = append(out, span{done, i, false})
		}
		done = i + len(string(r))
		out = append(out, span{i, done, true})
	}
	if done < len(text) {
		out = append(out, span{done, len(text), false})
	}
	return out
}
