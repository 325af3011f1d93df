package chat

import (
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// filters are jinja2's filters (x|name), and tojson as transformers has it; those that escape HTML are none of them.
var filters map[string]builtin

func init() {
	ofText := func(f func(s string) any) builtin {
		return def("", func(_ *runner, v any, _ []any) any { return f(str(v)) })
	}
	byKey := func(reverse bool) builtin { // max and min: the first of the items in order
		return def("case_sensitive=false, attribute=none", func(r *runner, v any, a []any) any {
			return at(r.sorted(iterate(v), reverse, a[1], a[0]), 0)
		})
	}
	filters = map[string]builtin{
		"tojson": def("ensure_ascii=false, indent=none, separators=none, sort_keys=false", tojson),
		"default": def("default_value='', boolean=false", func(_ *runner, v any, a []any) any {
			if isUndefined(v) || truth(a[1]) && !truth(v) {
				return a[0]
			}
			return v
		}),
		"string":     ofText(func(s string) any { return s }),
		"safe":       ofText(func(s string) any { return safe(s) }),
		"upper":      ofText(func(s string) any { return upper(s) }),
		"lower":      ofText(func(s string) any { return lower(s) }),
		"capitalize": ofText(func(s string) any { return capitalize(s) }),
		"title": ofText(func(s string) any {
			return titleWord.ReplaceAllStringFunc(s, func(word string) string {
				_, n := utf8.DecodeRuneInString(word)
				return upper(word[:n]) + lower(word[n:])
			})
		}),
		"trim": def("chars=none", func(_ *runner, v any, a []any) any { return trim(str(v), a[0], true, true) }),
		"replace": def("old, new, count=none", func(_ *runner, v any, a []any) any {
			return replace(str(v), str(a[0]), str(a[1]), a[2])
		}),
		"indent": def("width=4, first=false, blank=false", indent),
		"int": def("default=0", func(_ *runner, v any, a []any) any {
			if i, ok := integer(v); ok {
				return i
			}
			f, ok := toFloat(v)
			if !ok || math.IsNaN(f) || math.IsInf(f, 0) {
				return a[0]
			}
			require(math.Abs(f) < 1<<53, "int: %v is not supported: more than 53 bits", f)
			return int64(f)
		}),
		"float": def("default=0.0", func(_ *runner, v any, a []any) any {
			if f, ok := toFloat(v); ok {
				return f
			}
			return a[0]
		}),
		"abs": def("", func(r *runner, v any, _ []any) any {
			if i, ok := integer(v); ok {
				return integers(max(i, 0), "-", min(i, 0))
			}
			return math.Abs(want[float64](v))
		}),
		"round": def("precision=0", func(_ *runner, v any, a []any) any {
			precision := wantInteger(a[0])
			require(precision >= 0 && precision < 300, "round to %d places: not supported", precision)
			if i, ok := integer(v); ok {
				return i
			}
			// Python rounds the exact value, half to even.
			f, _ := strconv.ParseFloat(strconv.FormatFloat(want[float64](v), 'f', int(precision), 64), 64)
			return f
		}),
		"length": def("", func(_ *runner, v any, _ []any) any {
			switch v := v.(type) {
			case string:
				return int64(utf8.RuneCountInString(v))
			case *loop:
				return v.length()
			}
			require(typeName(v) != "generator", "a generator has no length")
			return int64(len(iterate(v)))
		}),
		"list": def("", func(_ *runner, v any, _ []any) any { return newList(iterate(v)...) }),
		"first": def("", func(_ *runner, v any, _ []any) any {
			if g, ok := v.(*generator); ok {
				return at(g.take(1), 0)
			}
			return at(iterate(v), 0)
		}),
		"last": def("", func(_ *runner, v any, _ []any) any {
			require(typeName(v) != "generator", "last of a generator: Python cannot reverse it")
			return at(iterate(v), -1)
		}),
		"reverse": def("", func(_ *runner, v any, _ []any) any {
			l := slices.Clone(iterate(v))
			slices.Reverse(l)
			if _, isText := v.(string); isText {
				return join(l, "", str)
			} else if typeName(v) == "generator" {
				return newList(l...)
			}
			return &generator{items: l}
		}),
		"items": lazily("", func(_ *runner, v any, _ []any) []any {
			if isUndefined(v) {
				return nil
			}
			return want[*dict](v).pairs()
		}),
		"join": def("d='', attribute=none", func(_ *runner, v any, a []any) any {
			return join(iterate(v), str(a[0]), func(v any) string { return str(follow(v, a[1], nil)) })
		}),
		"sum": def("attribute=none, start=0", func(_ *runner, v any, a []any) any {
			total := a[1]
			for _, item := range iterate(v) {
				total = arithmetic(total, "+", follow(item, a[0], nil))
				require(typeName(total) != "str", "sum: Python does not add strings")
			}
			return total
		}),
		"min": byKey(false),
		"max": byKey(true),
		"sort": def("reverse=false, case_sensitive=false, attribute=none", func(r *runner, v any, a []any) any {
			return newList(r.sorted(iterate(v), truth(a[0]), a[2], a[1])...)
		}),
		"dictsort": def("case_sensitive=false, by='key', reverse=false", func(r *runner, v any, a []any) any {
			by, ok := map[any]int64{"key": 0, "value": 1}[want[string](a[1])]
			require(ok, "dictsort: by %q, expected key or value", a[1])
			return newList(r.sorted(want[*dict](v).pairs(), truth(a[2]), by, a[0])...)
		}),
		"unique": lazily("case_sensitive=false, attribute=none", func(_ *runner, v any, a []any) (out []any) {
			seen := newDict()
			for _, item := range iterate(v) {
				if n := seen.size(); true {
					if seen.set(sortKey(item, a[1], a[0]), nil); seen.size() > n {
						out = append(out, item)
					}
				}
			}
			return out
		}),
		"map": lazily("*", func(r *runner, v any, a []any) []any {
			args := a[0].(arguments)
			name, f := "map", def("attribute, default=none", func(_ *runner, v any, a []any) any {
				return follow(v, a[0], a[1])
			})
			if len(args.positional) > 0 {
				name, f, args = r.chosen("filter", filters, args)
			}
			var out []any
			for _, item := range iterateIfTrue(v) {
				out = append(out, f.call(r, name, item, args))
			}
			return out
		}),
		"select":     lazily("*", selector(false, true)),
		"reject":     lazily("*", selector(false, false)),
		"selectattr": lazily("*", selector(true, true)),
		"rejectattr": lazily("*", selector(true, false)),
	}
	filters["d"], filters["count"] = filters["default"], filters["length"]
}

// lazily is def for a filter that returns a generator of what f returns.
func lazily(signature string, f func(r *runner, v any, a []any) []any) builtin {
	return def(signature, func(r *runner, v any, a []any) any {
		return &generator{compute: func() []any { return f(r, v, a) }}
	})
}

// titleWord is a word of the filter title: it ends at fewer characters than a word of str.title.
var titleWord = regexp.MustCompile(`[^-({\[<\t-\r\x1c-\x20\x{85}\p{Z}]+`)

func indent(_ *runner, v any, a []any) any {
	by, ok := a[0].(string)
	if !ok {
		n := max(wantInteger(a[0]), 0)
		checkSize(1, n, maxText)
		by = strings.Repeat(" ", int(n))
	}
	lines := splitLines(want[string](v) + "\n")
	checkSize(len(by), int64(len(lines)), maxText)
	for i, line := range lines {
		if i == 0 && truth(a[1]) || i > 0 && (line != "" || truth(a[2])) {
			lines[i] = by + line
		}
	}
	return text(strings.Join(lines, "\n"))
}

var (
	numberText      = regexp.MustCompile(`^[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?$`)
	otherNumberText = regexp.MustCompile(`(?i)^[+-]?(inf(inity)?|nan|[\d._]*_[\d._e+-]*)$`)
)

// toFloat reads a number, or a string as Python's float does.
func toFloat(v any) (float64, bool) {
	needDefined(v)
	s, isText := v.(string)
	if !isText {
		return number(v)
	}
	s = strings.TrimFunc(s, isSpace)
	require(!otherNumberText.MatchString(s), "the number %q is not supported", s)
	f, _ := strconv.ParseFloat(s, 64)
	return f, numberText.MatchString(s)
}

// follow follows a dotted path of attributes; otherwise, unless nil, is what an undefined one on it is.
func follow(v, path, otherwise any) any {
	keys := []any{path}
	if s, ok := path.(string); ok {
		keys = toAny(strings.Split(s, "."))
	} else if path == nil {
		return v
	}
	for _, key := range keys {
		if s, ok := key.(string); ok {
			if i, err := strconv.ParseInt(s, 10, 64); err == nil {
				key = i
			}
		}
		if v = item(v, key); otherwise != nil && isUndefined(v) {
			v = otherwise
		}
	}
	return v
}

// sortKey is what jinja2 compares: an attribute, in small letters unless caseSensitive.
func sortKey(v, path, caseSensitive any) any {
	v = follow(v, path, nil)
	if s, ok := v.(string); ok && !truth(caseSensitive) {
		return lower(s)
	}
	return v
}

// sorted sorts l by its keys; equal items keep their order, in reverse too.
func (r *runner) sorted(l []any, reverse bool, path, caseSensitive any) []any {
	sorted := make([][2]any, len(l))
	for i, v := range l {
		sorted[i] = [2]any{sortKey(v, path, caseSensitive), v}
	}
	slices.SortStableFunc(sorted, func(a, b [2]any) int {
		if reverse {
			a, b = b, a
		}
		return r.order(a[0], b[0])
	})
	out := make([]any, len(l))
	for i := range sorted {
		out[i] = sorted[i][1]
	}
	return out
}

// chosen returns the filter or test that the first argument names, and the arguments for it.
func (r *runner) chosen(what string, table map[string]builtin, a arguments) (string, builtin, arguments) {
	name := want[string](a.positional[0])
	b, ok := table[name]
	require(ok, "there is no %s %q, or it is not supported", what, name)
	return name, b, arguments{a.positional[1:], a.named}
}

// iterateIfTrue is iterate for filters that do not even look at None.
func iterateIfTrue(v any) []any {
	if !truth(v) {
		return nil
	}
	return iterate(v)
}

// selector keeps the items that pass a test, or fail it; without a test, those that are true.
func selector(byAttribute, keep bool) func(r *runner, v any, a []any) []any {
	return func(r *runner, v any, a []any) (out []any) {
		args := a[0].(arguments)
		var path any
		if byAttribute {
			require(len(args.positional) > 0, "the attribute is missing")
			path, args.positional = args.positional[0], args.positional[1:]
		}
		passes := truth
		if len(args.positional) > 0 {
			name, test, rest := r.chosen("test", tests, args)
			passes = func(v any) bool { return truth(test.call(r, name, v, rest)) }
		}
		for _, item := range iterateIfTrue(v) {
			if passes(follow(item, path, nil)) == keep {
				out = append(out, item)
			}
		}
		return out
	}
}
