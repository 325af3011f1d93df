package linear

import (
	"cmp"
	"math"
	"slices"

	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/reference"
)

// Tables of a half type hold powers of a factor that are each rounded, so they are not powers of one number. The
// rounding of each power leaves a range for the rate of its head; rates in all these ranges are what was rounded.

// powers is a constant of a half type with an axis of heads.
type powers struct {
	v           *onnx.Value
	t           *reference.Tensor
	inner       int           // elements of a head in a row
	logs        float64       // 1 or -1: the numbers are the rates, or the rates negated; 0: they are powers
	place, head []int         // of each element
	steps       map[int]int64 // the exponent at each place
}

// maxSlack bounds the error of a rate that is read from products of a few rounded powers of float16.
const maxSlack = 0x1p-9

// ranges are the lowest and the highest rate of each head.
type ranges struct{ low, high []float64 }

// narrow keeps the part of a head's range that is within bounds, and reports whether there is any.
func (r *ranges) narrow(h int, a, b float64) bool {
	r.low[h], r.high[h] = max(r.low[h], min(a, b)), min(r.high[h], max(a, b))
	return r.low[h] <= r.high[h]
}

// unrounds searches for rates near the estimated ones, and for powers of them that become the constants which the nodes
// read if they are rounded. It sets both.
func (s *span) unrounds() bool {
	var tables []*powers
	r := &ranges{}
	for _, x := range s.rates {
		slack := math.Abs(x)/16 + maxSlack
		r.low, r.high = append(r.low, x-slack), append(r.high, min(x+slack, 0))
	}
	for _, v := range s.constants() {
		t, err := reference.FromONNX(v.Constant())
		if err != nil || !s.budget.Spend(8*t.Len()) {
			return false
		}
		if p := s.powersIn(v, t, r); p != nil {
			tables = append(tables, p)
		}
	}
	if len(tables) == 0 || !s.ranged(tables, r) {
		return false
	}
	for h := range s.rates {
		s.rates[h] = (r.low[h] + r.high[h]) / 2
	}
	s.intended = map[*onnx.Value]*reference.Tensor{}
	for _, p := range tables {
		t := p.unrounded(s.rates)
		if !isRounding(t, p.t) {
			return false
		}
		s.intended[p.v] = t
	}
	return true
}

// constants lists the constants of half types before the results that may have an element for each head. Some are read
// by nodes that the op does not replace, such as those of a state that others read too.
func (s *span) constants() (list []*onnx.Value) {
	open, seen := []*onnx.Value{s.rows}, map[*onnx.Value]bool{}
	if s.present != nil {
		open = append(open, s.present)
	}
	for at := 0; at < len(open) && at < 4*maxSpan && s.budget.Spend(2); at++ {
		v := open[at]
		switch c := v.Constant(); {
		case seen[v] || v == s.past || slices.Contains(s.given, v):
		case c != nil && c.DataType.IsHalf() && int(c.Len()) >= s.heads:
			list = append(list, v)
		case c == nil && v.Producer != nil && v.Producer.Graph == s.g.Graph && !isSize(v.Producer):
			open = append(open, s.operands(v.Producer)...)
		}
		seen[v] = true
	}
	return list
}

// powersIn returns the table that a constant may be, with the axis of the heads, or nil.
func (s *span) powersIn(v *onnx.Value, t *reference.Tensor, r *ranges) *powers {
	if slices.ContainsFunc(t.F, func(x float64) bool { return math.IsNaN(x) || math.IsInf(x, 0) }) {
		return nil
	}
	inner := t.Len()
	for _, d := range t.Shape {
		if inner /= max(d, 1); d != s.heads {
			continue
		}
		p := &powers{v: v, t: t, inner: inner, steps: map[int]int64{}}
		for i := range t.F {
			p.head = append(p.head, i/inner%s.heads)
			p.place = append(p.place, i/(inner*s.heads)*inner+i%inner)
		}
		for _, sign := range []float64{1, -1} {
			if !slices.ContainsFunc(p.elements(), func(i int) bool {
				x, h, d := sign*t.F[i], p.head[i], halfStep(t.DataType, t.F[i])
				return x >= 0 || x < r.low[h]-d || x > r.high[h]+d
			}) {
				p.logs = sign
				return p
			}
		}
		if !slices.ContainsFunc(t.F, func(x float64) bool { return x < 0 || x > 1 }) {
			return p
		}
	}
	return nil
}

