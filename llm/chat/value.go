package chat

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// A value of a template is a Go value: nil is None; bool, int64, float64 and string are Python's types of these names;
// the types below are the others.
type (
	undefined struct{ name string } // a variable, attribute or item that does not exist
	safe      string                // the result of the filter safe, which can only be printed
	function  func(r *renderer, args []any) any
	// sequence is a list, a tuple, a range, a dict's keys, values or items, or a generator, as map, select and others
	// return it. A generator is always true, has no length, and can be read once.
	sequence struct {
		kind  string
		items []any
	}
	// dict is a Python dict with ordered keys. Keys are strings and int64, for which Go's equality is Python's.
	dict struct {
		keys   []any
		values map[any]any
	}
	namespace map[string]any // the result of namespace(); its attributes can be set
	loop      map[string]any // the variable loop, with its supported attributes
)

const generator, exhausted = "generator", "generator that was already consumed"

func newList(items ...any) *sequence { return &sequence{"list", items} }

func newDict(keys, values []any) *dict {
	d := &dict{values: map[any]any{}}
	for i, key := range keys {
		d.set(key, values[i])
	}
	return d
}

var typeNames = map[string]string{"<nil>": "NoneType", "int64": "int", "float64": "float", "string": "str",
	"chat.safe": "Markup"}

// typeName returns Python's name of the type of v.
func typeName(v any) string {
	if s, _ := v.(*sequence); s != nil {
		return s.kind
	} else if _, ok := v.(string); ok {
		return "str"
	}
	name := fmt.Sprintf("%T", v)
	return cmp.Or(typeNames[name], strings.TrimPrefix(strings.TrimPrefix(name, "*"), "chat."))
}

// want returns v as a T, or fails.
func want[T any](v any) T {
	u, isUndefined := v.(undefined)
	require(!isUndefined, "%s is undefined", u.name)
	t, ok := v.(T)
	require(ok, "a %s is not supported here: use a %s", typeName(v), typeName(t))
	return t
}

func isUndefined(v any) bool {
	_, ok := v.(undefined)
	return ok
}

// parseNumber reads a number of a template or of JSON.
func parseNumber(s string) any {
	if i, err := strconv.ParseInt(s, 10, 64); err == nil {
		return i
	}
	f, err := strconv.ParseFloat(s, 64)
	require(err == nil && strings.ContainsAny(s, ".eE"), "the number %s is not supported", s)
	return f
}

func truth(v any) bool {
	switch v := v.(type) {
	case undefined:
		return false
	case *sequence:
		return len(v.items) > 0 || v.kind == generator || v.kind == exhausted
	case *dict:
		return len(v.keys) > 0
	}
	return !slices.Contains([]any{nil, false, int64(0), 0.0, "", safe("")}, v)
}

func (r *renderer) iterate(v any) []any {
	switch v := v.(type) {
	case undefined:
		return nil
	case string:
		r.charge(characterBytes * len(v))
		characters := make([]any, 0, utf8.RuneCountInString(v))
		for _, c := range v {
			characters = append(characters, string(c))
		}
		return characters
	case *dict:
		return v.keys
	}
	s := want[*sequence](v)
	require(s.kind != exhausted, "reading a %s is not supported", exhausted)
	if s.kind == generator {
		s.kind = exhausted
	}
	return s.items
}

func (d *dict) set(key, v any) {
	_, known := d.lookup(key)
	require(key != nil && !isUndefined(key), "the key %s of a dict is not supported", typeName(key))
	if !known {
		d.keys = append(d.keys, key)
	}
	d.values[key] = v
}

func (d *dict) lookup(key any) (v any, ok bool) {
	switch key.(type) {
	case string, int64, nil, undefined:
		v, ok = d.values[key]
		return v, ok
	}
	panic(failure("a %s as the key of a dict is not supported", typeName(key)))
}

func (r *renderer) pairs(d *dict) (pairs []any) {
	r.charge(pairBytes * len(d.keys))
	for _, key := range d.keys {
		pairs = append(pairs, &sequence{"tuple", []any{key, d.values[key]}})
	}
	return pairs
}

// equal is Python's a == b.
func (r *renderer) equal(a, b any, depth int) bool {
	r.spend(a)
	require(depth <= maxDepth, "values are nested more than %d deep", maxDepth)
	kind, other := typeName(a), typeName(b)
	const numbers, others = "bool int float", "undefined NoneType str dict list tuple"
	known := strings.Contains(numbers+others, kind) && strings.Contains(numbers+others, other)
	mixed := kind != other && strings.Contains(numbers, kind) && strings.Contains(numbers, other)
	require(known && !mixed, "comparing a %s with a %s is not supported", kind, other)
	switch x := a.(type) {
	case *dict:
		y, ok := b.(*dict)
		return ok && len(x.keys) == len(y.keys) && !slices.ContainsFunc(x.keys, func(key any) bool {
			v, ok := y.lookup(key)
			return !ok || !r.equal(x.values[key], v, depth+1)
		})
	case *sequence:
		return kind == other && slices.EqualFunc(x.items, b.(*sequence).items, func(v, w any) bool {
			return r.equal(v, w, depth+1)
		})
	}
	return a == b || isUndefined(a) && isUndefined(b)
}

// order is negative, zero or positive as a is less than, equal to or greater than b.
func order(a, b any) int {
	if s, ok := a.(string); ok {
		return strings.Compare(s, want[string](b))
	}
	return cmp.Compare(want[int64](a), want[int64](b))
}

