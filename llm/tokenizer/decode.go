package tokenizer

import "strings"

// step is one decoder of a chain. add takes a token and passes on the text that is certain; flush passes on the rest.
type step interface {
	add(token string, next func(string))
	flush(next func(string))
}

// byteLevelStep converts characters of the byte-level alphabet to bytes, and passes on whole characters.
type byteLevelStep struct{ held []byte }

func (s *byteLevelStep) add(token string, next func(string)) {
	s.held = append(s.held, fromByteChars(token)...)
	text, rest := lossy(s.held)
	s.held = append(s.held[:0], s.held[len(s.held)-rest:]...)
	if text != "" {
		next(text)
	}
}

func (s *byteLevelStep) flush(next func(string)) {
	if len(s.held) > 0 {
		next("\uFFFD")
		s.held = nil
	}
}

// spaceStep puts a space between tokens, which is the decoding without a decoder in the file.
type spaceStep struct{ begun bool }

func (s *spaceStep) add(token string, next func(string)) {
	if s.begun {
		token = " " + token
	}
	s.begun = true
	next(token)
}

func (*spaceStep) flush(func(string)) {}

// Stream decodes ids that arrive one by one. It must be used by one goroutine only.
type Stream struct {
	t           *Tokenizer
	skipSpecial bool
	steps       []step
}

// Stream starts decoding. The results of Add and Flush together are the result of [Tokenizer.Decode] for the same ids.
func (t *Tokenizer) Stream(skipSpecial bool) *Stream {
	s := &Stream{t: t, skipSpecial: skipSpecial}
	for _, make := range t.decoder {
		s.steps = append(s.steps, make())
	}
	return s
}

// Add returns the text that id completes. It holds back the bytes of a character until the character is complete or
// invalid.
func (s *Stream) Add(id int64) string {
	token, ok := s.t.added.decoded[id]
	if !ok {
		token, ok = s.t.Token(id)
	}
	if !ok || s.skipSpecial && s.t.added.special[token] {
		return ""
	}
	return s.collect(0, token)
}

// Flush returns the held-back text, with U+FFFD for an incomplete character, and resets the stream.
func (s *Stream) Flush() string {
	var out strings.Builder
	for i, step := range s.steps {
		step.flush(func(text string) { out.WriteString(s.collect(i+1, text)) })
	}
	*s = *s.t.Stream(s.skipSpecial)
	return out.String()
}

// collect passes text through the steps from the i-th on.
func (s *Stream) collect(i int, text string) string {
	if i == len(s.steps) {
		return text
	}
	var out strings.Builder
	s.steps[i].add(text, func(text string) { out.WriteString(s.collect(i+1, text)) })
	return out.String()
}
