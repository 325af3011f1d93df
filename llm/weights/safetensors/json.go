package safetensors

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"unicode/utf8"
)

// maxNesting bounds skipped values, as serde_json does, the reader of the reference implementation.
const maxNesting = 128

// Limits for the kept parts of a header, which may have 100 MB: its keys and numbers take many times their bytes in
// memory. Real models have names of up to 200 bytes, and one checkpoint has 150,000 tensors.
const (
	maxName    = 4 << 10 // bytes of a name or a type
	maxNumbers = 1 << 8  // of a shape
)

// maxKeys is the limit for the keys of an object; tests lower it.
var maxKeys = 1 << 19

// reader reads JSON token by token. Unlike json.Unmarshal it rejects duplicate keys and distinguishes case.
type reader struct{ *json.Decoder }

// readObject reads a text that is one JSON object; see reader.object.
func readObject(text []byte, entry func(r reader, key string) error) error {
	if !utf8.Valid(text) {
		return errors.New("it is not UTF-8")
	}
	r := reader{json.NewDecoder(bytes.NewReader(text))}
	r.UseNumber()
	if err := r.object(func(key string) error { return entry(r, key) }); err != nil {
		return err
	}
	if _, err := r.Token(); err != io.EOF {
		return fmt.Errorf("unexpected data after its end, at byte %d", r.InputOffset())
	}
	return nil
}

// object reads a JSON object and calls entry for each key, which must read the value.
func (r reader) object(entry func(key string) error) error {
	if err := r.delim('{'); err != nil {
		return err
	}
	seen := map[string]bool{}
	for r.More() {
		key, err := r.name()
		if err != nil {
			return err
		}
		if seen[key] {
			return fmt.Errorf("the key %q occurs twice", key)
		}
		if seen[key] = true; len(seen) > maxKeys {
			return fmt.Errorf("it has more than the limit of %d keys", maxKeys)
		}
		if err := entry(key); err != nil {
			return err
		}
	}
	return r.delim('}')
}

// numbers reads an array of nonnegative integers.
func (r reader) numbers() ([]int64, error) {
	if err := r.delim('['); err != nil {
		return nil, err
	}
	numbers := []int64{}
	for r.More() {
		token, err := r.next()
		if err != nil {
			return nil, err
		}
		n, ok := token.(json.Number)
		if !ok {
			return nil, fmt.Errorf("found %s, expected a number", shown(token))
		}
		v, err := strconv.ParseUint(n.String(), 10, 63)
		if err != nil {
			return nil, fmt.Errorf("%s is not a whole number from 0 to 2^63-1", shown(n))
		}
		if numbers = append(numbers, int64(v)); len(numbers) > maxNumbers {
			return nil, fmt.Errorf("it has more than the limit of %d numbers", maxNumbers)
		}
	}
	return numbers, r.delim(']')
}

func (r reader) string() (string, error) {
	token, err := r.next()
	if err != nil {
		return "", err
	}
	s, ok := token.(string)
	if !ok {
		return "", fmt.Errorf("found %s, expected a string", shown(token))
	}
	return s, nil
}

// name reads a string short enough for messages to quote.
func (r reader) name() (string, error) {
	s, err := r.string()
	if len(s) > maxName {
		err = fmt.Errorf("a name that begins with %q has %d bytes, more than the limit of %d", s[:40], len(s), maxName)
	}
	return s, err
}

// shown formats a token for a message.
func shown(token json.Token) string {
	s := fmt.Sprint(token)
	if len(s) > 40 {
		s = s[:40] + "..."
	}
	return s
}

func (r reader) delim(want json.Delim) error {
	token, err := r.next()
	if err == nil && token != want {
		err = fmt.Errorf("found %s, expected %q", shown(token), want.String())
	}
	return err
}

// skip skips a value.
func (r reader) skip() error {
	for depth := 0; ; {
		token, err := r.next()
		if err != nil {
			return err
		}
		switch token {
		case json.Delim('{'), json.Delim('['):
			if depth++; depth > maxNesting {
				return fmt.Errorf("it is nested deeper than %d", maxNesting)
			}
		case json.Delim('}'), json.Delim(']'):
			depth--
		}
		if depth == 0 {
			return nil
		}
	}
}

func (r reader) next() (json.Token, error) {
	token, err := r.Token()
	if err == io.EOF {
		err = io.ErrUnexpectedEOF
	}
	if err != nil {
		err = fmt.Errorf("it is not JSON, at byte %d: %w", r.InputOffset(), err)
	}
	return token, err
}
