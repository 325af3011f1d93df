package chat

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"
)

// A value of a template is a Go value: nil is None; bool, int64, float64 and string are Python's types of these names,
// and the types below are the others.
type (
	undefined struct{} // what a variable, attribute or item is that does not exist
	bigint    string   // the digits of an int of more than 64 bits: it is printed, and nothing else
	safe      string   // what the filter safe returns: it is printed, and nothing else
	function  func(r *runner, a arguments) any
	// sequence is a list, tuple or range, or what a dict's keys, values and items return.
	sequence struct {
		kind  string
		items []any
	}
	// dict is a Python dict: its keys have an order.
	dict struct {
		keys   []any
		values map[any]any // by hash
	}
	// generator is what map, select and the like return: it has no length, is always true, is computed when it is
	// iterated over, and has no items left then.
	generator struct {
		compute func() []any
		items   []any
	}
	// namespace is what namespace() returns: its attributes can be set.
	namespace struct{ *dict }
)

func newList(items ...any) *sequence { return &sequence{"list", items} }

func newTuple(items ...any) *sequence { return &sequence{"tuple", items} }

var typeNames = map[string]string{"<nil>": "NoneType", "int64": "int", "float64": "float", "string": "str",
	"chat.bigint": "int", "chat.safe": "Markup", "*chat.namespace": "Namespace"}

// typeName returns Python's name of the type of v.
func typeName(v any) string {
	if s, ok := v.(*sequence); ok {
		return s.kind
	}
	name := fmt.Sprintf("%T", v)
	return cmp.Or(typeNames[name], strings.TrimPrefix(strings.TrimPrefix(name, "*"), "chat."))
}

// want returns v as a T, or fails.
func want[T any](v any) T {
	t, ok := v.(T)
	require(ok, "a value of type %s, expected %s", typeName(v), typeName(t))
	return t
}

// integer returns v as an int; Python's booleans are integers.
func integer(v any) (int64, bool) {
	if b, ok := v.(bool); ok {
		v = map[bool]int64{true: 1}[b]
	}
	i, ok := v.(int64)
	return i, ok
}

func wantInteger(v any) int64 {
	if i, ok := integer(v); ok {
		return i
	}
	return want[int64](v)
}

// number returns v, an int, float or bool, as a float.
func number(v any) (float64, bool) {
	if i, ok := integer(v); ok {
		return float64(i), true
	}
	f, ok := v.(float64)
	return f, ok
}

// isUndefined reports whether v is undefined.
func isUndefined(v any) bool { return v == any(undefined{}) }

// needDefined fails if one of v is undefined.
func needDefined(v ...any) { require(!slices.ContainsFunc(v, isUndefined), "a value is undefined") }

// truth is Python's bool(v).
func truth(v any) bool {
	switch v := v.(type) {
	case bool:
		return v
	case *dict:
		return len(v.keys) > 0
	case *sequence:
		return len(v.items) > 0
	}
	return !slices.Contains([]any{nil, undefined{}, int64(0), 0.0, "", safe("")}, v)
}

// indexed returns the items of a list, tuple or range, which have indices.
func indexed(v any) ([]any, bool) {
	s, ok := v.(*sequence)
	if !ok || strings.HasPrefix(s.kind, "dict_") {
		return nil, false
	}
	return s.items, true
}

// iterate returns what Python's iteration over v yields; nothing for an undefined value, as in jinja2.
func iterate(v any) []any {
	switch v := v.(type) {
	case undefined:
		return nil
	case *sequence:
		return v.items
	case *dict:
		return v.keys
	case *generator:
		return v.take(math.MaxInt)
	case string:
		checkSize(len(v), 1, maxText/16)
		return toAny(strings.Split(v, ""))
	}
	panic(failure("a value of type %s cannot be iterated over", typeName(v)))
}

func toAny(parts []string) []any {
	out := make([]any, len(parts))
	for i, part := range parts {
		out[i] = part
	}
	return out
}

// take returns up to n of the items that are left.
func (g *generator) take(n int) []any {
	if g.compute != nil {
		g.items, g.compute = g.compute(), nil
	}
	n = min(n, len(g.items))
	taken := g.items[:n]
	g.items = g.items[n:]
	return taken
}

