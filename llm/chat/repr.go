package chat

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/mitsuhiko/minijinja/minijinja-go/v2/value"
)

// typeName is Python's name of the type.
func typeName(v value.Value) string {
	switch {
	case v.IsUndefined():
		return "undefined"
	case v.IsNone():
		return "NoneType"
	case v.IsActualInt():
		return "int"
	case v.IsActualFloat():
		return "float"
	}
	if o, ok := v.AsObject(); ok {
		switch o := o.(type) {
		case *dict:
			return "dict"
		case *collection:
			return string(o.kind)
		case *generator:
			return "generator"
		case *namespace:
			return "Namespace"
		}
	}
	switch v.Kind() {
	case value.KindBool:
		return "bool"
	case value.KindString:
		return "str"
	case value.KindSeq:
		return "list"
	case value.KindNumber:
		return "int"
	case value.KindCallable:
		return "function"
	}
	return "object"
}

// maxDepth is how deep values may be nested.
const maxDepth = 500

// str is Python's str(v).
func str(v value.Value) (string, error) {
	if s, ok := v.AsString(); ok {
		return s, nil
	}
	if v.IsUndefined() {
		return "", nil
	}
	var b strings.Builder
	err := repr(&b, v, 0)
	return b.String(), err
}

// repr writes Python's repr(v).
func repr(b *strings.Builder, v value.Value, depth int) error {
	if depth > maxDepth {
		return fmt.Errorf("values are nested more than %d deep", maxDepth)
	}
	if b.Len() > maxText {
		return errTooLong
	}
	if s, ok := v.AsString(); ok {
		reprString(b, s)
		return nil
	}
	if t, ok := v.AsBool(); ok {
		b.WriteString(map[bool]string{true: "True", false: "False"}[t])
		return nil
	}
	if v.IsActualFloat() {
		f, _ := v.AsFloat()
		b.WriteString(floatText(f))
		return nil
	}
	list := func(open, close string, l []value.Value) error {
		b.WriteString(open)
		for i, item := range l {
			if i > 0 {
				b.WriteString(", ")
			}
			if err := repr(b, item, depth+1); err != nil {
				return err
			}
		}
		b.WriteString(close)
		return nil
	}
	if l, ok := v.AsSlice(); ok {
		return list("[", "]", l)
	}
	if l, ok := items(v); ok && typeName(v) == string(tupleKind) {
		if len(l) == 1 {
			return list("(", ",)", l)
		}
		return list("(", ")", l)
	}
	if d, ok := asDict(v); ok {
		b.WriteByte('{')
		for i, key := range d.keys {
			if i > 0 {
				b.WriteString(", ")
			}
			if err := repr(b, key, depth+1); err != nil {
				return err
			}
			b.WriteString(": ")
			item, _ := d.get(key)
			if err := repr(b, item, depth+1); err != nil {
				return err
			}
		}
		b.WriteByte('}')
		return nil
	}
	switch {
	case v.IsUndefined():
		b.WriteString("Undefined")
	case v.IsNone():
		b.WriteString("None")
	case v.Kind() == value.KindNumber:
		b.WriteString(v.String())
	default:
		return fmt.Errorf("a value of type %s cannot be written as text", typeName(v))
	}
	return nil
}

// reprString writes a string as Python does: in single quotes, unless it has such and no double ones.
func reprString(b *strings.Builder, s string) {
	quote := byte('\'')
	if strings.Contains(s, "'") && !strings.Contains(s, `"`) {
		quote = '"'
	}
	b.WriteByte(quote)
	for _, r := range s {
		switch {
		case r == rune(quote) || r == '\\':
			b.WriteByte('\\')
			b.WriteRune(r)
		case r == '\n':
			b.WriteString(`\n`)
		case r == '\r':
			b.WriteString(`\r`)
		case r == '\t':
			b.WriteString(`\t`)
		case r < 0x20 || r == 0x7f || r > 0x7f && r <= 0xff && !printable(r):
			fmt.Fprintf(b, `\x%02x`, r)
		case r > 0xff && !printable(r):
			if r > 0xffff {
				fmt.Fprintf(b, `\U%08x`, r)
			} else {
				fmt.Fprintf(b, `\u%04x`, r)
			}
		default:
			b.WriteRune(r)
		}
	}
	b.WriteByte(quote)
}

// printable is Python's str.isprintable of one character.
func printable(r rune) bool { return r == ' ' || unicode.IsPrint(r) && r != utf8.RuneError }

// floatText is Python's repr of a float.
func floatText(f float64) string {
	switch {
	case math.IsNaN(f):
		return "nan"
	case math.IsInf(f, 1):
		return "inf"
	case math.IsInf(f, -1):
		return "-inf"
	}
	if a := math.Abs(f); a != 0 && (a < 1e-4 || a >= 1e16) {
		return strconv.FormatFloat(f, 'e', -1, 64)
	}
	s := strconv.FormatFloat(f, 'f', -1, 64)
	if !strings.Contains(s, ".") {
		s += ".0"
	}
	return s
}
