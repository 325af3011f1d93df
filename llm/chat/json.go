package chat

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/big"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/mitsuhiko/minijinja/minijinja-go/v2/value"
)

// decode reads JSON as Python's json.loads does: the keys of objects keep their order, integers are no floats.
func decode(data []byte) (value.Value, error) {
	if !utf8.Valid(data) {
		return value.Undefined(), errors.New("JSON that is not UTF-8")
	}
	d := json.NewDecoder(bytes.NewReader(data))
	d.UseNumber()
	v, err := decodeValue(d, 0)
	if err != nil {
		return v, fmt.Errorf("JSON: %w", err)
	}
	if _, err := d.Token(); err != io.EOF {
		return v, errors.New("JSON: there is more than one value")
	}
	return v, nil
}

func decodeValue(d *json.Decoder, depth int) (value.Value, error) {
	if depth > maxDepth {
		return value.Undefined(), fmt.Errorf("nested more than %d deep", maxDepth)
	}
	t, err := d.Token()
	if err != nil {
		if err == io.EOF {
			err = io.ErrUnexpectedEOF
		}
		return value.Undefined(), err
	}
	switch t := t.(type) {
	case nil:
		return value.None(), nil
	case bool:
		return value.FromBool(t), nil
	case string:
		return value.FromString(t), nil
	case json.Number:
		return decodeNumber(t.String())
	case json.Delim:
		if t == '[' {
			list := []value.Value{}
			for d.More() {
				v, err := decodeValue(d, depth+1)
				if err != nil {
					return v, err
				}
				list = append(list, v)
			}
			_, err := d.Token()
			return value.FromSlice(list), err
		}
		object := newDict()
		for d.More() {
			key, err := d.Token()
			if err != nil {
				return value.Undefined(), err
			}
			v, err := decodeValue(d, depth+1)
			if err != nil {
				return v, err
			}
			object.setString(key.(string), v)
		}
		_, err := d.Token()
		return value.FromObject(object), err
	}
	return value.Undefined(), fmt.Errorf("unexpected %v", t)
}

func decodeNumber(s string) (value.Value, error) {
	if strings.ContainsAny(s, ".eE") {
		f, err := strconv.ParseFloat(s, 64)
		if err != nil {
			return value.Undefined(), fmt.Errorf("number %s: %w", s, err)
		}
		return value.FromFloat(f), nil
	}
	if i, err := strconv.ParseInt(s, 10, 64); err == nil {
		return value.FromInt(i), nil
	}
	i, ok := new(big.Int).SetString(s, 10)
	if !ok || len(s) > 4000 {
		return value.Undefined(), fmt.Errorf("number of %d digits", len(s))
	}
	return value.FromBigInt(i), nil
}

// jsonStyle is how tojson writes, as the arguments of Python's json.dumps say.
type jsonStyle struct {
	item, key string // separators
	indent    string
	lines     bool // each item on a line of its own
	ascii     bool
	sorted    bool
}

// tojson is transformers' filter: json.dumps(v, ensure_ascii=False, …), without the escapes of HTML that jinja2's has.
func tojson(v value.Value, a arguments) (value.Value, error) {
	args, err := a.take("?ensure_ascii", "?indent", "?separators", "?sort_keys")
	if err != nil {
		return v, err
	}
	style := jsonStyle{item: ", ", key: ": ", ascii: args[0].IsTrue(), sorted: args[3].IsTrue()}
	if indent := args[1]; !indent.IsUndefined() && !indent.IsNone() {
		style.lines, style.item = true, ","
		if s, ok := indent.AsString(); ok {
			style.indent = s
		} else if n, ok := integer(indent); ok {
			style.indent = strings.Repeat(" ", int(min(max(n, 0), 100)))
		} else {
			return v, fmt.Errorf("tojson: indent is of type %s", typeName(indent))
		}
	}
	if separators := args[2]; !separators.IsUndefined() && !separators.IsNone() {
		l, ok := items(separators)
		if !ok || len(l) != 2 {
			return v, errors.New("tojson: separators must be two strings")
		}
		var ok1, ok2 bool
		style.item, ok1 = l[0].AsString()
		if style.key, ok2 = l[1].AsString(); !ok1 || !ok2 {
			return v, errors.New("tojson: separators must be two strings")
		}
	}
	var b strings.Builder
	if err := style.write(&b, v, 0); err != nil {
		return v, fmt.Errorf("tojson: %w", err)
	}
	return text(b.String())
}

