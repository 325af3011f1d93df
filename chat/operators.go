package chat

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/mitsuhiko/minijinja/minijinja-go/v2/value"
)

// maxText is the greatest length of a string, and of all that one rendering writes, in bytes.
const maxText = 64 << 20

// maxItems is the greatest number of items of a list that a template makes.
const maxItems = 1 << 18

var errTooLong = fmt.Errorf("more than %d MiB of text: the template runs away", maxText>>20)

func undefinedError(v ...value.Value) error {
	for _, v := range v {
		if v.IsUndefined() {
			return errors.New("a value is undefined")
		}
	}
	return nil
}

// arithmetic is Python's a op b.
func arithmetic(a value.Value, op string, b value.Value) (value.Value, error) {
	if op == "~" {
		return concat(a, b)
	}
	if err := undefinedError(a, b); err != nil {
		return a, err
	}
	switch op {
	case "+":
		if s, ok := a.AsString(); ok {
			if t, ok := b.AsString(); ok {
				return text(s + t)
			}
		}
		if l, ok := a.AsSlice(); ok {
			if m, ok := b.AsSlice(); ok {
				if len(l)+len(m) > maxItems {
					return a, fmt.Errorf("a list of more than %d items", maxItems)
				}
				return value.FromSlice(slices.Concat(l, m)), nil
			}
		}
	case "*":
		if s, ok := a.AsString(); ok {
			return repeat(s, b)
		}
		if s, ok := b.AsString(); ok {
			return repeat(s, a)
		}
		if l, ok := a.AsSlice(); ok {
			return repeatList(l, b)
		}
	}
	if i, ok := integer(a); ok {
		if j, ok := integer(b); ok {
			return integers(i, op, j)
		}
	}
	x, ok1 := number(a)
	y, ok2 := number(b)
	if !ok1 || !ok2 {
		return a, fmt.Errorf("%s %s %s: Python has no such operation, or it is not supported", typeName(a), op, typeName(b))
	}
	return floats(x, op, y)
}

func concat(a, b value.Value) (value.Value, error) {
	s, err := str(a)
	if err != nil {
		return a, err
	}
	t, err := str(b)
	if err != nil {
		return b, err
	}
	return text(s + t)
}

func text(s string) (value.Value, error) {
	if len(s) > maxText {
		return value.Undefined(), errTooLong
	}
	return value.FromString(s), nil
}

func repeat(s string, times value.Value) (value.Value, error) {
	n, ok := integer(times)
	if !ok {
		return times, fmt.Errorf("str * %s: Python has no such operation", typeName(times))
	}
	if n <= 0 || s == "" {
		return value.FromString(""), nil
	}
	if n > int64(maxText/len(s)) {
		return times, errTooLong
	}
	return value.FromString(strings.Repeat(s, int(n))), nil
}

func repeatList(l []value.Value, times value.Value) (value.Value, error) {
	n, ok := integer(times)
	if !ok {
		return times, fmt.Errorf("list * %s: Python has no such operation", typeName(times))
	}
	if n <= 0 || len(l) == 0 {
		return value.FromSlice([]value.Value{}), nil
	}
	if n > int64(maxItems/len(l)) {
		return times, fmt.Errorf("a list of more than %d items", maxItems)
	}
	return value.FromSlice(slices.Repeat(l, int(n))), nil
}

var errOverflow = errors.New("an integer of more than 64 bits: not supported")

func integers(i int64, op string, j int64) (value.Value, error) {
	var r int64
	exact := true
	switch op {
	case "+":
		r = i + j
		exact = (r > i) == (j > 0)
	case "-":
		r = i - j
		exact = (r < i) == (j > 0)
	case "*":
		r = i * j
		exact = i == 0 || r/i == j && (i != -1 || j != math.MinInt64)
	case "//", "%":
		if j == 0 {
			return value.Undefined(), errors.New("division by zero")
		}
		if i == math.MinInt64 && j == -1 {
			return value.Undefined(), errOverflow
		}
		q, m := i/j, i%j
		if m != 0 && (m < 0) != (j < 0) {
			q, m = q-1, m+j
		}
		if r = q; op == "%" {
			r = m
		}
	case "**":
		if j < 0 {
			return floats(float64(i), op, float64(j))
		}
		r = 1
		for range min(j, 64) {
			if exact = i == 0 || (r*i)/i == r; !exact {
				break
			}
			r *= i
		}
		exact = exact && (j <= 64 || i == 0 || i == 1)
		if j > 64 && i == -1 {
			return value.FromInt(1 - 2*(j%2)), nil
		}
	default:
		return floats(float64(i), op, float64(j))
	}
	if !exact {
		return value.Undefined(), errOverflow
	}
	return value.FromInt(r), nil
}

func floats(x float64, op string, y float64) (value.Value, error) {
	var r float64
	switch op {
	case "+":
		r = x + y
	case "-":
		r = x - y
	case "*":
		r = x * y
	case "**":
		if r = math.Pow(x, y); x == 0 && y < 0 || x < 0 && y != math.Trunc(y) {
			return value.Undefined(), fmt.Errorf("%v ** %v is no number", x, y)
		}
	default:
		if y == 0 {
			return value.Undefined(), errors.New("division by zero")
		}
		switch op {
		case "/":
			r = x / y
		case "//":
			r = math.Floor(x / y)
		case "%":
			if r = math.Mod(x, y); r != 0 && (r < 0) != (y < 0) {
				r += y
			}
		}
	}
	return value.FromFloat(r), nil
}

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
