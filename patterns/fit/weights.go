package fit

import (
	"math"
	"slices"

	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/patterns/match"
	"github.com/mojo-patch/mojo-patch/reference"
)

// vector finds the source of the numbers of the channels, of the scale (which is 0) or the bias (1): the side whose
// changes they follow.
func (n *normReader) vector(is []float64, which int) Vector {
	for _, v := range n.vectors() {
		t, ok := n.lab.Shape(v)
		if !ok {
			continue
		}
		other := random(n.rows.channels, 17)
		for c := range other {
			other[c] = 1 + math.Abs(other[c])
		}
		was := n.norm.Centered
		scale, bias, _ := n.measure(values{v: reference.NewFloats(n.g.Facts.DataType(v), t, other)})
		n.norm.Centered = was
		if scale == nil {
			continue
		}
		if follows, factor, offset := affine(other, [][]float64{scale, bias}[which]); follows {
			return Vector{Value: v, Factor: factor, Offset: offset}
		}
	}
	if !slices.ContainsFunc(is, func(x float64) bool { return math.Abs(x-is[0]) > tolerance*math.Abs(is[0]) }) {
		is = []float64{rounded(is[0], is[0])}
	}
	return Vector{Numbers: is}
}

// vectors lists the sides that have a number for each channel, before nodes that only change their shape.
func (n *normReader) vectors() []*onnx.Value {
	var list []*onnx.Value
	for _, v := range n.region.Sides {
		if w := n.vectorOf(v); w != nil && !slices.Contains(list, w) {
			list = append(list, w)
		}
	}
	return list
}

func (n *normReader) vectorOf(v *onnx.Value) (found *onnx.Value) {
	facts := n.g.Facts
	for range match.MaxDetour {
		if v == nil || !facts.DataType(v).IsFloat() {
			break
		}
		rank, ok := facts.Rank(v)
		size := int64(1)
		for axis := range rank {
			d, known := facts.Dim(v, axis)
			size, ok = size*d, ok && known
		}
		if ok && size == int64(n.channels) {
			found = v
		}
		if p := v.Producer; p == nil || v.Graph != n.g.Graph || !keepsElements(p) ||
			match.Widens(facts.DataType(v), facts.DataType(p.Input(0))) { // rounds them
			break
		}
		v = v.Producer.Input(0)
	}
	return found
}

// affine reports whether every element of list is factor*x + offset.
func affine(x, list []float64) (is bool, factor, offset float64) {
	low, high := 0, 0
	for c := range x {
		if x[c] < x[low] {
			low = c
		}
		if x[c] > x[high] {
			high = c
		}
	}
	if len(x) < 2 || x[low] == x[high] {
		return false, 0, 0
	}
	factor = (list[high] - list[low]) / (x[high] - x[low])
	offset = list[low] - factor*x[low]
	want := make([]float64, len(x))
	for c := range x {
		want[c] = factor*x[c] + offset
	}
	g := greatest(list)
	if math.Abs(factor)*(x[high]-x[low]) <= 1e-3*g || !near(list, want, g) {
		return false, 0, 0
	}
	return true, rounded(factor, g), rounded(offset, g)
}

// rounded returns the multiple of 1/16 that x equals within the tolerance, or x.
func rounded(x, beside float64) float64 {
	if short := math.Round(x*16) / 16; math.Abs(x-short) <= tolerance*beside {
		return short
	}
	return x
}

// typed chooses operands whose types the op accepts together; it returns nil if it cannot.
func (n *normReader) typed() *Norm {
	facts, norm := n.g.Facts, n.norm
	y := facts.DataType(norm.Y)
	s := y
	if v := norm.Scale.Value; v != nil {
		s = facts.DataType(v)
		norm.ScaleAfterCast = slices.ContainsFunc(n.Nodes, func(m *onnx.Node) bool {
			return facts.DataType(m.Outputs[0]) != onnx.Float && m.Outputs[0] != norm.Y &&
				slices.ContainsFunc(m.Inputs, func(in *onnx.Value) bool {
					return in != nil && n.isSide(in) && n.vectorOf(in) == v
				})
		}) || n.Result.Producer.OpType != "Cast" && facts.DataType(norm.Y) != onnx.Float
	}
	if norm.Scale.roundedTo(s) {
		if norm.Scale.Wide, s = true, onnx.Float; norm.Centered { // the standard's op takes one type
			return nil
		}
	}
	xs := []*onnx.Value{norm.X}
	if p := norm.X.Producer; p.Is("Cast") && match.Widens(facts.DataType(p.Input(0)), facts.DataType(norm.X)) {
		xs = []*onnx.Value{p.Inputs[0], norm.X}
	}
	for _, x := range xs {
		t := facts.DataType(x)
		for _, after := range []bool{norm.ScaleAfterCast, !norm.ScaleAfterCast} {
			if after && y == s && (t == s || t == onnx.Float) || !after && y == t && (s == t || s == onnx.Float) {
				norm.X, norm.ScaleAfterCast = x, after
				if x != xs[len(xs)-1] {
					norm.Nodes = append(norm.Nodes, n.x.Producer)
				}
				return norm
			}
		}
	}
	return nil
}

// roundedTo reports whether a type would round the numbers of the channels, like half types if rows are multiplied by a
// number that goes into the scale.
func (v *Vector) roundedTo(t onnx.DataType) bool {
	digits := map[onnx.DataType]int{onnx.Float16: 11, onnx.BFloat16: 8}[t]
	numbers := v.Numbers
	if v.Value != nil { // its elements have the type
		numbers, digits = []float64{v.Factor}, min(digits, 1)
	}
	return digits > 0 && slices.ContainsFunc(numbers, func(x float64) bool {
		mantissa, _ := math.Frexp(x)
		whole := math.Ldexp(mantissa, digits)
		return math.Abs(whole-math.Round(whole)) > tolerance*math.Abs(whole)
	})
}
