package chat

// tests are jinja2's tests (x is name).
var tests map[string]builtin

func init() {
	is := func(of func(v any) bool) builtin {
		return def("", func(_ *runner, v any, _ []any) any { return of(v) })
	}
	type_ := func(names ...string) builtin {
		return is(func(v any) bool {
			for _, name := range names {
				if typeName(v) == name {
					return true
				}
			}
			return false
		})
	}
	remainder := func(want int64) builtin {
		return def("", func(r *runner, v any, _ []any) any { return r.equal(arithmetic(v, "%", int64(2)), want, 0) })
	}
	sequence := []string{"str", "dict", "list", "tuple", "range", "undefined", "Markup"}
	tests = map[string]builtin{
		"defined":   is(func(v any) bool { return v != any(undefined{}) }),
		"undefined": type_("undefined"),
		"none":      type_("NoneType"),
		"boolean":   type_("bool"),
		"true":      is(func(v any) bool { b, ok := v.(bool); return ok && b }),
		"false":     is(func(v any) bool { b, ok := v.(bool); return ok && !b }),
		"integer":   type_("int"),
		"float":     type_("float"),
		"number":    type_("int", "float", "bool"),
		"string":    type_("str", "Markup"),
		"mapping":   type_("dict"),
		"sequence":  type_(sequence...),
		"iterable":  type_(append(sequence, "dict_keys", "dict_values", "dict_items", "generator", "loop")...),
		"callable":  type_("function", "loop", "undefined"), // as jinja2 has it
		"odd":       remainder(1),
		"even":      remainder(0),
		"divisibleby": def("num", func(r *runner, v any, a []any) any {
			return r.equal(arithmetic(v, "%", a[0]), int64(0), 0)
		}),
		"lower": is(func(v any) bool { return isLower(str(v)) }),
		"upper": is(func(v any) bool { return isUpper(str(v)) }),
		"sameas": def("other", func(_ *runner, v any, a []any) any {
			if _, isBool := a[0].(bool); !isBool && a[0] != nil {
				panic(failure("sameas a value of type %s: not supported", typeName(a[0])))
			}
			return v == a[0]
		}),
	}
	for op, names := range map[string][]string{"==": {"eq", "equalto"}, "!=": {"ne"}, "<": {"lt", "lessthan"},
		"<=": {"le"}, ">": {"gt", "greaterthan"}, ">=": {"ge"}, "in": nil} {
		for _, name := range append(names, op) {
			tests[name] = def("other", func(r *runner, v any, a []any) any { return r.compare(v, op, a[0]) })
		}
	}
}