// elements lists all elements, those that tell their exponent best first.
func (p *powers) elements() []int {
	list := make([]int, len(p.t.F))
	for i := range list {
		list[i] = i
	}
	slices.SortStableFunc(list, func(i, j int) int { return -cmp.Compare(p.t.F[i], p.t.F[j]) })
	return list
}

// ranged narrows the ranges of the rates by all tables until each exponent is known. Powers near 1 tell theirs from an
// estimate, and the range that is left tells those of smaller ones.
func (s *span) ranged(tables []*powers, r *ranges) bool {
	for _, p := range tables {
		for i, x := range p.t.F {
			if d := halfStep(p.t.DataType, x); p.logs != 0 && !r.narrow(p.head[i], p.logs*(x-d), p.logs*(x+d)) {
				return false
			}
		}
	}
	for before := -1; ; {
		open := 0
		for _, p := range tables {
			n, ok := p.narrows(r)
			if !ok || !s.budget.Spend(4*p.t.Len()) {
				return false
			}
			open += n
		}
		if open == 0 || open == before {
			return open == 0
		}
		before = open
	}
}

// narrows narrows the ranges by the powers of a table whose exponents are clear, and returns how many are not. It
// reports false if no rate has such powers.
func (p *powers) narrows(r *ranges) (open int, ok bool) {
	if p.logs != 0 {
		return 0, true
	}
	for _, i := range p.elements() {
		x, h := p.t.F[i], p.head[i]
		if x == 0 { // masked, or too small for the type
			continue
		}
		d := halfStep(p.t.DataType, x)
		low, high := math.Log(x-d), math.Log(x+d)
		n, known := p.steps[p.place[i]]
		if !known {
			// Rates are negative, so the steps are between the quotients.
			least, most := math.Ceil(max(0, high/r.low[h])), math.Inf(1)
			if r.high[h] < 0 {
				most = math.Floor(low / r.high[h])
			}
			switch {
			case least > most:
				return 0, false
			case least < most:
				open++
				continue
			}
			n = int64(least)
			p.steps[p.place[i]] = n
		}
		if n == 0 && (low > 0 || high < 0) || n != 0 && !r.narrow(h, low/float64(n), high/float64(n)) {
			return 0, false
		}
	}
	return open, true
}

// unrounded returns the numbers that were rounded, for these rates.
func (p *powers) unrounded(rates []float64) *reference.Tensor {
	list := slices.Clone(p.t.F)
	for i, x := range list {
		rate := rates[p.head[i]]
		n, known := p.steps[p.place[i]]
		switch power := math.Exp(rate * float64(n)); {
		case p.logs != 0:
			list[i] = p.logs * rate
		case known && (x != 0 || power <= halfStep(p.t.DataType, 0)):
			list[i] = power
		}
	}
	return reference.NewFloats(p.t.DataType, p.t.Shape, list)
}

// isRounding reports whether numbers become others if they are rounded to their type.
func isRounding(t, rounded *reference.Tensor) bool {
	c, err := t.ToONNX("")
	if err != nil {
		return false
	}
	back, err := reference.FromONNX(c)
	return err == nil && slices.Equal(back.F, rounded.F)
}

// halfStep returns half the distance of neighbors of a number in a half type.
func halfStep(t onnx.DataType, x float64) float64 {
	bits, least := 11, -24
	if t == onnx.BFloat16 {
		bits, least = 8, -133
	}
	if x == 0 {
		return math.Ldexp(1, least-1)
	}
	_, exponent := math.Frexp(x)
	return math.Ldexp(1, max(exponent-bits, least)-1)
}
