package chat

import (
	"regexp"
	"slices"
	"strings"
	"time"
)

// builtin is a global function, a filter, a test or a method.
type builtin struct {
	params []string // nil for any arguments
	f      func(c call) any
}

// call is a call of a builtin. v is the value that the filter, test or method applies to.
type call struct {
	*renderer
	v any
	a []any // by parameter; in source order if params is nil
}

// missing is the value of a parameter without an argument.
var missing any = undefined{"a missing argument"}

// def declares a builtin with a list of parameters such as "old new count".
func def(params string, f func(c call) any) builtin {
	return builtin{append([]string{}, strings.Fields(params)...), f}
}

func find(what string, table map[string]builtin, name string) builtin {
	b, ok := table[name]
	require(ok, "the %s %q is not supported", what, name)
	return b
}

func (b builtin) call(r *renderer, name string, v any, args []any) any {
	if b.params != nil {
		args = bind(name, b.params, args)
	}
	return b.f(call{r, v, args})
}

func bind(of string, params []string, args []any) []any {
	values := slices.Repeat([]any{missing}, len(params))
	for i, v := range args {
		if n, ok := v.(named); ok {
			i, v = slices.Index(params, n.name), n.value
		}
		require(i >= 0 && i < len(values) && values[i] == missing, "argument %d of %s is not supported", i+1, of)
		values[i] = v
	}
	return values
}

func (c call) or(i int, otherwise any) any {
	if c.a[i] == missing {
		return otherwise
	}
	return c.a[i]
}

// globals are the functions that jinja2 and transformers provide.
var globals = map[string]builtin{
	"raise_exception": def("message", func(c call) any { panic(failed{&RaisedError{c.str(c.a[0])}}) }),
	"strftime_now":    def("format", func(c call) any { return strftime(c.now, want[string](c.a[0])) }),
	"namespace": {nil, func(c call) any {
		ns := namespace{}
		for _, arg := range c.a {
			n, ok := arg.(named)
			require(ok, "an argument of namespace without a name is not supported")
			ns[n.name] = n.value
		}
		return ns
	}},
	"range": def("start stop step", func(c call) any {
		start, stop, step := int64(0), want[int64](c.a[0]), want[int64](c.or(2, int64(1)))
		if c.a[1] != missing {
			start, stop = stop, want[int64](c.a[1])
		}
		checkInts(start, stop, step)
		require(step != 0, "range: the step is 0")
		out := &sequence{kind: "range"}
		for i := start; step > 0 && i < stop || step < 0 && i > stop; i += step {
			require(len(out.items) < maxRange, "range: more than %d numbers", maxRange)
			c.charge(itemBytes + 8)
			out.items = append(out.items, i)
		}
		return out
	}),
}

// layouts are Go's layouts for the conversions of C's strftime that chat templates use, and some more.
var layouts = map[string]string{"Y": "2006", "y": "06", "m": "01", "-m": "1", "d": "02", "-d": "2", "e": "_2",
	"H": "15", "I": "03", "-I": "3", "M": "04", "S": "05", "p": "PM", "B": "January", "b": "Jan", "A": "Monday",
	"a": "Mon", "j": "002", "F": "2006-01-02", "T": "15:04:05", "Z": "MST", "z": "-0700", "%": "%"}

var conversion = regexp.MustCompile(`(?s)%-?.?`)

// strftime is Python's in the C locale.
func strftime(t time.Time, format string) string {
	require(len(format) <= maxFormat, "strftime: a format of more than %d bytes", maxFormat)
	return conversion.ReplaceAllStringFunc(format, func(c string) string {
		layout, ok := layouts[c[1:]]
		require(ok, "strftime: %s is not supported", c)
		return t.Format(layout)
	})
}
