package formula

import (
	"fmt"
	"math"
	"math/big"
	"slices"

	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/patterns/match"
)

// UnknownError is the error for a formula that cannot be evaluated.
type UnknownError struct {
	Node *onnx.Node // whose computation is not followed, or nil
	What string
}

func (e *UnknownError) Error() string {
	if e.Node == nil {
		return e.What
	}
	return fmt.Sprintf("node %q (%s): %s", e.Node.Label(), e.Node.OpType, e.What)
}

// maxCases bounds the cases of one proof, and maxSteps the evaluated expressions in all of them.
const (
	maxCases = 1 << 10
	maxSteps = 1 << 16
)

// Costs in steps of a budget: to read or evaluate an element or a formula, and to compare a condition with another one.
const (
	valueSteps = 32
	rowSteps   = 16
)

// spent is the reason if the budget is spent.
const spent = "the search stopped at its limit of steps"

// A Prover evaluates formulas in all cases that the conditions on their variables allow.
type Prover struct {
	Budget *match.Budget // if nil, only the bounds of this package apply

	rows      []row
	vars      int
	quotients map[string]*Var // by the division
	steps     int
}

// spend takes steps of the budget and reports whether the search may go on.
func (p *Prover) spend(steps int) bool { return p.Budget == nil || p.Budget.Spend(steps) }

func (p *Prover) newVar(name string) *Var {
	p.vars++
	return &Var{name: name, id: p.vars}
}

// Integer returns a new variable.
func (p *Prover) Integer(name string) *Var { return p.newVar(name) }

// Natural returns a new variable that is at least 0.
func (p *Prover) Natural(name string) *Var {
	v := p.newVar(name)
	v.natural = true
	return v
}

// Truth returns a new variable that is 0 or 1.
func (p *Prover) Truth(name string) *Var {
	v := p.newVar(name)
	v.truth = true
	return v
}

// AtLeast assumes that a is at least b.
func (p *Prover) AtLeast(a, b *Sum) {
	if r, ok := atMostZero(b.Minus(a)); ok {
		p.rows = append(p.rows, r)
	}
}

// Cases calls visit for each case until it returns an error, which Cases returns. In equal cases, visit must evaluate
// the same formulas in the same order.
func (p *Prover) Cases(visit func(c *Case) error) error {
	var choices []bool
	for range maxCases {
		c := &Case{prover: p, choices: choices, values: map[*Expr]Value{}, vars: map[*Var]bool{}}
		if err := visit(c); err != nil {
			return err
		}
		i := len(c.choices) - 1
		for i >= 0 && !c.choices[i] {
			i--
		}
		if i < 0 {
			return nil
		}
		choices = append(slices.Clone(c.choices[:i]), false)
	}
	return &UnknownError{What: "there are too many cases"}
}

// Assuming is Cases under the condition that some sums are at most 0. If this is impossible, it visits no case.
func (p *Prover) Assuming(none []*Sum, visit func(c *Case) error) error {
	rows := p.rows
	defer func() { p.rows = rows }()
	for _, s := range none {
		p.AtLeast(&Sum{}, s)
	}
	c := &Case{prover: p, vars: map[*Var]bool{}}
	for _, s := range none {
		c.assume(s)
	}
	if contradictory(slices.Concat(p.rows, c.rows)) {
		return nil
	}
	return p.Cases(visit)
}

// Only evaluates formulas that have a single case. It returns an error if there are several.
func (p *Prover) Only(list ...*Expr) ([]Value, error) {
	var values []Value
	n := 0
	err := p.Cases(func(c *Case) error {
		if n++; n > 1 {
			return &UnknownError{What: "it depends on sizes by more than sums"}
		}
		values = values[:0]
		for _, e := range list {
			v, err := c.Value(e)
			if err != nil {
				return err
			}
			values = append(values, v)
		}
		return nil
	})
	return values, err
}

