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
