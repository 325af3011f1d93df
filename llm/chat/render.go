package chat

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// failed is the panic value for an error of the template. Parse and Render return the error.
type failed struct{ error }

func failure(format string, args ...any) failed { return failed{fmt.Errorf(format, args...)} }

// require fails unless ok.
func require(ok bool, format string, args ...any) {
	if !ok {
		panic(failure(format, args...))
	}
}

// try runs f, and returns its failure with the line it reached. line is nil if there are no lines.
func try(line func() int, f func()) (err error) {
	defer func() {
		switch e := recover().(type) {
		case nil:
		case failed:
			if err = e.error; line != nil && !errors.As(err, new(*RaisedError)) {
				err = fmt.Errorf("line %d: %w", line(), err)
			}
		default:
			panic(e)
		}
	}()
	f()
	return nil
}

// A RaisedError is an error that a template reports by raise_exception, such as an unsupported conversation.
type RaisedError struct{ Message string }

// Error returns the message.
func (e *RaisedError) Error() string { return "the chat template rejects the messages: " + e.Message }

// renderer is one rendering of a template.
type renderer struct {
	vars          map[string]any // of the running template, loop, macro or block, including outer variables
	out           *strings.Builder
	leave         string // break or continue, until the end of the loop or round
	line          int    // of the running operation
	depth         int    // nesting of loops, macros and blocks
	filters       int    // nesting of the running loop conditions
	written, work int
	bytes         int // the remaining memory of values
	now           time.Time
}

// otherNames are unsupported variables of jinja2.
var otherNames = []string{"caller", "cycler", "dict", "joiner", "kwargs", "lipsum", "self", "super", "varargs"}

func (r *renderer) lookup(name string) any {
	if v, ok := r.vars[name]; ok {
		_, isNamespace := v.(namespace) // jinja2 evaluates it between the rounds of the loop, which may change it
		require(!isNamespace || r.filters == 0, "a namespace in the condition of a loop is not supported")
		return v
	}
	if f, ok := globals[name]; ok {
		return function(func(r *renderer, args []any) any { return f.call(r, name, nil, args) })
	}
	require(!slices.Contains(otherNames, name), "the variable %q is not supported", name)
	return undefined{name}
}

// Bounds for one rendering.
const (
	maxText   = 64 << 20 // bytes of a string, and of the whole output
	maxRange  = 100_000  // numbers of a range, the same as in jinja2's sandbox
	maxItems  = 1 << 18  // of a list that a template makes
	maxDepth  = 500      // nesting of values, and of loops and macros
	maxFormat = 1 << 10  // bytes of a strftime format

	// maxBytes bounds the memory of all values of a rendering, including dropped ones that Go may not have freed.
	// Values that share memory, such as a part of a string, count once.
	maxBytes = 256 << 20
)

// The memory of values in bytes: a list item, a dict entry, a key-value pair, a character as a string, and a variable
// of a loop, macro or block.
const (
	itemBytes      = 16
	dictBytes      = 64
	pairBytes      = 96
	characterBytes = 32
	variableBytes  = 64
)

// maxWork bounds the operations, items, and 64-byte pieces of text of a rendering; tests lower it.
var maxWork = 50_000_000

// spend counts work on values.
func (r *renderer) spend(values ...any) {
	r.work -= 1 + len(values)
	for _, v := range values {
		switch v := v.(type) {
		case string:
			r.work -= len(v) / 64
		case *sequence:
			r.work -= len(v.items)
		}
	}
	require(r.work >= 0, "the template takes too many steps and may never end")
}

// slow counts work on each character of text.
func (r *renderer) slow(bytes int) {
	r.work -= 16 + bytes/4
	r.spend()
}

// charge counts the memory of a value.
func (r *renderer) charge(bytes int) {
	r.bytes -= bytes
	require(r.bytes >= 0, "the values of the template take more than %d MiB: it may never end", maxBytes>>20)
}

func checkSize(n, bound int) {
	require(n <= bound, "a value has more than %d bytes or items: the template may never end", bound)
}

// write writes the text of v and returns nil.
func (r *renderer) write(v any) any {
	s, isSafe := v.(safe)
	if !isSafe {
		s = safe(r.str(v))
	}
	r.written += len(s)
	checkSize(r.written, maxText)
	r.charge(2 * len(s)) // the text grows by doubling
	r.out.WriteString(string(s))
	return nil
}

// within runs a node without changing the outer variables.
func (r *renderer) within(around map[string]any, n node) any {
	outer, taken := r.vars, variableBytes*len(around)
	r.charge(taken)
	r.vars = maps.Clone(around)
	r.work -= len(r.vars)
	r.depth++
	require(r.depth <= maxDepth, "loops and macros are nested more than %d deep", maxDepth)
	v := n(r)
	r.vars = outer
	r.bytes += taken // the variables are gone
	r.depth--
	return v
}

func (r *renderer) captured(around map[string]any, n node) string {
	defer func(out *strings.Builder) { r.out = out }(r.out)
	r.out = &strings.Builder{}
	r.within(around, n)
	return r.out.String()
}
