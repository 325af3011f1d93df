package tokenizer

import "strings"

// step is one decoder of a chain: it takes the tokens one by one and passes on what they certainly become; flush passes
// on the rest.
type step interface {
	add(token string, next func(string))
	flush(next func(string))
}

// byteLevelStep turns characters of the byte-level alphabet into bytes, and passes on whole characters.
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

// spaceStep puts a space between tokens: what decoding does where the file has no decoder.
type spaceStep struct{ begun bool }

func (s *spaceStep) add(token string, next func(string)) {
	if s.begun {
		token = " " + token
	}
	s.begun = true
	next(token)
}

func (*spaceStep) flush(func(string)) {}

// Stream decodes ids that come one by one. It is for one goroutine.
type Stream struct {
	t           *Tokenizer
	skipSpecial bool
	steps       []step
}

// Stream starts decoding. What Add and Flush return is together what [Tokenizer.Decode] returns for the same ids.
func (t *Tokenizer) Stream(skipSpecial bool) *Stream {
	s := &Stream{t: t, skipSpecial: skipSpecial}
	for _, make := range t.decoder {
		s.steps = append(s.steps, make())
	}
	return s
}

// Add returns the text that id makes complete: bytes of a character are held back until it is whole, or cannot become a
// character any more.
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

// Flush returns what is held back, with U+FFFD for a character that did not become whole. The stream then starts anew.
func (s *Stream) Flush() string {
	var out strings.Builder
	for i, step := range s.steps {
		step.flush(func(text string) { out.WriteString(s.collect(i+1, text)) })
	}
	*s = *s.t.Stream(s.skipSpecial)
	return out.String()
}

// collect returns what the steps from the i-th on make of text.
func (s *Stream) collect(i int, text string) string {
	if i == len(s.steps) {
		return text
	}
	var out strings.Builder
	s.steps[i].add(text, func(text string) { out.WriteString(s.collect(i+1, text)) })
	return out.String()
}
