package chat

import (
	"errors"
	"fmt"

	"github.com/mitsuhiko/minijinja/minijinja-go/v2/value"
)

// attribute is v.name: of a dict its method, else its item, as jinja2's getattr; undefined where there is none.
func attribute(v value.Value, name string) (value.Value, error) {
	if err := undefinedError(v); err != nil {
		return v, err
	}
	if methods[typeName(v)][name] != nil {
		return value.FromCallable(method{v, name}), nil
	}
	return itemOf(v, value.FromString(name)), nil
}

// item is v[key]: the item, else the attribute of that name.
func item(v, key value.Value) (value.Value, error) {
	if err := undefinedError(v); err != nil {
		return v, err
	}
	found := itemOf(v, key)
	if name, ok := key.AsString(); ok && found.IsUndefined() && methods[typeName(v)][name] != nil {
		return value.FromCallable(method{v, name}), nil
	}
	return found, nil
}

func itemOf(v, key value.Value) value.Value {
	if d, ok := asDict(v); ok {
		found, _ := d.get(key)
		return found
	}
	if l, ok := items(v); ok {
		if i, ok := integer(key); ok {
			if i = wrap(i, len(l)); i >= 0 && i < int64(len(l)) {
				return l[i]
			}
		}
		return value.Undefined()
	}
	if s, ok := v.AsString(); ok {
		if i, ok := integer(key); ok {
			runes := []rune(s)
			if i = wrap(i, len(runes)); i >= 0 && i < int64(len(runes)) {
				return value.FromString(string(runes[i]))
			}
		}
		return value.Undefined()
	}
	if name, ok := key.AsString(); ok {
		return v.GetAttr(name) // of loop, a macro or a namespace
	}
	return value.Undefined()
}

// wrap counts a negative index from the end.
func wrap(i int64, n int) int64 {
	if i < 0 {
		return i + int64(n)
	}
	return i
}

// slice is Python's v[start:stop:step].
func slice(v, start, stop, step value.Value) (value.Value, error) {
	if err := undefinedError(v); err != nil {
		return v, err
	}
	if s, ok := v.AsString(); ok {
		runes := []rune(s)
		at, err := sliceIndices(len(runes), start, stop, step)
		if err != nil {
			return v, err
		}
		out := make([]rune, len(at))
		for i, j := range at {
			out[i] = runes[j]
		}
		return value.FromString(string(out)), nil
	}
	l, ok := items(v)
	if !ok {
		return v, fmt.Errorf("a value of type %s has no slices", typeName(v))
	}
	at, err := sliceIndices(len(l), start, stop, step)
	if err != nil {
		return v, err
	}
	out := make([]value.Value, len(at))
	for i, j := range at {
		out[i] = l[j]
	}
	if _, ok := v.AsSlice(); ok {
		return value.FromSlice(out), nil
	}
	if typeName(v) != string(tupleKind) {
		return v, fmt.Errorf("a slice of a value of type %s is not supported", typeName(v))
	}
	return newCollection(tupleKind, out...), nil
}

func sliceIndices(n int, start, stop, step value.Value) ([]int, error) {
	bound := func(v value.Value, otherwise, least, greatest int64) (int64, error) {
		if v.IsNone() {
			return otherwise, nil
		}
		i, ok := integer(v)
		if !ok {
			return 0, fmt.Errorf("a slice by a value of type %s", typeName(v))
		}
		return min(max(wrap(i, n), least), greatest), nil
	}
	by := int64(1)
	if !step.IsNone() {
		var ok bool
		if by, ok = integer(step); !ok || by == 0 {
			return nil, errors.New("the step of a slice must be an integer other than 0")
		}
	}
	from, to, least, greatest := int64(0), int64(n), int64(0), int64(n)
	if by < 0 {
		from, to, least, greatest = int64(n)-1, -1, -1, int64(n)-1
	}
	from, err := bound(start, from, least, greatest)
	if err != nil {
		return nil, err
	}
	if to, err = bound(stop, to, least, greatest); err != nil {
		return nil, err
	}
	var at []int
	for i := from; by > 0 && i < to || by < 0 && i > to; {
		at = append(at, int(i))
		if by > 0 && i > to-by || by < 0 && i < to-by {
			break // the next would pass the end, and could overflow
		}
		i += by
	}
	return at, nil
}

// method is a method of a value that is called later.
type method struct {
	of   value.Value
	name string
}

// Call calls it.
func (m method) Call(_ value.State, args []value.Value, kwargs map[string]value.Value) (value.Value, error) {
	return methods[typeName(m.of)][m.name](m.of, arguments{m.name, args, kwargs})
}

// callMethod is v.name(…). Values that are no str, dict or list have methods of MiniJinja's: loop.cycle and the like.
func callMethod(state value.State, v value.Value, name string, args []value.Value, kwargs map[string]value.Value) (value.Value, error) {
	if err := undefinedError(v); err != nil {
		return v, err
	}
	if f := methods[typeName(v)][name]; f != nil {
		return f(v, arguments{name, args, kwargs})
	}
	f, err := attribute(v, name)
	if err != nil {
		return v, err
	}
	if f.IsUndefined() {
		return v, fmt.Errorf("a value of type %s has no method %q that is supported", typeName(v), name)
	}
	return call(state, f, args, kwargs)
}

func call(state value.State, f value.Value, args []value.Value, kwargs map[string]value.Value) (value.Value, error) {
	if err := undefinedError(f); err != nil {
		return f, err
	}
	c, ok := f.AsCallable()
	if !ok {
		return f, fmt.Errorf("a value of type %s cannot be called", typeName(f))
	}
	return c.Call(state, args, kwargs)
}