func (j jsonStyle) write(b *strings.Builder, v value.Value, depth int) error {
	if depth > maxDepth {
		return fmt.Errorf("values are nested more than %d deep", maxDepth)
	}
	if b.Len() > maxText {
		return errTooLong
	}
	if s, ok := v.AsString(); ok {
		j.str(b, s)
		return nil
	}
	if t, ok := v.AsBool(); ok {
		b.WriteString(strconv.FormatBool(t))
		return nil
	}
	if l, ok := items(v); ok && typeName(v) != string(rangeKind) {
		return j.list(b, "[", "]", len(l), depth, func(i int) error { return j.write(b, l[i], depth+1) })
	}
	if d, ok := asDict(v); ok {
		keys := make([]string, len(d.keys))
		for i, key := range d.keys {
			switch {
			case key.Kind() == value.KindString:
				keys[i], _ = key.AsString()
			default:
				var kb strings.Builder
				if err := j.write(&kb, key, depth+1); err != nil {
					return err
				}
				keys[i] = kb.String()
			}
		}
		order := make([]int, len(keys))
		for i := range order {
			order[i] = i
		}
		if j.sorted {
			sortBy(order, keys)
		}
		return j.list(b, "{", "}", len(keys), depth, func(i int) error {
			j.str(b, keys[order[i]])
			b.WriteString(j.key)
			item, _ := d.get(d.keys[order[i]])
			return j.write(b, item, depth+1)
		})
	}
	switch {
	case v.IsNone():
		b.WriteString("null")
	case v.IsActualFloat():
		f, _ := v.AsFloat()
		s := floatText(f)
		if js, ok := map[string]string{"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}[s]; ok {
			s = js
		}
		b.WriteString(s)
	case v.Kind() == value.KindNumber:
		b.WriteString(v.String())
	default:
		return fmt.Errorf("a value of type %s has no JSON", typeName(v))
	}
	return nil
}

func (j jsonStyle) list(b *strings.Builder, open, close string, n, depth int, write func(i int) error) error {
	b.WriteString(open)
	line := func(depth int) {
		if j.lines && n > 0 {
			b.WriteByte('\n')
			for range depth {
				b.WriteString(j.indent)
			}
		}
	}
	for i := range n {
		if i > 0 {
			b.WriteString(j.item)
		}
		line(depth + 1)
		if err := write(i); err != nil {
			return err
		}
	}
	line(depth)
	b.WriteString(close)
	return nil
}

var jsonEscapes = map[rune]string{'"': `\"`, '\\': `\\`, '\n': `\n`, '\r': `\r`, '\t': `\t`, '\b': `\b`, '\f': `\f`}

func (j jsonStyle) str(b *strings.Builder, s string) {
	b.WriteByte('"')
	for _, r := range s {
		escape, ok := jsonEscapes[r]
		switch {
		case ok:
			b.WriteString(escape)
		case r < 0x20 || j.ascii && r > 0x7e && r <= 0xffff:
			fmt.Fprintf(b, `\u%04x`, r)
		case j.ascii && r > 0xffff:
			r -= 0x10000
			fmt.Fprintf(b, `\u%04x\u%04x`, 0xd800+(r>>10), 0xdc00+(r&0x3ff))
		default:
			b.WriteRune(r)
		}
	}
	b.WriteByte('"')
}
