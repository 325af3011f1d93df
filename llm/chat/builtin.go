package chat

import (
	"strings"
)

// A builtin is a global function, or a filter, test or method of a value v.
type builtin struct {
	params   program // what stands between the brackets of Python's definition
	variadic bool    // f gets all arguments as one value, of type arguments
	f        func(r *runner, v any, a []any) any
}

// def declares a builtin by Python's parameters, as "old, new, count=-1"; "*" stands for any arguments.
func def(params string, f func(r *runner, v any, a []any) any) builtin {
	if params == "*" {
		return builtin{variadic: true, f: f}
	}
	r := runner{program: program{source: "{{(" + params + ")}}"}}
	r.lex()
	return builtin{params: r.program, f: f}
}

// call calls b, which errors call by name.
func (b builtin) call(r *runner, name string, v any, a arguments) any {
	if b.variadic {
		return b.f(r, v, []any{a})
	}
	var values []any
	params := runner{program: b.params, pos: 1, work: 1000}
	params.parameters(name, a, 0, func(param string, v any, found bool) {
		require(found, "%s: argument %s is missing", name, param)
		values = append(values, v)
	})
	return b.f(r, v, values)
}

// maxRange is that of jinja2's sandbox.
const maxRange = 100_000

// globals are the functions that jinja2 and transformers provide.
var globals map[string]builtin

func init() {
	globals = map[string]builtin{
		"raise_exception": def("message", func(_ *runner, _ any, a []any) any {
			panic(failed{&RaisedError{str(a[0])}})
		}),
		"strftime_now": def("format", func(r *runner, _ any, a []any) any {
			return strftime(r.now, want[string](a[0]))
		}),
		"dict": def("*", func(_ *runner, _ any, a []any) any { return dictOf(a[0].(arguments)) }),
		"namespace": def("*", func(_ *runner, _ any, a []any) any {
			d := dictOf(a[0].(arguments))
			for _, key := range d.keys {
				require(!strings.HasPrefix(want[string](key), "_"),
					"namespace: transformers refuses names that begin with _")
			}
			return &namespace{d}
		}),
		"range": def("start, stop=none, step=1", func(r *runner, _ any, a []any) any {
			start, stop, step := int64(0), a[0], wantInteger(a[2])
			if a[1] != nil {
				start, stop = wantInteger(a[0]), a[1]
			}
			require(step != 0, "range: the step is 0")
			out := &sequence{kind: "range"}
			for i, end := start, wantInteger(stop); step > 0 && i < end || step < 0 && i > end; i += step {
				require(len(out.items) < maxRange, "range: more than %d numbers", maxRange)
				out.items = append(out.items, i)
			}
			return out
		}),
	}
}

// dictOf returns the dict of one argument, a dict, and of named ones.
func dictOf(a arguments) *dict {
	d := newDict()
	require(len(a.positional) < 2, "dict or namespace: more than one argument without a name")
	for _, v := range a.positional {
		d.update(want[*dict](v))
	}
	d.update(a.named)
	return d
}
