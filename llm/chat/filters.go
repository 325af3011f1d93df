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

// filters are the jinja2 filters (v|name) that chat templates use, and transformers' tojson.
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
		"safe":   def("", func(c call) any { return safe(c.str(c.v)) }),
		"int":    def("", func(c call) any { return want[int64](parseNumber(c.str(c.v))) }),
		"length": def("", func(c call) any { return int64(c.sized()) }),
		"list":   def("", func(c call) any { return newList(c.iterate(c.v)...) }),
		"items":  def("", func(c call) any { return &sequence{generator, c.pairs(want[*dict](c.v))} }),
		"first":  def("", func(c call) any { return c.end(0) }),
		"last": def("", func(c call) any {
			c.sized()
			return c.end(-1)
		}),
		"join": def("d", func(c call) any { return c.join(c.iterate(c.v), c.str(c.a[0]), c.str) }),
		"dictsort": def("", func(c call) any {
			pairs, lowered := c.pairs(want[*dict](c.v)), map[any]string{}
			for _, pair := range pairs {
				lowered[pair] = c.lower(c.str(pair.(*sequence).items[0]))
			}
			return newList(slices.SortedStableFunc(slices.Values(pairs), func(a, b any) int {
				c.spend(lowered[a])
				return strings.Compare(lowered[a], lowered[b])
			})...)
		}),
		"map": {nil, func(c call) any {
			require(len(c.a) > 0, "map: an argument is missing")
			attribute, byAttribute := c.a[0].(named)
			ok := !byAttribute || attribute.name == "attribute" && len(c.a) == 1
			require(ok, "map with more than an attribute is not supported")
			c.a[0] = map[bool]any{true: attribute.value, false: c.a[0]}[byAttribute]
			out, f := &sequence{kind: generator}, c.each(byAttribute, "filter", filters)
			for _, v := range c.iterate(c.v) {
				c.charge(itemBytes)
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

// sized returns the number of items of the value.
func (c call) sized() int {
	require(typeName(c.v) != generator, "a generator has no length and no last item")
	if s, ok := c.v.(string); ok {
		return utf8.RuneCountInString(s)
	}
	return len(c.iterate(c.v))
}

// end returns the first item for 0, or the last one for -1.
func (c call) end(i int64) any {
	if s, ok := c.v.(string); ok {
		return character(s, i)
	}
	return at(c.iterate(c.v), i)
}

// each returns a function that gets an attribute of a value, if byAttribute, and applies a filter or test, if one is
// given. The arguments are the arguments of map, select and similar filters.
func (c call) each(byAttribute bool, what string, table map[string]builtin) func(v any) any {
	get := func(v any) any { return v }
	if byAttribute {
		require(len(c.a) > 0, "the attribute is missing")
		name := want[string](c.a[0])
		require(!strings.Contains(name, "."), "the attribute %s, with a dot, is not supported", name)
		get, c.a = func(v any) any { return c.item(v, name, false) }, c.a[1:]
	}
	if len(c.a) == 0 {
		return get
	}
	name := want[string](c.a[0])
	b := find(what, table, name)
	return func(v any) any {
		v = get(v)
		c.spend(v)
		c.spend(c.a[1:]...)
		return b.call(c.renderer, name, v, c.a[1:])
	}
}

// selector keeps the items that pass a test, by attribute if byAttribute, or the others. Without a test, true ones
// pass.
func selector(byAttribute, keep bool) builtin {
	return builtin{nil, func(c call) any {
		test := c.each(byAttribute, "test", tests)
		drop := func(v any) bool { return truth(test(v)) != keep }
		items := c.iterate(c.v)
		c.charge(itemBytes * len(items))
		return &sequence{generator, slices.DeleteFunc(slices.Clone(items), drop)}
	}}
}

// tests are the jinja2 tests (v is name) that chat templates use.
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

// stringMethods are Python's string methods that chat templates call.
var stringMethods = map[string]builtin{
	"strip":      stripped(strings.TrimFunc),
	"lstrip":     stripped(strings.TrimLeftFunc),
	"rstrip":     stripped(strings.TrimRightFunc),
	"startswith": affix(strings.HasPrefix),
	"endswith":   affix(strings.HasSuffix),
	"split":      def("sep maxsplit", split),
	"replace": def("old new count", func(c call) any {
		s, old, with := c.str(c.v), want[string](c.a[0]), want[string](c.a[1])
		n := strings.Count(s, old)
		checkSize(n*len(with), maxText)
		c.charge(len(s) + n*len(with))
		return strings.Replace(s, old, with, int(want[int64](c.or(2, int64(-1)))))
	}),
	"join":       def("iterable", func(c call) any { return c.join(c.iterate(c.a[0]), c.v.(string), want[string]) }),
	"upper":      inCase((*renderer).upper),
	"lower":      inCase((*renderer).lower),
	"capitalize": inCase((*renderer).capitalize),
	"title": inCase(func(r *renderer, s string) string {
		r.charge(len(s))
		return letters.ReplaceAllStringFunc(s, r.capitalize)
	}),
}

func ofText(f func(s string) string) builtin {
	return def("", func(c call) any { return f(c.str(c.v)) })
}

func inCase(f func(r *renderer, s string) string) builtin {
	return def("", func(c call) any { return f(c.renderer, c.str(c.v)) })
}

func affix(has func(s, affix string) bool) builtin {
	return def("affix", func(c call) any { return has(c.v.(string), want[string](c.a[0])) })
}

func stripped(trim func(s string, f func(r rune) bool) string) builtin {
	return def("chars", func(c call) any {
		of := isSpace
		if chars := c.or(0, nil); chars != nil {
			c.slow(len(want[string](chars)))
			set := map[rune]bool{}
			for _, r := range want[string](chars) {
				set[r] = true
			}
			of = func(r rune) bool { return set[r] }
		}
		s := c.str(c.v)
		kept := trim(s, of)
		c.slow(len(s) - len(kept))
		return kept
	})
}

// otherMethods are unsupported methods of strings and lists. Reading one is an error, not undefined.
var otherMethods = strings.Fields(`append casefold center clear copy count encode expandtabs extend find format format_map
	index insert isalnum isalpha isascii isdecimal isdigit isidentifier islower isnumeric isprintable isspace istitle
	isupper ljust maketrans partition pop remove removeprefix removesuffix reverse rfind rindex rjust rpartition rsplit
	sort splitlines swapcase translate zfill`)

// dictMethods are methods of dicts. Unsupported ones still hide items of their names.
var dictMethods = map[string]builtin{
	"clear": refused, "copy": refused, "fromkeys": refused, "pop": refused, "popitem": refused, "setdefault": refused,
	"update": refused,
	"get": def("key default", func(c call) any {
		if v, ok := c.v.(*dict).lookup(c.a[0]); ok {
			return v
		}
		return c.or(1, nil)
	}),
	"keys":  view("dict_keys", func(_ *renderer, d *dict) []any { return d.keys }),
	"items": view("dict_items", (*renderer).pairs),
	"values": view("dict_values", func(r *renderer, d *dict) (values []any) {
		r.charge(itemBytes * len(d.keys))
		for _, key := range d.keys {
			values = append(values, d.values[key])
		}
		return values
	}),
}

var refused = builtin{nil, func(call) any { panic(failure("this method of a dict is not supported")) }}

func view(kind string, items func(r *renderer, d *dict) []any) builtin {
	return def("", func(c call) any { return &sequence{kind, items(c.renderer, c.v.(*dict))} })
}

func (r *renderer) join(items []any, separator string, str func(v any) string) string {
	var b strings.Builder
	for i, item := range items {
		text := str(item)
		if i > 0 {
			b.WriteString(separator)
		}
		b.WriteString(text)
		checkSize(b.Len(), maxText)
		r.charge(2 * (len(separator) + len(text))) // a builder grows by doubling
	}
	return b.String()
}

func split(c call) any {
	s, sep, n, out := c.v.(string), c.or(0, nil), want[int64](c.or(1, int64(-1))), newList()
	require(sep != "" && (sep != nil || n < 0), "split with this separator and maxsplit is not supported")
	if sep != nil {
		c.charge(2 * itemBytes * (1 + strings.Count(s, want[string](sep))))
		for _, part := range strings.SplitN(s, want[string](sep), int(cmp.Or(n+1, -1))) {
			out.items = append(out.items, part)
		}
		return out
	}
	parts := strings.FieldsFuncSeq(s, isSpace)
	for part := range parts {
		c.charge(2 * itemBytes)
		out.items = append(out.items, part)
	}
	return out
}

// The memory of a case change: text and its copies.
const caseBytes = 3

func (r *renderer) upper(s string) string {
	r.slow(len(s))
	r.charge(caseBytes * len(s))
	return cases.Upper(language.Und).String(s)
}

func (r *renderer) lower(s string) string {
	r.slow(len(s))
	r.charge(caseBytes * len(s))
	return cases.Lower(language.Und).String(s)
}

// letters match a word for str.title.
var letters = regexp.MustCompile(`[\p{Lu}\p{Ll}\p{Lt}]+`)

// capitalize is str.capitalize.
func (r *renderer) capitalize(s string) string {
	_, n := utf8.DecodeRuneInString(s)
	r.charge(len(s))
	return cases.Title(language.Und).String(s[:n]) + r.lower(s[n:])
}
