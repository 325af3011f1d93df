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

// maxNesting bounds values that are passed over; serde_json, the reader of the reference implementation, has the same.
const maxNesting = 128

// reader reads JSON token by token: unlike json.Unmarshal it refuses duplicate keys, and keys in another case are other
// keys.
type reader struct{ *json.Decoder }

// readObject reads a text that is one JSON object; see reader.object.
func readObject(text []byte, entry func(r reader, key string) error) error {
	if !utf8.Valid(text) {
		return errors.New("it is no UTF-8")
	}
	r := reader{json.NewDecoder(bytes.NewReader(text))}
	r.UseNumber()
	if err := r.object(func(key string) error { return entry(r, key) }); err != nil {
		return err
	}
	if _, err := r.Token(); err != io.EOF {
		return fmt.Errorf("something follows its end, at byte %d", r.InputOffset())
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
		key, err := r.string()
		if err != nil {
			return err
		}
		if seen[key] {
			return fmt.Errorf("the key %q is there twice", key)
		}
		seen[key] = true
		if err := entry(key); err != nil {
			return err
		}
	}
	return r.delim('}')
}

// numbers reads an array of integers that are not negative.
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
			return nil, fmt.Errorf("%v stands where a number is expected", token)
		}
		v, err := strconv.ParseUint(n.String(), 10, 63)
		if err != nil {
			return nil, fmt.Errorf("%s is no whole number from 0 to 2^63-1", n)
		}
		numbers = append(numbers, int64(v))
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
		return "", fmt.Errorf("%v stands where a string is expected", token)
	}
	return s, nil
}

func (r reader) delim(want json.Delim) error {
	token, err := r.next()
	if err == nil && token != want {
		err = fmt.Errorf("%v stands where %q is expected", token, want.String())
	}
	return err
}

// skip passes over a value.
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
		err = fmt.Errorf("it is no JSON, at byte %d: %w", r.InputOffset(), err)
	}
	return token, err
}