// A Case is one case of a proof.
type Case struct {
	prover  *Prover
	rows    []row
	vars    map[*Var]bool // whose conditions are in rows
	choices []bool        // results of the undecided comparisons, true first
	used    int
	values  map[*Expr]Value
}

// A Value is a number or, if Sum is not nil, a sum that is not constant.
type Value struct {
	Number float64
	Sum    *Sum
}

// valueOf returns a sum as a value.
func valueOf(s *Sum) Value {
	if n, ok := s.constant(); ok {
		x, _ := n.Float64()
		return Value{Number: x}
	}
	return Value{Sum: s}
}

// asSum returns a finite value as a sum.
func (v Value) asSum() (*Sum, bool) {
	if v.Sum != nil {
		return v.Sum, true
	}
	if math.IsInf(v.Number, 0) || math.IsNaN(v.Number) {
		return nil, false
	}
	return constantSum(new(big.Rat).SetFloat64(v.Number)), true
}

// AtMostZero reports whether a sum is at most 0 in this case. It returns an error if its numbers are too large.
func (c *Case) AtMostZero(s *Sum) (bool, error) {
	if n, ok := s.constant(); ok {
		return n.Sign() <= 0, nil
	}
	if negative, ok := decided(s); ok {
		return negative, nil
	}
	r, ok := atMostZero(s)
	if !ok {
		return false, &UnknownError{What: "it compares with numbers that are too large"}
	}
	c.assume(s)
	switch {
	case c.excludes(r.opposite()):
		return true, nil
	case c.excludes(r):
		return false, nil
	}
	if c.used == len(c.choices) {
		c.choices = append(c.choices, true)
	}
	yes := c.choices[c.used]
	c.used++
	if !yes {
		r = r.opposite()
	}
	c.rows = append(c.rows, r)
	return yes, nil
}

// holds reports whether a sum is known to be at most 0 in this case.
func (c *Case) holds(s *Sum) bool {
	if n, ok := s.constant(); ok {
		return n.Sign() <= 0
	}
	if negative, ok := decided(s); ok {
		return negative
	}
	r, ok := atMostZero(s)
	if !ok {
		return false
	}
	c.assume(s)
	return c.excludes(r.opposite())
}

// excludes reports whether a condition cannot hold in this case.
func (c *Case) excludes(r row) bool {
	return c.prover.spend(rowSteps*(1+len(c.prover.rows)+len(c.rows))) &&
		contradictory(append(slices.Concat(c.prover.rows, c.rows), r))
}

// assume adds the conditions that the variables of a sum always satisfy.
func (c *Case) assume(s *Sum) {
	for _, t := range s.terms {
		natural := len(t.vars) > 1
		for _, v := range t.vars {
			natural = natural && v.natural
			if c.vars[v] {
				continue
			}
			c.vars[v] = true
			var list []*Sum // each is at most 0
			if v.natural || v.truth {
				list = append(list, Of(v).Times(-1))
			}
			if v.truth {
				list = append(list, Of(v).Minus(Number(1)))
			}
			if v.quotient != nil {
				c.assume(v.quotient)
				whole := Of(v).Times(v.by)
				list = append(list, whole.Minus(v.quotient), v.quotient.Minus(whole).Minus(Number(v.by-1)))
			}
			for _, s := range list {
				if r, ok := atMostZero(s); ok {
					c.rows = append(c.rows, r)
				}
			}
		}
		if natural { // a product of sizes is at least 0
			if r, ok := atMostZero(&Sum{[]term{{t.vars, big.NewRat(-1, 1)}}}); ok {
				c.rows = append(c.rows, r)
			}
		}
	}
}

// IsZero reports whether a sum is 0 in this case. It returns an error like AtMostZero.
func (c *Case) IsZero(s *Sum) (bool, error) {
	if n, ok := s.constant(); ok {
		return n.Sign() == 0, nil
	}
	if is, err := c.AtMostZero(s); err != nil || !is {
		return false, err
	}
	return c.AtMostZero(s.Times(-1))
}
