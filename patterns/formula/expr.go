package formula

import (
	"fmt"
	"math"
	"math/big"
	"slices"
	"strings"

	"github.com/mojo-patch/mojo-patch/onnx"
)

// An Expr is a formula. A Reader makes one Expr for all equal formulas.
type Expr struct {
	id      int
	op      string
	args    []*Expr
	value   Value      // of op value
	node    *onnx.Node // that computes it, or nil
	integer bool       // integer division
	table   *table     // of op lookup
	what    string     // of op unknown: the reason; else the name of the value read
	read    LeafReader // of op element
}

// Sum returns the sum that the formula is; ok is false if it is not a sum.
func (e *Expr) Sum() (*Sum, bool) {
	if e.op != opValue {
		return nil, false
	}
	return e.value.asSum()
}

// The ops of formulas besides standard ones.
const (
	opValue   = "value"
	opLookup  = "lookup" // of a table, at the args
	opElement = "element"
	opTrunc   = "trunc"
	opUnknown = "unknown"
)

// Value evaluates a formula in this case. It returns an *UnknownError if it cannot.
func (c *Case) Value(e *Expr) (Value, error) {
	if v, ok := c.values[e]; ok {
		return v, nil
	}
	if c.prover.steps++; c.prover.steps > maxSteps {
		return Value{}, &UnknownError{What: "it takes too many steps"}
	}
	if !c.prover.spend(valueSteps) {
		return Value{}, &UnknownError{What: spent}
	}
	v, err := c.evaluate(e)
	if err != nil {
		if u, ok := err.(*UnknownError); ok && u.Node == nil {
			u.Node = e.node
		}
		return Value{}, err
	}
	c.values[e] = v
	return v, nil
}

// true reports whether a Boolean formula is true.
func (c *Case) true(e *Expr) (bool, error) {
	v, err := c.Value(e)
	if err != nil {
		return false, err
	}
	if v.Sum != nil {
		zero, err := c.IsZero(v.Sum)
		return !zero, err
	}
	return v.Number != 0, nil
}

func truth(is bool, err error) (Value, error) {
	if is {
		return Value{Number: 1}, err
	}
	return Value{}, err
}

func (c *Case) evaluate(e *Expr) (Value, error) {
	switch e.op {
	case opValue:
		return e.value, nil
	case opUnknown:
		return Value{}, &UnknownError{e.node, e.what}
	case "Where":
		is, err := c.true(e.args[0])
		if err != nil {
			return Value{}, err
		}
		if is {
			return c.Value(e.args[1])
		}
		return c.Value(e.args[2])
	case "And", "Or":
		for _, a := range e.args {
			if is, err := c.true(a); err != nil || is != (e.op == "And") {
				return truth(is, err)
			}
		}
		return truth(e.op == "And", nil)
	case "Not":
		is, err := c.true(e.args[0])
		return truth(!is, err)
	case "Xor":
		a, err := c.true(e.args[0])
		if err != nil {
			return Value{}, err
		}
		b, err := c.true(e.args[1])
		return truth(a != b, err)
	}
	values := make([]Value, len(e.args))
	for i, a := range e.args {
		v, err := c.Value(a)
		if err != nil {
			return Value{}, err
		}
		values[i] = v
	}
	switch e.op {
	case opLookup:
		return c.lookup(e, values)
	case opElement:
		return c.element(e, values)
	}
	return c.operate(e, values)
}

// A LeafReader returns the variable for an element of a leaf, or nil.
type LeafReader func(at []*Sum) *Var

// element returns an element of a leaf: 0, 1, or another sum.
func (c *Case) element(e *Expr, at []Value) (Value, error) {
	sums := make([]*Sum, len(at))
	for i, v := range at {
		s, ok := v.asSum()
		if !ok {
			return Value{}, &UnknownError{e.node, fmt.Sprintf("%q is read at an index that is not a number", e.what)}
		}
		sums[i] = s
	}
	v := e.read(sums)
	if v == nil {
		return Value{}, &UnknownError{e.node, fmt.Sprintf("it reads another element of %q", e.what)}
	}
	for _, n := range []int64{0, 1} {
		if is, err := c.IsZero(Of(v).Minus(Number(n))); err != nil || is {
			return Value{Number: float64(n)}, err
		}
	}
	return Value{Sum: Of(v)}, nil
}

