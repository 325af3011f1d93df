package chat

import (
	"cmp"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"

	"golang.org/x/text/cases"
	"golang.org/x/text/language"
)

// filters are the filters (v|name) of jinja2 that chat templates use, and tojson as transformers has it.
var filters map[string]builtin

func init() {
	filters = map[string]builtin{
		"tojson": def("ensure_ascii indent separators", tojson),
		"default": def("default_value boolean", func(c call) any {
			if !isUndefined(c.v) && (truth(c.v) || !truth(c.a[1])) {
				return c.v
			}
			return c.or(0, "")
		}),
		"string": ofText(func(s string) string { return s }),
		"safe":   def("", func(c call) any { return safe(str(c.v)) }),
		"int":    def("", func(c call) any { return want[int64](parseNumber(str(c.v))) }),
		"length": def("", func(c call) any { return int64(len(c.sized())) }),
		"list":   def("", func(c call) any { return newList(iterate(c.v)...) }),
		"items":  def("", func(c call) any { return &sequence{generator, want[*dict](c.v).pairs()} }),
		"first":  def("", func(c call) any { return at(iterate(c.v), 0) }),
		"last":   def("", func(c call) any { return at(c.sized(), -1) }),
		"join":   def("d", func(c call) any { return join(iterate(c.v), str(c.a[0]), str) }),
		"dictsort": def("", func(c call) any {
			byKey := func(a, b any) int { return order(lower(str(at(iterate(a), 0))), lower(str(at(iterate(b), 0)))) }
			return newList(slices.SortedStableFunc(slices.Values(want[*dict](c.v).pairs()), byKey)...)
		}),
		"map": {nil, func(c call) any {
			require(len(c.a) > 0, "map: an argument is missing")
			attribute, byAttribute := c.a[0].(named)
			ok := !byAttribute || attribute.name == "attribute" && len(c.a) == 1
			require(ok, "map by more than an attribute is not supported")
			c.a[0] = map[bool]any{true: attribute.value, false: c.a[0]}[byAttribute]
			out, f := &sequence{kind: generator}, c.each(byAttribute, "filter", filters)
			for _, v := range iterate(c.v) {
				out.items = append(out.items, f(v))
			}
			return out
		}},
		"select":     selector(false, true),
		"reject":     selector(false, false),
		"selectattr": selector(true, true),
		"rejectattr": selector(true, false),
	}
	filters["d"], filters["count"], filters["trim"] = filters["default"], filters["length"], stringMethods["strip"]
	for _, name := range []string{"capitalize", "lower", "replace", "upper"} {
		filters[name] = stringMethods[name]
	}
}

func (c call) sized() []any {
	require(typeName(c.v) != generator, "a generator has no length and no last item")
	return iterate(c.v)
}

// each returns what gets an attribute of a value, if byAttribute, and applies a filter or test to it, if there is one.
// The arguments are those of map, select and the like.
func (c call) each(byAttribute bool, what string, table map[string]builtin) func(v any) any {
	get := func(v any) any { return v }
	if byAttribute {
		require(len(c.a) > 0, "the attribute is missing")
		name := want[string](c.a[0])
		require(!strings.Contains(name, "."), "the attribute %s, with a dot, is not supported", name)
		get, c.a = func(v any) any { return item(v, name, false) }, c.a[1:]
	}
	if len(c.a) == 0 {
		return get
	}
	name := want[string](c.a[0])
	b := find(what, table, name)
	return func(v any) any { return b.call(c.renderer, name, get(v), c.a[1:]) }
}

// selector keeps the items that pass a test, or whose attribute does, or the others; without a test the true ones pass.
func selector(byAttribute, keep bool) builtin {
	return builtin{nil, func(c call) any {
		test := c.each(byAttribute, "test", tests)
		drop := func(v any) bool { return truth(test(v)) != keep }
		return &sequence{generator, slices.DeleteFunc(slices.Clone(iterate(c.v)), drop)}
	}}
}

// tests are the tests (v is name) of jinja2 that chat templates use.
var tests map[string]builtin

func init() {
	is := func(holds func(v any) bool) builtin { return def("", func(c call) any { return holds(c.v) }) }
	kind := func(names ...string) builtin {
		return is(func(v any) bool { return slices.Contains(names, typeName(v)) })
	}
	sequences := []string{"str", "Markup", "dict", "list", "tuple", "range", "undefined"}
	tests = map[string]builtin{
		"defined":   is(func(v any) bool { return !isUndefined(v) }),
		"undefined": is(isUndefined),
		"none":      kind("NoneType"),
		"boolean":   kind("bool"),
		"true":      is(func(v any) bool { return v == any(true) }),
		"false":     is(func(v any) bool { return v == any(false) }),
		"integer":   kind("int"),
		"float":     kind("float"),
		"number":    kind("int", "float", "bool"),
		"string":    kind("str", "Markup"),
		"mapping":   kind("dict"),
		"sequence":  kind(sequences...),
		"iterable":  kind(append(sequences, generator, exhausted, "dict_keys", "dict_values", "dict_items", "loop")...),
		"odd":       is(func(v any) bool { return want[int64](v)%2 != 0 }),
		"even":      is(func(v any) bool { return want[int64](v)%2 == 0 }),
	}
	for name, op := range map[string]string{"==": "==", "eq": "==", "equalto": "==", "!=": "!=", "ne": "!=", "<": "<",
		"lt": "<", "<=": "<=", "le": "<=", ">": ">", "gt": ">", ">=": ">=", "ge": ">=", "in": "in"} {
		tests[name] = def("other", func(c call) any { return c.operate(c.v, op, c.a[0]) })
	}
}

