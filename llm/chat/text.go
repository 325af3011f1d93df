package chat

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

const (
	maxText  = 64 << 20 // bytes of a string, and of all that one rendering writes
	maxItems = 1 << 18  // of a list that a template makes
	maxDepth = 500      // of values in values
)

// text returns s if it is not too long.
func text(s string) string {
	checkSize(len(s), 1, maxText)
	return s
}

// str is Python's str(v).
func str(v any) string {
	switch v := v.(type) {
	case string:
		return v
	case safe:
		return string(v)
	case undefined:
		return ""
	}
	w := writer{item: ", ", key: ": ", quote: pythonQuote}
	w.value(v, 0)
	return w.String()
}

// writer writes values as Python's repr does, or as its json.dumps.
type writer struct {
	strings.Builder
	json      bool
	item, key string // separators
	indent    *string
	quote     func(s string) string
	order     func(a, b any) int // of the keys of dicts; nil keeps theirs
}

// words are None, booleans and the floats that are no numbers, in JSON.
var words = map[string]string{"None": "null", "True": "true", "False": "false", "nan": "NaN", "inf": "Infinity",
	"-inf": "-Infinity"}

func (w *writer) value(v any, depth int) {
	require(depth <= maxDepth, "values are nested more than %d deep", maxDepth)
	checkSize(w.Len(), 1, maxText)
	word := ""
	switch v := v.(type) {
	case nil:
		word = "None"
	case bool:
		word = map[bool]string{true: "True", false: "False"}[v]
	case int64, bigint:
		word = fmt.Sprint(v)
	case float64:
		word = floatText(v)
	case string:
		word = w.quote(v)
	case *sequence:
		open, close := "[", "]"
		if v.kind == "tuple" && !w.json {
			open, close = "(", ")"
			if len(v.items) == 1 {
				close = ",)"
			}
		}
		require(v.kind == "list" || v.kind == "tuple", "writing a value of type %s is not supported", v.kind)
		w.list(open, close, v.items, depth, func(item any) { w.value(item, depth+1) })
		return
	case *dict:
		keys := v.keys
		if w.order != nil {
			keys = slices.SortedStableFunc(slices.Values(keys), w.order)
		}
		w.list("{", "}", keys, depth, func(key any) {
			name := key
			if _, isText := key.(string); w.json && !isText {
				k := writer{json: true}
				k.value(key, depth+1)
				name = k.String()
			}
			w.value(name, depth+1)
			w.WriteString(w.key)
			w.value(v.get(key), depth+1)
		})
		return
	default:
		require(isUndefined(v) && !w.json, "writing a value of type %s is not supported", typeName(v))
		word = "Undefined"
	}
	if inJSON := words[word]; w.json && inJSON != "" {
		word = inJSON
	}
	w.WriteString(word)
}

func (w *writer) list(open, close string, items []any, depth int, write func(item any)) {
	line := func(depth int) {
		if w.indent != nil && len(items) > 0 {
			checkSize(len(*w.indent), int64(depth), maxText)
			w.WriteString("\n" + strings.Repeat(*w.indent, depth))
		}
	}
	w.WriteString(open)
	for i, item := range items {
		if i > 0 {
			w.WriteString(w.item)
		}
		line(depth + 1)
		write(item)
	}
	line(depth)
	w.WriteString(close)
}

// pythonQuote is the repr of a string: in single quotes, unless it has such and no double ones.
func pythonQuote(s string) string {
	quote := "'"
	if strings.Contains(s, "'") && !strings.Contains(s, `"`) {
		quote = `"`
	}
	return escape(s, quote, "\n\r\t", func(r rune) string {
		switch {
		case r == ' ' || unicode.IsPrint(r) && r != utf8.RuneError:
			return string(r)
		case r <= 0xff:
			return fmt.Sprintf(`\x%02x`, r)
		case r <= 0xffff:
			return fmt.Sprintf(`\u%04x`, r)
		}
		return fmt.Sprintf(`\U%08x`, r)
	})
}

func jsonQuote(ascii bool) func(s string) string {
	return func(s string) string {
		return escape(s, `"`, "\n\r\t\b\f", func(r rune) string {
			switch {
			case r >= 0x20 && (!ascii || r <= 0x7e):
				return string(r)
			case r <= 0xffff:
				return fmt.Sprintf(`\u%04x`, r)
			}
			return fmt.Sprintf(`\u%04x\u%04x`, 0xd800+((r-0x10000)>>10), 0xdc00+(r&0x3ff))
		})
	}
}

// escape quotes s; those of the control characters short have an escape of a letter, and write writes what needs none.
func escape(s, quote, short string, write func(r rune) string) string {
	var b strings.Builder
	b.WriteString(quote)
	for _, r := range s {
		if strings.ContainsRune(quote+`\`, r) {
			b.WriteString(`\` + string(r))
		} else if strings.ContainsRune(short, r) {
			b.WriteString(strings.Trim(strconv.QuoteRune(r), "'"))
		} else {
			b.WriteString(write(r))
		}
	}
	return b.String() + quote
}

// floatText is Python's repr of a float.
func floatText(f float64) string {
	format := byte('f')
	if a := math.Abs(f); a != 0 && (a < 1e-4 || a >= 1e16) {
		format = 'e'
	}
	s := strings.ToLower(strings.TrimPrefix(strconv.FormatFloat(f, format, -1, 64), "+"))
	if !strings.ContainsAny(s, ".en") {
		s += ".0"
	}
	return s
}

// tojson is transformers' filter: json.dumps, and not jinja2's, which escapes HTML.
func tojson(r *runner, v any, a []any) any {
	w := writer{json: true, item: ", ", key: ": ", quote: jsonQuote(truth(a[0]))}
	if a[1] != nil {
		indent, isText := a[1].(string)
		if !isText {
			indent = strings.Repeat(" ", int(min(max(wantInteger(a[1]), 0), 100)))
		}
		w.indent, w.item = &indent, ","
	}
	if a[2] != nil {
		separators, _ := indexed(a[2])
		require(len(separators) == 2, "tojson: separators must be two strings")
		w.item, w.key = want[string](separators[0]), want[string](separators[1])
	}
	if truth(a[3]) {
		w.order = r.order
	}
	w.value(v, 0)
	return text(w.String())
}
