package blocks

import (
	"math"

	"github.com/mojo-patch/mojo-patch/internal/spellings/writer"
	"github.com/mojo-patch/mojo-patch/onnx"
)

// WriteComposedNorm writes an RMSNorm by identities.
func WriteComposedNorm(w *writer.Writer) []*onnx.Value {
	w.Simply()
	last := writer.Choose(w, 4, 6, 8)
	dims := append(w.Rows(1, 3, last), writer.Dim{Name: "", Size: last})
	n := newNorm(w, dims)
	in := w.Enter(w.Input("x", w.Type, dims), n.scaleOf(w.Type, dims))
	a, x, scale := writer.NewAlgebra(w, dims), in[0], in[1]
	a.AnySize = true
	epsilon, count := n.epsilon, float64(last)
	switch {
	case a.Outside("sum over another number"): // another epsilon, and a factor
		count++
	case a.Wrong("negative epsilon"):
		epsilon = -epsilon
	case a.Wrong("cube instead of the square"):
		return []*onnx.Value{a.Product(x, scale, a.InverseRoot(a.Plus(a.Times(a.Over(a.Op("Abs",
			a.Op("Mul", a.Op("Mul", x, x), x))), 1/count), a.Number(epsilon))))}
	case a.Outside("x centered"):
		x = a.Op("Sub", x, a.Times(a.Over(x), 1/count))
	case a.Wrong("first axis instead of the last"):
		mean := a.Reduce("ReduceMean", a.Square(x), []int64{0}, true)
		return []*onnx.Value{a.Product(x, scale, a.InverseRoot(a.Plus(mean, a.Number(epsilon))))}
	case a.Wrong("epsilon outside the root"):
		return []*onnx.Value{a.Product(x, scale, a.Op("Reciprocal", a.Plus(a.Root(a.Times(a.Squares(x), 1/count)),
			a.Number(epsilon))))}
	case a.Wrong("greatest of mean and epsilon"):
		return []*onnx.Value{a.Product(x, scale, a.InverseRoot(a.Op("Max", a.Times(a.Squares(x), 1/count),
			a.Number(epsilon))))}
	}
	factor := 1.0
	var v *onnx.Value
	switch a.Rand.IntN(4) {
	case 0: // n times the mean, and the epsilon with it
		v, factor = a.Plus(a.Squares(x), a.Number(epsilon*count)), math.Sqrt(count)
	case 1: // of x by a number
		k := writer.Choose(w, 0.5, 2, 3)
		v, factor = a.Plus(a.Times(a.Squares(a.Times(x, k)), 1/count), a.Number(epsilon*k*k)), k
	case 2:
		v = a.Plus(a.Reduce("ReduceMean", a.Square(x), []int64{a.LastAxis(a.Rank)}, true), a.Number(epsilon))
	default:
		v = a.Plus(a.Times(a.Squares(x), 1/count), a.Number(epsilon))
	}
	if a.Wrong("times the root") {
		return []*onnx.Value{a.Product(x, scale, a.Root(v))}
	}
	if factor != 1 { // with x, or with the scale
		if a.Chance(2) {
			x = a.Times(x, factor)
		} else {
			scale = a.Times(scale, factor)
		}
	}
	if a.Chance(4) { // the other way to divide
		return []*onnx.Value{a.Op("Div", a.Product(x, scale), a.Root(v))}
	}
	return []*onnx.Value{a.Product(x, scale, a.InverseRoot(v))}
}
