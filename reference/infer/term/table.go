package term

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
)

// Number is a plain integer or the handle of an expression. Handles are in [2^52, 2^53), so a float64 holds each
// exactly. They are scattered, so arithmetic that mistakes a handle for a plain number does not lead to another handle.
type Number = int64

const (
	least = Number(1) << 52
	above = Number(1) << 53
	// plain bounds the numbers in expressions. Larger ones mean "to the end" in a Slice.
	plain = Number(1) << 40
)

// variable is a variable of a polynomial.
type variable struct {
	natural bool // it is never negative
	whole   bool // it is an integer
	loose   bool // it is the result of an operation that is not a polynomial
	real    bool // it is a constant
	value   float64
}

// Table holds expressions. It is safe for concurrent use.
type Table struct {
	mu        sync.Mutex
	variables []variable
	byKey     map[string]Number // of named variables, and of polynomials
	polys     map[Number]poly
	// quotients and remainders are the divisions behind variables of these kinds.
	quotients, remainders map[Number]division

	made uint64
}

// NewTable returns a table without expressions.
func NewTable() *Table {
	return &Table{byKey: map[string]Number{}, polys: map[Number]poly{}, quotients: map[Number]division{},
		remainders: map[Number]division{}}
}

// Size returns a new open size, which is nonnegative.
func (t *Table) Size() Number {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.variable(variable{natural: true, whole: true})
}

// Open reports whether n is the handle of an expression.
func (t *Table) Open(n Number) bool {
	if n < least || n >= above {
		return false
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	_, ok := t.polys[n]
	return ok
}

// Loose reports whether n depends on a size by more than sums and products.
func (t *Table) Loose(n Number) bool {
	return t.has(n, func(v variable) bool { return v.loose })
}

// Follows reports whether n depends on a size.
func (t *Table) Follows(n Number) bool {
	return t.has(n, func(v variable) bool { return !v.real })
}

// has reports whether n is an expression with such a variable.
func (t *Table) has(n Number, is func(variable) bool) bool {
	if n < least || n >= above {
		return false
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, m := range t.polys[n] {
		if slices.ContainsFunc(m.variables(), func(v uint32) bool { return is(t.variables[v]) }) {
			return true
		}
	}
	return false
}

// Whole reports whether n is an integer for all sizes.
func (t *Table) Whole(n Number) bool {
	return !t.has(n, func(v variable) bool { return !v.whole })
}

// Result returns the result of an operation that is not a polynomial: the same Number for the same operation on the
// same operands. Roundings down and minima of nonnegative numbers are nonnegative. An operation whose name begins with
// "is" is a comparison.
func (t *Table) Result(op string, operands ...Number) Number {
	negative := func(n Number) bool { return !t.Natural(n) }
	whole := op == "floor" || op == "mod" || strings.HasPrefix(op, "is ") ||
		(op == "min" || op == "max") && !slices.ContainsFunc(operands, func(n Number) bool { return !t.Whole(n) })
	natural := strings.HasPrefix(op, "is ") || op == "mod" ||
		(op == "floor" || op == "min") && !slices.ContainsFunc(operands, negative) ||
		op == "max" && slices.ContainsFunc(operands, t.Natural)
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.result(op, variable{natural: natural, whole: whole, loose: true}, operands)
}

// Dimension returns the nonnegative length of an axis that an operation on such numbers makes: the same Number for the
// same operation.
func (t *Table) Dimension(op string, operands ...Number) Number {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.result("dim "+op, variable{natural: true, whole: true, loose: true}, operands)
}

func (t *Table) result(op string, v variable, operands []Number) Number {
	var b strings.Builder
	b.WriteString(op)
	for _, n := range operands {
		fmt.Fprintf(&b, " %d", n)
	}
	return t.named(b.String(), v)
}

// Real returns the number of a constant.
func (t *Table) Real(x float64) Number {
	if x == math.Trunc(x) && math.Abs(x) < float64(plain) {
		return Number(x)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.named(fmt.Sprintf("real %x", math.Float64bits(x)), variable{real: true, natural: x >= 0, value: x})
}

// Value returns the value of a constant; ok is false if n depends on a size.
func (t *Table) Value(n Number) (x float64, ok bool) {
	if n < least || n >= above {
		return float64(n), true
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	p, open := t.polys[n]
	if !open {
		return float64(n), true
	}
	if len(p) == 1 && p[0].factor == 1 && len(p[0].of) == 4 {
		if v := t.variables[p[0].variables()[0]]; v.real {
			return v.value, true
		}
	}
	return 0, false
}

func (t *Table) named(key string, v variable) Number {
	if n, ok := t.byKey[key]; ok {
		return n
	}
	n := t.variable(v)
	t.byKey[key] = n
	return n
}

func (t *Table) variable(v variable) Number {
	t.variables = append(t.variables, v)
	return t.number(poly{{1, variables(uint32(len(t.variables) - 1))}})
}

// number returns the Number of a polynomial in its normal form.
func (t *Table) number(p poly) Number {
	if n, ok := p.constant(); ok {
		return n
	}
	key := p.key()
	if n, ok := t.byKey[key]; ok {
		return n
	}
	for {
		t.made++
		n := least + Number(scatter(t.made)>>13)
		if _, taken := t.polys[n]; !taken {
			t.byKey[key], t.polys[n] = n, p
			return n
		}
	}
}

// scatter is the output function of splitmix64.
func scatter(x uint64) uint64 {
	x *= 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// of returns the polynomial of n; ok is false if n is not part of expressions.
func (t *Table) of(n Number) (p poly, ok bool) {
	if p, ok = t.polys[n]; ok {
		return p, true
	}
	if n <= -plain || n >= plain {
		return nil, false
	}
	if n == 0 {
		return poly{}, true
	}
	return poly{{n, ""}}, true
}