// unary are the functions of one number.
var unary = map[string]func(float64) float64{"Exp": math.Exp, "Log": math.Log, "Sqrt": math.Sqrt, "Tanh": math.Tanh,
	"Sin": math.Sin, "Cos": math.Cos, "Floor": math.Floor, "Ceil": math.Ceil, "Round": math.RoundToEven,
	"Reciprocal": func(x float64) float64 { return 1 / x }, opTrunc: math.Trunc,
	"Sigmoid": func(x float64) float64 { return 1 / (1 + math.Exp(-x)) }}

// operate evaluates an op that needs all its arguments.
func (c *Case) operate(e *Expr, v []Value) (Value, error) {
	switch e.op {
	case "Add", "Sub", "Mul", "Div", "Mod", "Pow":
		return c.arithmetic(e, v[0], v[1])
	case "Neg":
		return c.arithmetic(&Expr{op: "Sub", node: e.node}, Value{}, v[0])
	case "Min", "Max", "Sum":
		best := v[0]
		for _, x := range v[1:] {
			var err error
			if e.op == "Sum" {
				best, err = c.arithmetic(&Expr{op: "Add", node: e.node}, best, x)
			} else {
				less, always := c.always(x, best)
				if more, is := c.always(best, x); !always && is {
					less, always = !more, true
				}
				if !always {
					less, err = c.atMost(x, best)
				}
				if err == nil && less == (e.op == "Min") {
					best = x
				}
			}
			if err != nil {
				return Value{}, err
			}
		}
		return best, nil
	case "Less", "Greater":
		a, b := v[0], v[1]
		if e.op == "Less" {
			a, b = b, a
		}
		is, err := c.atMost(a, b)
		if isNaN(a) || isNaN(b) {
			is = true
		}
		return truth(!is, err)
	case "LessOrEqual":
		return truth(c.atMost(v[0], v[1]))
	case "GreaterOrEqual":
		return truth(c.atMost(v[1], v[0]))
	case "Equal":
		return truth(c.equal(v[0], v[1]))
	case "Abs":
		negative, err := c.atMost(v[0], Value{})
		if err != nil || !negative {
			return v[0], err
		}
		return c.arithmetic(&Expr{op: "Sub", node: e.node}, Value{}, v[0])
	case "Relu":
		negative, err := c.atMost(v[0], Value{})
		if err != nil || negative {
			return Value{}, err
		}
		return v[0], nil
	case "Sign":
		if most, err := c.atMost(v[0], Value{}); err != nil || !most {
			return Value{Number: 1}, err
		}
		zero, err := c.equal(v[0], Value{})
		if zero {
			return Value{}, err
		}
		return Value{Number: -1}, err
	case "IsNaN":
		return truth(isNaN(v[0]), nil)
	case "IsInf":
		return truth(v[0].Sum == nil && math.IsInf(v[0].Number, 0), nil)
	}
	f := unary[e.op]
	switch {
	case f != nil && v[0].Sum == nil:
		return Value{Number: f(v[0].Number)}, nil
	case e.op == "Floor" || e.op == "Ceil" || e.op == opTrunc:
		return c.rounded(e, v[0].Sum)
	}
	return Value{}, &UnknownError{e.node, "its result is not a sum of positions and lengths"}
}

func isNaN(v Value) bool { return v.Sum == nil && math.IsNaN(v.Number) }