// stringMethods are Python's methods of strings that chat templates call.
var stringMethods = map[string]builtin{
	"strip":      stripped(strings.TrimFunc),
	"lstrip":     stripped(strings.TrimLeftFunc),
	"rstrip":     stripped(strings.TrimRightFunc),
	"startswith": affix(strings.HasPrefix),
	"endswith":   affix(strings.HasSuffix),
	"split":      def("sep maxsplit", split),
	"replace": def("old new count", func(c call) any {
		s, old, with := str(c.v), want[string](c.a[0]), want[string](c.a[1])
		checkSize(strings.Count(s, old)*len(with), maxText)
		return strings.Replace(s, old, with, int(want[int64](c.or(2, int64(-1)))))
	}),
	"join":       def("iterable", func(c call) any { return join(iterate(c.a[0]), c.v.(string), want[string]) }),
	"upper":      ofText(upper),
	"lower":      ofText(lower),
	"capitalize": ofText(capitalize),
	"title":      ofText(func(s string) string { return letters.ReplaceAllStringFunc(s, capitalize) }),
}

func ofText(f func(s string) string) builtin {
	return def("", func(c call) any { return f(str(c.v)) })
}

func affix(has func(s, affix string) bool) builtin {
	return def("affix", func(c call) any { return has(c.v.(string), want[string](c.a[0])) })
}

func stripped(trim func(s string, f func(r rune) bool) string) builtin {
	return def("chars", func(c call) any {
		of := isSpace
		if chars := c.or(0, nil); chars != nil {
			of = func(r rune) bool { return strings.ContainsRune(want[string](chars), r) }
		}
		return trim(str(c.v), of)
	})
}

// otherMethods are those of strings and lists that are not supported: reading one is an error, and not undefined.
var otherMethods = strings.Fields(`append casefold center clear copy count encode expandtabs extend find format format_map
	index insert isalnum isalpha isascii isdecimal isdigit isidentifier islower isnumeric isprintable isspace istitle
	isupper ljust maketrans partition pop remove removeprefix removesuffix reverse rfind rindex rjust rpartition rsplit
	sort splitlines swapcase translate zfill`)

// dictMethods are those of dicts. Those that are not supported hide items of their names all the same.
var dictMethods = map[string]builtin{
	"clear": refused, "copy": refused, "fromkeys": refused, "pop": refused, "popitem": refused, "setdefault": refused,
	"update": refused,
	"get": def("key default", func(c call) any {
		if v, ok := c.v.(*dict).lookup(c.a[0]); ok {
			return v
		}
		return c.or(1, nil)
	}),
	"keys":  view("dict_keys", func(d *dict) []any { return d.keys }),
	"items": view("dict_items", (*dict).pairs),
	"values": view("dict_values", func(d *dict) (values []any) {
		for _, key := range d.keys {
			values = append(values, d.values[key])
		}
		return values
	}),
}

var refused = builtin{nil, func(call) any { panic(failure("this method of a dict is not supported")) }}

func view(kind string, items func(d *dict) []any) builtin {
	return def("", func(c call) any { return &sequence{kind, items(c.v.(*dict))} })
}

func join(items []any, separator string, str func(v any) string) string {
	var b strings.Builder
	for i, item := range items {
		if i > 0 {
			b.WriteString(separator)
		}
		b.WriteString(str(item))
		checkSize(b.Len(), maxText)
	}
	return b.String()
}

func split(c call) any {
	s, sep, n, out := c.v.(string), c.or(0, nil), want[int64](c.or(1, int64(-1))), newList()
	require(sep != "" && (sep != nil || n < 0), "split by this separator and maxsplit is not supported")
	parts := strings.FieldsFunc(s, isSpace)
	if sep != nil {
		parts = strings.SplitN(s, want[string](sep), int(cmp.Or(n+1, -1)))
	}
	for _, part := range parts {
		out.items = append(out.items, part)
	}
	return out
}

func upper(s string) string { return cases.Upper(language.Und).String(s) }
func lower(s string) string { return cases.Lower(language.Und).String(s) }

// letters make a word for str.title.
var letters = regexp.MustCompile(`[\p{Lu}\p{Ll}\p{Lt}]+`)

// capitalize is str.capitalize.
func capitalize(s string) string {
	_, n := utf8.DecodeRuneInString(s)
	return cases.Title(language.Und).String(s[:n]) + lower(s[n:])
}