func newDict() *dict { return &dict{values: map[any]any{}} }

// hash returns what is equal for scalars that Python holds to be equal.
func hash(v any) (h any, ok bool) {
	switch v := v.(type) {
	case nil, string, bigint:
		return v, true
	case safe:
		return string(v), true
	case float64:
		if i := int64(v); v >= -1<<62 && v < 1<<62 && float64(i) == v {
			return i, true
		}
		return v, true
	}
	i, ok := integer(v)
	return i, ok
}

func (d *dict) set(key, v any) {
	h, ok := hash(key)
	require(ok, "a value of type %s cannot be the key of a dict, or is not supported as one", typeName(key))
	if _, ok := d.values[h]; !ok {
		d.keys = append(d.keys, key)
	}
	d.values[h] = v
}

func (d *dict) lookup(key any) (v any, ok bool) {
	h, ok := hash(key)
	if v, found := d.values[h]; ok && found {
		return v, true
	}
	return undefined{}, false
}

func (d *dict) size() int { return len(d.keys) }

func (d *dict) get(key any) any {
	v, _ := d.lookup(key)
	return v
}

// update sets the items of from, in their order.
func (d *dict) update(from *dict) {
	for _, key := range from.keys {
		d.set(key, from.get(key))
	}
}

// items returns the values, in the order of the keys.
func (d *dict) items() []any {
	out := make([]any, len(d.keys))
	for i, key := range d.keys {
		out[i] = d.get(key)
	}
	return out
}

// pairs returns tuples of keys and values.
func (d *dict) pairs() []any {
	out := d.items()
	for i, key := range d.keys {
		out[i] = newTuple(key, out[i])
	}
	return out
}

// equal is Python's a == b.
func (r *runner) equal(a, b any, depth int) bool {
	r.spend(1)
	require(depth <= maxDepth, "values are nested more than %d deep", maxDepth)
	if x, ok := hash(a); ok {
		y, ok := hash(b)
		return ok && x == y
	}
	if d, ok := a.(*dict); ok {
		e, ok := b.(*dict)
		return ok && len(d.keys) == len(e.keys) && !slices.ContainsFunc(d.keys, func(key any) bool {
			v, ok := e.lookup(key)
			return !ok || !r.equal(d.get(key), v, depth+1)
		})
	}
	if l, ok := indexed(a); ok {
		m, ok := indexed(b)
		return ok && typeName(a) == typeName(b) &&
			slices.EqualFunc(l, m, func(a, b any) bool { return r.equal(a, b, depth+1) })
	}
	kind := typeName(a)
	require(kind != "function" && !strings.HasPrefix(kind, "dict_"), "comparing a value of type %s is not supported",
		kind)
	return a == b
}

// order is negative, zero or positive as a is less than, equal to or greater than b.
func (r *runner) order(a, b any) int {
	needDefined(a, b)
	s, ok1 := a.(string)
	t, ok2 := b.(string)
	if ok1 && ok2 {
		return strings.Compare(s, t)
	}
	i, ok1 := integer(a)
	j, ok2 := integer(b)
	if ok1 && ok2 {
		return cmp.Compare(i, j)
	}
	x, ok1 := number(a)
	y, ok2 := number(b)
	if ok1 && ok2 && !math.IsNaN(x+y) {
		return cmp.Compare(x, y)
	}
	l, ok1 := indexed(a)
	m, ok2 := indexed(b)
	require(ok1 && ok2 && typeName(a) == typeName(b), "%s and %s have no order", typeName(a), typeName(b))
	for i := range min(len(l), len(m)) {
		if !r.equal(l[i], m[i], 0) {
			return r.order(l[i], m[i])
		}
	}
	return len(l) - len(m)
}

// contains is Python's item in container.
func (r *runner) contains(container, item any) bool {
	switch c := container.(type) {
	case string:
		return strings.Contains(c, want[string](item))
	case *dict:
		_, hashable := hash(item)
		require(hashable || isUndefined(item), "a value of type %s cannot be the key of a dict", typeName(item))
		_, ok := c.lookup(item)
		return ok
	}
	return slices.ContainsFunc(iterate(container), func(v any) bool { return r.equal(v, item, 0) })
}