// atMost reports whether a is not greater than b.
func (c *Case) atMost(a, b Value) (bool, error) {
	if a.Sum == nil && b.Sum == nil {
		return a.Number <= b.Number, nil
	}
	x, ok := a.asSum()
	if !ok { // an infinity compared with a sum
		return math.IsInf(a.Number, -1), nil
	}
	y, ok := b.asSum()
	if !ok {
		return math.IsInf(b.Number, 1), nil
	}
	return c.AtMostZero(x.Minus(y))
}

// always reports whether a is known to be at most b; then is and ok are true.
func (c *Case) always(a, b Value) (is, ok bool) {
	x, first := a.asSum()
	y, second := b.asSum()
	if !first || !second {
		return false, false
	}
	is = c.holds(x.Minus(y))
	return is, is
}

func (c *Case) equal(a, b Value) (bool, error) {
	if a.Sum == nil && b.Sum == nil {
		return a.Number == b.Number, nil
	}
	x, ok := a.asSum()
	y, is := b.asSum()
	if !ok || !is {
		return false, nil
	}
	return c.IsZero(x.Minus(y))
}

// arithmetic evaluates an op of two values.
func (c *Case) arithmetic(e *Expr, a, b Value) (Value, error) {
	if a.Sum == nil && b.Sum == nil {
		return numbers(e, a.Number, b.Number)
	}
	x, ok := a.asSum()
	y, is := b.asSum()
	if !ok || !is { // a sum is finite
		switch {
		case e.op == "Add" && !ok, e.op == "Sub" && !ok:
			return a, nil
		case e.op == "Add":
			return b, nil
		case e.op == "Sub":
			return Value{Number: -b.Number}, nil
		}
		return Value{}, &UnknownError{e.node, "it computes with infinities"}
	}
	switch e.op {
	case "Add":
		return valueOf(x.Plus(y)), nil
	case "Sub":
		return valueOf(x.Minus(y)), nil
	case "Mul":
		if p, ok := x.product(y); ok {
			return valueOf(p), nil
		}
	case "Div":
		if n, ok := y.constant(); ok && n.Sign() != 0 {
			q := x.scaled(new(big.Rat).Inv(n))
			switch {
			case q.integral() && x.integral():
				return valueOf(q), nil
			case e.integer:
				return c.rounded(&Expr{op: opTrunc, node: e.node}, q)
			case exact(n):
				return valueOf(q), nil
			}
		} else if p, ok := ratio(x, y); ok {
			return valueOf(p), nil
		} else if q, _, ok := c.divided(x, y); ok && e.integer {
			return valueOf(q), nil
		}
	case "Mod":
		if n, ok := y.Int(); ok && n > 0 && x.integral() {
			q, err := c.quotient(x, n)
			if err != nil {
				return Value{}, err
			}
			return valueOf(x.Minus(q.Times(n))), nil
		}
		if _, rest, ok := c.divided(x, y); ok {
			return valueOf(rest), nil
		}
	case "Pow":
		if n, ok := y.Int(); ok && n == 1 {
			return a, nil
		} else if ok && n == 2 {
			if p, ok := x.product(x); ok {
				return valueOf(p), nil
			}
		}
	}
	return Value{}, &UnknownError{e.node, "its result is not a sum of positions and lengths"}
}

// divided divides sums of places and sizes, such as counted elements, if in this case the rest is at least 0 and less
// than the divisor.
func (c *Case) divided(x, y *Sum) (quotient, rest *Sum, ok bool) {
	for _, d := range y.terms {
		if len(d.vars) != 1 || d.n.Cmp(big.NewRat(1, 1)) != 0 {
			continue
		}
		var list []term
		for _, t := range x.terms {
			if i := slices.Index(t.vars, d.vars[0]); i >= 0 {
				list = append(list, term{slices.Delete(slices.Clone(t.vars), i, i+1), t.n})
			}
		}
		q := collected(list)
		p, ok := q.product(y)
		if !ok || !q.integral() {
			continue
		}
		rest := x.Minus(p)
		if c.holds(rest.Times(-1)) && c.holds(rest.Minus(y).Plus(Number(1))) {
			return q, rest, true
		}
	}
	return nil, nil, false
}

