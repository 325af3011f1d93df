package chat

import (
	"errors"
	"fmt"
	"strings"

	"github.com/mitsuhiko/minijinja/minijinja-go/v2/value"
)

// compare is Python's a op b for ==, <, in and the like.
func compare(a value.Value, op string, b value.Value) (bool, error) {
	switch op {
	case "==", "!=":
		eq, err := equal(a, b)
		return eq == (op == "=="), err
	case "in", "not in":
		in, err := contains(b, a)
		return in == (op == "in"), err
	}
	c, err := order(a, b, 0)
	switch op {
	case "<":
		return c < 0, err
	case "<=":
		return c <= 0, err
	case ">":
		return c > 0, err
	}
	return c >= 0, err
}

// maxCompared is how many values one comparison goes through: a value may hold another one many times.
const maxCompared = 20_000

func equal(a, b value.Value) (bool, error) {
	n := 0
	return equalValues(a, b, 0, &n)
}

func equalValues(a, b value.Value, depth int, n *int) (bool, error) {
	if *n++; depth > maxDepth || *n > maxCompared {
		return false, fmt.Errorf("a comparison of values of more than %d parts, or nested more than %d deep", maxCompared, maxDepth)
	}
	if s, ok := a.AsString(); ok {
		t, ok := b.AsString()
		return ok && s == t, nil
	}
	if x, ok := number(a); ok {
		y, ok := number(b)
		if i, isInt := integer(a); isInt {
			if j, isInt := integer(b); isInt {
				return i == j, nil
			}
		}
		return ok && x == y, nil
	}
	if l, ok := items(a); ok {
		m, ok := items(b)
		if !ok || len(l) != len(m) || typeName(a) != typeName(b) {
			return false, nil
		}
		for i := range l {
			if eq, err := equalValues(l[i], m[i], depth+1, n); !eq || err != nil {
				return false, err
			}
		}
		return true, nil
	}
	if d, ok := asDict(a); ok {
		e, ok := asDict(b)
		if !ok || len(d.keys) != len(e.keys) {
			return false, nil
		}
		for h, v := range d.values {
			w, ok := e.values[h]
			if !ok {
				return false, nil
			}
			if eq, err := equalValues(v, w, depth+1, n); !eq || err != nil {
				return false, err
			}
		}
		return true, nil
	}
	if a.IsUndefined() || a.IsNone() {
		return a.IsUndefined() && b.IsUndefined() || a.IsNone() && b.IsNone(), nil
	}
	o, ok1 := a.AsObject()
	p, ok2 := b.AsObject()
	if ok1 && ok2 {
		return o == p, nil
	}
	return false, nil
}

// order is negative, zero or positive; values that Python does not order are an error.
func order(a, b value.Value, depth int) (int, error) {
	if err := undefinedError(a, b); err != nil {
		return 0, err
	}
	if s, ok := a.AsString(); ok {
		if t, ok := b.AsString(); ok {
			return strings.Compare(s, t), nil
		}
	}
	if x, ok := number(a); ok {
		if y, ok := number(b); ok {
			switch {
			case x < y:
				return -1, nil
			case x > y:
				return 1, nil
			case x == y:
				return 0, nil
			}
			return 0, errors.New("nan is not ordered")
		}
	}
	if l, ok := items(a); ok && depth < maxDepth {
		if m, ok := items(b); ok && typeName(a) == typeName(b) {
			for i := range min(len(l), len(m)) {
				eq, err := equal(l[i], m[i])
				if err != nil {
					return 0, err
				}
				if !eq {
					return order(l[i], m[i], depth+1)
				}
			}
			return len(l) - len(m), nil
		}
	}
	return 0, fmt.Errorf("%s and %s have no order", typeName(a), typeName(b))
}

// contains is Python's item in container.
func contains(container, item value.Value) (bool, error) {
	if s, ok := container.AsString(); ok {
		t, ok := item.AsString()
		if !ok {
			return false, fmt.Errorf("%s in str: Python has no such operation", typeName(item))
		}
		return strings.Contains(s, t), nil
	}
	if d, ok := asDict(container); ok {
		if _, ok := hash(item); !ok && !item.IsUndefined() {
			return false, fmt.Errorf("a %s cannot be the key of a dict", typeName(item))
		}
		_, ok := d.get(item)
		return ok, nil
	}
	l, err := iterate(container)
	if err != nil {
		return false, fmt.Errorf("in: %w", err)
	}
	for _, v := range l {
		if eq, err := equal(v, item); eq || err != nil {
			return eq, err
		}
	}
	return false, nil
}
