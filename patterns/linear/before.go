package linear

import (
	"math"
	"math/rand/v2"
	"slices"

	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/patterns/match"
	"github.com/mojo-patch/mojo-patch/patterns/probe"
	"github.com/mojo-patch/mojo-patch/reference"
)

const (
	maxBefore  = 12 // values before an operand
	maxBetween = 24 // nodes between these and the operand
)

// source is the only value that an operand is computed from.
type source struct {
	operand
	norm    bool    // divided by the length of each head
	epsilon float64 // under the square root
	scale   float64
}

// widen moves the nodes before queries, keys, values and gates into the op: orders of axes, repeated heads, the scale
// of queries, and the division by the length if queries and keys have it.
func (s *span) widen() {
	qs, ks := s.sources(s.q, true), s.sources(s.k, true)
	best := func(list []source, norm bool, epsilon float64, scales bool) *source {
		for i, x := range slices.Backward(list) {
			if x.norm == norm && (!norm || float32(x.epsilon) == float32(epsilon)) && (scales || x.scale == 1) {
				return &list[i]
			}
		}
		return nil
	}
	q, k := best(qs, false, 0, true), best(ks, false, 0, false)
	for _, x := range slices.Backward(ks) {
		if !x.norm || x.scale != 1 {
			continue
		}
		if with := best(qs, true, x.epsilon, true); with != nil {
			q, k, s.norm, s.epsilon = with, &x, true, x.epsilon
			break
		}
	}
	if q != nil {
		s.q = &q.operand
		s.scale *= q.scale
	}
	if k != nil {
		s.k = &k.operand
	}
	for _, o := range []**operand{&s.v, &s.decay, &s.beta, &s.skip} {
		if *o == nil {
			continue
		}
		for _, x := range slices.Backward(s.sources(*o, false)) {
			if x.scale == 1 {
				*o = &x.operand
				break
			}
		}
	}
}

// sources lists the values that an operand can be read from, the nearest first. shared allows fewer heads.
func (s *span) sources(o *operand, shared bool) (list []source) {
	for _, v := range s.before(o.Value) {
		width := s.width(v)
		if width == 0 || width%o.width != 0 || s.g.Facts.DataType(v) != s.g.Facts.DataType(o.Value) {
			continue
		}
		heads := width / o.width
		if heads != o.heads && (!shared || o.heads%heads != 0) {
			continue
		}
		for _, l := range layouts {
			from := s.operand(v, l, heads)
			if from == nil {
				continue
			}
			if x := s.reads(o, from); x != nil {
				list = append(list, *x)
				break
			}
		}
	}
	return list
}

// before lists the values that are the only one v is computed from, the nearest first.
func (s *span) before(v *onnx.Value) (list []*onnx.Value) {
	open := []*onnx.Value{v}
	for range maxBetween {
		slices.SortFunc(open, func(a, b *onnx.Value) int { return s.position(b) - s.position(a) })
		n := open[0].Producer
		if n == nil || n.Graph != s.g.Graph || s.others.Have(n) || n.IsProduct() || n.IsRandom() ||
			len(n.Subgraphs()) > 0 || !s.budget.Spend(8) {
			break
		}
		open = slices.DeleteFunc(open, func(v *onnx.Value) bool { return v.Producer == n })
		for _, in := range s.operands(n) {
			if s.g.IsData(in) && !slices.Contains(open, in) {
				open = append(open, in)
			}
		}
		if len(open) == 0 || len(list) == maxBefore {
			break
		}
		if len(open) == 1 {
			list = append(list, open[0])
		}
	}
	return list
}

// reads runs the nodes between two values, and compares the rows of the first with the rows of the second.
func (s *span) reads(o, from *operand) *source {
	lab := probe.NewLab(s.g, 4*maxBetween, s.budget)
	shape, ok := lab.Shape(from.Value)
	if !ok {
		return nil
	}
	r := s.newRun(0)
	list := magnitudes(from, match.Elements(shape))
	given := probe.Values{from.Value: reference.NewFloats(s.g.Facts.DataType(from.Value), shape, list)}
	got, err := lab.Run(given, knownSizes(lab), o.Value)
	if err != nil || len(got[0].F) != r.batch*r.tokens*o.heads*o.width {
		return nil
	}
	r.of[o.Value], r.of[from.Value] = got[0].F, list
	y, x := o.in(r), from.in(r)
	rows := len(y) / o.width
	times, squares := make([]float64, rows), make([]float64, rows)
	for i := range rows {
		head := i % o.heads * from.heads / o.heads
		at := (i/o.heads*from.heads + head) * o.width
		a, b := y[i*o.width:(i+1)*o.width], x[at:at+o.width]
		squares[i] = dot(b, b)
		times[i] = dot(a, b) / squares[i]
		for j := range a {
			if !(math.Abs(a[j]-times[i]*b[j]) <= agree*math.Abs(a[j])) {
				return nil
			}
		}
	}
	out := &source{operand: *from, scale: times[0]}
	if evenly(times, func(i int) float64 { return times[0] }) {
		out.scale = rounded(out.scale)
		return out
	}
	return out.lengths(times, squares)
}

// magnitudes returns numbers whose rows have squares from far below a usual epsilon to 1.
func magnitudes(o *operand, n int) []float64 {
	list := normal(rand.New(rand.NewPCG(13, 3)), n)
	row := 0
	for i := range list {
		if i%o.width == 0 {
			row++
		}
		list[i] *= []float64{1, 1e-2, 1e-4}[row%3]
	}
	return list
}

// lengths reads the scale and the epsilon of rows divided by their lengths: 1/times^2 is (squares + epsilon)/scale^2.
func (x *source) lengths(times, squares []float64) *source {
	least, most := 0, 0
	for i, q := range squares {
		if q < squares[least] {
			least = i
		}
		if q > squares[most] {
			most = i
		}
	}
	inverse := func(i int) float64 { return 1 / (times[i] * times[i]) }
	slope := (inverse(most) - inverse(least)) / (squares[most] - squares[least])
	x.norm, x.scale = true, rounded(math.Copysign(1/math.Sqrt(slope), times[most]))
	if x.epsilon = inverse(least)/slope - squares[least]; x.epsilon < 0 {
		return nil
	}
	if !evenly(times, func(i int) float64 { return x.scale / math.Sqrt(squares[i]+x.epsilon) }) {
		return nil
	}
	return x
}

// evenly reports whether all numbers are as expected.
func evenly(list []float64, want func(i int) float64) bool {
	for i, x := range list {
		if w := want(i); !(math.Abs(x-w) <= agree*math.Abs(w)) {
			return false
		}
	}
	return true
}

// rounded returns 1 for a number that is 1 except for rounding.
func rounded(x float64) float64 {
	if math.Abs(x-1) < agree {
		return 1
	}
	return x
}