// exact reports whether n is a power of two, so that dividing positions by it does not round in float32.
func exact(n *big.Rat) bool {
	x, ok := n.Float64()
	frac, _ := math.Frexp(x)
	return ok && math.Abs(frac) == 0.5 && math.Abs(x) <= 1<<20
}

// ratio divides sums without a remainder.
func ratio(x, y *Sum) (*Sum, bool) {
	if x.Equal(y) { // sizes that a graph divides by are greater than 0
		return Number(1), true
	}
	if len(y.terms) != 1 {
		return nil, false
	}
	d := y.terms[0]
	var list []term
	for _, t := range x.terms {
		rest := append([]*Var{}, t.vars...)
		for _, v := range d.vars {
			found := false
			for i, w := range rest {
				if w == v {
					rest, found = append(rest[:i:i], rest[i+1:]...), true
					break
				}
			}
			if !found {
				return nil, false
			}
		}
		list = append(list, term{rest, new(big.Rat).Quo(t.n, d.n)})
	}
	q := collected(list)
	return q, q.integral()
}

// numbers evaluates an op of two numbers.
func numbers(e *Expr, a, b float64) (Value, error) {
	x := 0.0
	switch e.op {
	case "Add":
		x = a + b
	case "Sub":
		x = a - b
	case "Mul":
		x = a * b
	case "Div":
		if x = a / b; e.integer {
			x = math.Trunc(x)
		}
	case "Pow":
		x = math.Pow(a, b)
	case "Mod":
		if x = math.Mod(a, b); e.integer && x != 0 && (x < 0) != (b < 0) {
			x += b
		}
	}
	if e.integer && (math.IsNaN(x) || math.Abs(x) > 1<<53) {
		return Value{}, &UnknownError{e.node, "it computes with integers that are too large"}
	}
	return Value{Number: x}, nil
}

// rounded rounds a sum to an integer.
func (c *Case) rounded(e *Expr, s *Sum) (Value, error) {
	if s.integral() {
		return valueOf(s), nil
	}
	up := e.op == "Ceil"
	if e.op == opTrunc {
		negative, err := c.AtMostZero(s)
		if err != nil {
			return Value{}, err
		}
		up = negative
	}
	if up {
		s = s.Times(-1)
	}
	by := big.NewInt(1)
	for _, t := range s.terms {
		by.Mul(by, new(big.Int).Div(t.n.Denom(), new(big.Int).GCD(nil, nil, by, t.n.Denom())))
	}
	if !by.IsInt64() || by.Int64() > 1<<20 {
		return Value{}, &UnknownError{e.node, "it rounds a division by a number that is too large"}
	}
	q, err := c.quotient(s.Times(by.Int64()), by.Int64())
	if err != nil {
		return Value{}, err
	}
	if up {
		q = q.Times(-1)
	}
	return valueOf(q), nil
}

// quotient returns the floor of a division of integers.
func (c *Case) quotient(s *Sum, by int64) (*Sum, error) {
	key := fmt.Sprint(s.Key(), "/", by)
	v := c.prover.quotients[key]
	if v == nil {
		if c.prover.quotients == nil {
			c.prover.quotients = map[string]*Var{}
		}
		v = c.prover.newVar(fmt.Sprintf("floor((%s)/%d)", s, by))
		v.quotient, v.by = s, by
		c.prover.quotients[key] = v
	}
	return Of(v), nil
}

func (e *Expr) key() string {
	var b strings.Builder
	fmt.Fprint(&b, e.op, e.integer, e.what, e.value.Number)
	if e.value.Sum != nil {
		b.WriteString(e.value.Sum.Key())
	}
	if e.table != nil || e.op == opUnknown {
		fmt.Fprintf(&b, "%p%p", e.table, e.node)
	}
	for _, a := range e.args {
		fmt.Fprintf(&b, ",%d", a.id)
	}
	return b.String()
}
