package weights

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/mojo-patch/mojo-patch/internal/regular"
)

// MapEntry names the tensor of an initializer and its conversion. Nothing else is inferred.
type MapEntry struct {
	Tensor string
	// Shape is the initializer's shape if not nil. Another shape in the graph is a mismatch.
	Shape []int64
	// Transposed swaps the last two axes, after everything else.
	Transposed bool
	// RopeHeads is the number of heads whose rows llama.cpp's conversion reordered, or 0. The rows are restored
	// by reshape(RopeHeads, d/2, 2, …).swapaxes(1, 2).
	RopeHeads int64
	// Add is added to each element, such as -1 for a norm that llama.cpp's conversion added 1 to.
	Add float64
}

// Map holds entries by initializer name.
type Map map[string]MapEntry

// The fields of an entry, and of a file, that only inform people.
var (
	entryInformation = []string{"dtype", "gguf_type", "offset", "length"}
	fileInformation  = []string{"weights_file", "total_bytes", "source", "note"}
)

// ReadMap reads a map file: JSON of the form
//
//	{"map": {"val_75": {"tensor": "blk.0.attn_q.weight", "shape": [576, 576], "transposed": true,
//	  "rope_unpermute_heads": 9}}}
//
// "gguf" is another spelling of "tensor", and "add" a number added to each element. Every field except the tensor is
// optional. The fields weights_file, total_bytes, source and note beside "map", and dtype, gguf_type, offset and length
// in entries, are ignored. Unknown fields and duplicate names are errors.
func ReadMap(path string) (Map, error) {
	text, err := regular.ReadFile(path, maxMap)
	var m Map
	if err == nil {
		m, err = ParseMap(text)
	}
	if err != nil {
		return nil, fmt.Errorf("cannot read map %s: %w", path, err)
	}
	return m, nil
}

const maxMap = 64 << 20

// ParseMap parses the text of a map file; see ReadMap.
func ParseMap(text []byte) (Map, error) {
	var entries []field
	fields, err := readFields(text)
	if err != nil {
		return nil, err
	}
	found := false
	for _, f := range fields {
		switch {
		case f.name == "map":
			found = true
			if entries, err = readFields(f.value); err != nil {
				return nil, fmt.Errorf(`"map": %w`, err)
			}
		case !slices.Contains(fileInformation, f.name):
			return nil, fmt.Errorf("unknown field %q: the fields are \"map\" and, for information, %s", f.name,
				strings.Join(fileInformation, ", "))
		}
	}
	if !found {
		return nil, errors.New(`it has no field "map"`)
	}
	m := Map{}
	for _, e := range entries {
		entry, err := parseEntry(e.value)
		if err != nil {
			return nil, fmt.Errorf("entry %q: %w", e.name, err)
		}
		m[e.name] = entry
	}
	return m, nil
}

func parseEntry(text []byte) (e MapEntry, err error) {
	fields, err := readFields(text)
	if err != nil {
		return e, err
	}
	targets := map[string]any{"tensor": &e.Tensor, "gguf": &e.Tensor, "shape": &e.Shape, "transposed": &e.Transposed,
		"rope_unpermute_heads": &e.RopeHeads, "add": &e.Add}
	named := 0
	for _, f := range fields {
		target := targets[f.name]
		if target == nil {
			if slices.Contains(entryInformation, f.name) {
				continue
			}
			return e, fmt.Errorf("unknown field %q", f.name)
		}
		if f.name == "tensor" || f.name == "gguf" {
			named++
		}
		if err := json.Unmarshal(f.value, target); err != nil {
			return e, fmt.Errorf("field %q: %w", f.name, err)
		}
	}
	switch {
	case named > 1:
		return e, errors.New(`it has both "tensor" and "gguf", which mean the same`)
	case e.Tensor == "":
		return e, errors.New(`it names no "tensor"`)
	case e.RopeHeads < 0:
		return e, fmt.Errorf("rope_unpermute_heads is %d", e.RopeHeads)
	case slices.ContainsFunc(e.Shape, func(d int64) bool { return d < 0 }):
		return e, fmt.Errorf("the shape %v has a negative dimension", e.Shape)
	}
	return e, nil
}

// field is one name and value of a JSON object.
type field struct {
	name  string
	value json.RawMessage
}

// readFields reads a JSON object in order and rejects duplicate names.
func readFields(text []byte) ([]field, error) {
	d := json.NewDecoder(bytes.NewReader(text))
	if t, err := d.Token(); err != nil || t != json.Delim('{') {
		return nil, errors.Join(errors.New("a JSON object is expected"), err)
	}
	var list []field
	seen := map[string]bool{}
	for d.More() {
		t, err := d.Token()
		if err != nil {
			return nil, err
		}
		f := field{name: t.(string)}
		if seen[f.name] {
			return nil, fmt.Errorf("the name %q occurs twice", f.name)
		}
		seen[f.name] = true
		if err := d.Decode(&f.value); err != nil {
			return nil, fmt.Errorf("field %q: %w", f.name, err)
		}
		list = append(list, f)
	}
	if _, err := d.Token(); err != nil {
		return nil, err
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("unexpected data after the JSON object")
	}
	return list, nil
}
