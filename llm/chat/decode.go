package chat

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"unicode/utf8"
)

// decode reads JSON as Python's json.loads does: the keys of objects keep their order, integers are no floats.
func decode(data []byte) (any, error) {
	if !utf8.Valid(data) {
		return nil, errors.New("JSON that is not UTF-8")
	}
	d := json.NewDecoder(bytes.NewReader(data))
	d.UseNumber()
	v, err := decodeValue(d, 0)
	if err == nil {
		if _, end := d.Token(); end != io.EOF {
			err = errors.New("there is more than one value")
		}
	}
	if err != nil {
		return nil, fmt.Errorf("JSON: %w", err)
	}
	return v, nil
}

func decodeValue(d *json.Decoder, depth int) (any, error) {
	t, err := d.Token()
	switch {
	case depth > maxDepth:
		return nil, fmt.Errorf("nested more than %d deep", maxDepth)
	case err == io.EOF:
		return nil, io.ErrUnexpectedEOF
	case err != nil:
		return nil, err
	case t != json.Delim('[') && t != json.Delim('{'):
		if n, ok := t.(json.Number); ok {
			return decodeNumber(n.String())
		}
		return t, nil // nil, a bool or a string
	}
	items, object := newList(), newDict()
	for d.More() {
		var key any
		if t == json.Delim('{') {
			if key, err = d.Token(); err != nil {
				return nil, err
			}
		}
		v, err := decodeValue(d, depth+1)
		if err != nil {
			return nil, err
		}
		object.set(key, v)
		items.items = append(items.items, v)
	}
	if _, err := d.Token(); err != nil || t == json.Delim('[') {
		return items, err
	}
	return object, nil
}

func decodeNumber(s string) (any, error) {
	if strings.ContainsAny(s, ".eE") {
		f, err := strconv.ParseFloat(s, 64)
		return f, err
	}
	if i, err := strconv.ParseInt(s, 10, 64); err == nil {
		return i, nil
	}
	if len(s) > 4000 {
		return nil, fmt.Errorf("a number of %d digits", len(s))
	}
	return bigint(s), nil
}
