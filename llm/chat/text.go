package chat

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"unicode"
)

// str is Python's str(v).
func (r *renderer) str(v any) string {
	if s, ok := v.(string); ok {
		return s
	} else if isUndefined(v) {
		return ""
	}
	return r.writtenBy(&writer{item: ", ", key: ": "}, v)
}

// writtenBy returns v as w writes it.
func (r *renderer) writtenBy(w *writer, v any) string {
	w.bound = min(maxText, r.bytes/2) // a builder grows by doubling
	w.value(v, 0)
	r.slow(w.Len())
	r.charge(2 * w.Len())
	return w.String()
}

// writer writes values like Python's repr or json.dumps.
type writer struct {
	strings.Builder
	json      bool
	item, key string // separators
	indent    string // of the lines of items; "" for a single line
	bound     int    // of the text
}

var words = map[any][2]string{nil: {"None", "null"}, true: {"True", "true"}, false: {"False", "false"}}

func (w *writer) value(v any, depth int) {
	require(depth <= maxDepth, "values are nested more than %d deep", maxDepth)
	w.check()
	switch v := v.(type) {
	case nil, bool:
		word := words[v]
		w.WriteString(map[bool]string{false: word[0], true: word[1]}[w.json])
	case int64:
		w.WriteString(strconv.FormatInt(v, 10))
	case float64:
		w.WriteString(floatText(v))
	case string:
		w.quote(v)
	case *dict:
		w.list("{", "}", len(v.keys), depth, func(i int) {
			key := v.keys[i]
			if w.json {
				key = keyText(key)
			}
			w.value(key, depth+1)
			w.WriteString(w.key)
			w.value(v.values[v.keys[i]], depth+1)
		})
	default:
		kind := typeName(v)
		require(kind == "list" || kind == "tuple" && w.json, "writing a %s is not supported", kind)
		items := v.(*sequence).items
		w.list("[", "]", len(items), depth, func(i int) { w.value(items[i], depth+1) })
	}
}

// check fails if the text is too long.
func (w *writer) check() { checkSize(w.Len(), w.bound) }

// keyText returns the JSON text of a dict key, a string or an integer.
func keyText(key any) string {
	if n, ok := key.(int64); ok {
		return strconv.FormatInt(n, 10)
	}
	return want[string](key)
}

func (w *writer) list(begin, end string, n, depth int, write func(i int)) {
	line := func(depth int) {
		if w.indent != "" && n > 0 {
			w.WriteString("\n" + strings.Repeat(w.indent, depth))
		}
	}
	w.WriteString(begin)
	for i := range n {
		if i > 0 {
			w.WriteString(w.item)
		}
		line(depth + 1)
		write(i)
	}
	line(depth)
	w.WriteString(end)
}

// quote writes a string. For Python it uses single quotes unless the string has only single quotes.
func (w *writer) quote(s string) {
	quote, short := `"`, "\n\r\t"
	if w.json {
		short += "\b\f"
	} else if !strings.Contains(s, "'") || strings.Contains(s, `"`) {
		quote = "'"
	}
	w.WriteString(quote)
	for _, r := range s {
		switch {
		case strings.ContainsRune(quote+`\`, r):
			w.WriteString(`\` + string(r))
		case strings.ContainsRune(short, r):
			w.WriteString(strings.Trim(strconv.QuoteRune(r), "'"))
		case r == ' ' || w.json && r > ' ' || !w.json && unicode.IsPrint(r):
			w.WriteRune(r)
		default:
			require(w.json, "writing %U in a list or dict is not supported", r)
			fmt.Fprintf(w, `\u%04x`, r)
		}
		w.check()
	}
	w.WriteString(quote)
}

func floatText(f float64) string {
	a := math.Abs(f)
	format := map[bool]byte{true: 'e', false: 'f'}[a != 0 && (a < 1e-4 || a >= 1e16)]
	s := strconv.FormatFloat(f, format, -1, 64)
	if !strings.ContainsAny(s, ".e") {
		s += ".0"
	}
	return s
}

// tojson is transformers' filter: json.dumps instead of jinja2's filter, which escapes HTML.
func tojson(c call) any {
	w := writer{json: true, item: ", ", key: ": "}
	require(!truth(c.a[0]), "tojson: ensure_ascii=true is not supported")
	if v := c.or(1, nil); v != nil {
		n := want[int64](v)
		require(n > 0 && n <= 100, "tojson: an indent of %d is not supported", n)
		w.indent, w.item = strings.Repeat(" ", int(n)), ","
	}
	if c.a[2] != missing {
		separators := c.iterate(c.a[2])
		require(len(separators) == 2, "tojson: the separators are not two")
		w.item, w.key = want[string](separators[0]), want[string](separators[1])
	}
	return c.writtenBy(&w, c.v)
}