// operate is Python's a op b.
func (r *renderer) operate(a any, op string, b any) any {
	switch op {
	case "~":
		return r.arithmetic(r.str(a), "+", r.str(b))
	case "==", "!=":
		return r.equal(a, b, 0) == (op == "==")
	case "in", "not in":
		return r.contains(b, a) == (op == "in")
	case "<", "<=", ">", ">=":
		sign := order(a, b)
		return sign < 0 && op[0] == '<' || sign > 0 && op[0] == '>' || sign == 0 && len(op) == 2
	}
	return r.arithmetic(a, op, b)
}

// contains is Python's item in container.
func (r *renderer) contains(container, item any) bool {
	switch c := container.(type) {
	case string:
		return strings.Contains(c, want[string](item))
	case *dict:
		_, ok := c.lookup(item)
		return ok
	}
	return slices.ContainsFunc(r.iterate(container), func(v any) bool { return r.equal(v, item, 0) })
}

// checkInts bounds integers so that no sum or product overflows.
func checkInts(ints ...int64) {
	ok := slices.Max(ints) <= 1<<31 && slices.Min(ints) >= -1<<31
	require(ok, "arithmetic with integers of more than 32 bits is not supported")
}

func (r *renderer) arithmetic(a any, op string, b any) any {
	if s, ok := a.(string); ok && op == "+" {
		t := want[string](b)
		checkSize(len(s)+len(t), maxText)
		r.charge(len(s) + len(t))
		return s + t
	}
	if s, ok := a.(*sequence); ok && op == "+" {
		t := want[*sequence](b)
		require(s.kind == "list" && t.kind == "list", "%s + %s is not supported", s.kind, t.kind)
		checkSize(len(s.items)+len(t.items), maxItems)
		r.charge(itemBytes * (len(s.items) + len(t.items)))
		return newList(slices.Concat(s.items, t.items)...)
	}
	i, j := want[int64](a), want[int64](b)
	checkInts(i, j)
	require(j != 0 || strings.Contains("+-*", op), "division by zero")
	switch op {
	case "+":
		return i + j
	case "-":
		return i - j
	case "*":
		return i * j
	case "/":
		return float64(i) / float64(j)
	}
	quotient, remainder := i/j, i%j
	if remainder != 0 && (remainder < 0) != (j < 0) { // Python's remainder has the sign of j
		quotient, remainder = quotient-1, remainder+j
	}
	if op == "%" {
		return remainder
	}
	return quotient
}

// item is v[key] in jinja2: the item, else Python's method of that name. For v.key the method comes first.
func (r *renderer) item(v, key any, methodFirst bool) any {
	name, isName := key.(string)
	found, ok, methods := any(nil), false, map[string]builtin(nil)
	switch v := v.(type) {
	case undefined:
		want[*dict](v)
	case *dict:
		found, ok = v.lookup(key)
		methods = dictMethods
	case namespace:
		found, ok = v[name]
	case loop:
		found, ok = v[name]
		require(ok, "loop.%s is not supported", name)
	case string, *sequence:
		kind := typeName(v)
		require(strings.Contains("str list tuple range", kind), "an item of a %s is not supported", kind)
		if text, ok := v.(string); ok && !isName {
			return character(text, want[int64](key))
		} else if !isName {
			return at(r.iterate(v), want[int64](key))
		} else if kind == "str" {
			methods = stringMethods
		}
		require(!slices.Contains(otherMethods, name), "the method %s of a %s is not supported", name, kind)
	}
	if m, isMethod := methods[name]; isMethod && (methodFirst || !ok) {
		return function(func(r *renderer, args []any) any { return m.call(r, name, v, args) })
	} else if !ok {
		return undefined{r.str(key) + " of a " + typeName(v)}
	}
	return found
}

// at returns an item; a negative index counts from the end.
func at(l []any, i int64) any {
	if i < 0 {
		i += int64(len(l))
	}
	if i < 0 || i >= int64(len(l)) {
		return undefined{"an item that there is not"}
	}
	return l[i]
}

// character returns a character of a string; a negative index counts from the end.
func character(s string, i int64) any {
	n := int64(utf8.RuneCountInString(s))
	if i < 0 {
		i += n
	}
	if i < 0 || i >= n {
		return undefined{"an item that there is not"}
	}
	return s[byteAt(s, i):byteAt(s, i+1)]
}

// byteAt returns the byte offset of a character, from 0 to the number of characters.
func byteAt(s string, character int64) int {
	for at := range s {
		if character == 0 {
			return at
		}
		character--
	}
	return len(s)
}

// slice is Python's v[start:stop:step] with these bounds.
func (r *renderer) slice(v any, bounds []any) any {
	kind := typeName(v)
	require(kind == "str" || kind == "list", "a slice of a %s is not supported", kind)
	text, _ := v.(string)
	n := int64(utf8.RuneCountInString(text))
	if kind == "list" {
		n = int64(len(v.(*sequence).items))
	}
	bound := func(i int, otherwise int64) int64 {
		if bounds[i] == nil {
			return otherwise
		}
		at := want[int64](bounds[i])
		if at < 0 {
			at += n
		}
		return min(max(at, 0), n)
	}
	if bounds[2] != nil {
		backwards := bounds[2] == any(int64(-1)) && bounds[0] == nil && bounds[1] == nil
		require(backwards, "a slice with a step, other than [::-1], is not supported")
		l := r.iterate(v)
		r.charge(itemBytes * len(l))
		l = slices.Clone(l)
		slices.Reverse(l)
		if kind == "str" {
			return r.join(l, "", r.str)
		}
		return newList(l...)
	}
	from, to := bound(0, 0), bound(1, n)
	to = max(from, to)
	if kind == "str" {
		return text[byteAt(text, from):byteAt(text, to)]
	}
	return newList(v.(*sequence).items[from:to]...)
}
