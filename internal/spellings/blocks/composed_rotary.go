package blocks

import (
	"github.com/mojo-patch/mojo-patch/internal/spellings/writer"
	"github.com/mojo-patch/mojo-patch/onnx"
)

// turned moves each channel to its pair, with the sign for the sine: by a product with a matrix, a choice of channels,
// or swapped parts.
func turned(a *writer.Algebra, x *onnx.Value, pairs bool) *onnx.Value {
	n := a.Size
	to, sign := make([]int64, n), make([]float64, n) // of each channel: its source, and its sign
	for i := range n {
		switch {
		case pairs && i%2 == 0:
			to[i], sign[i] = int64(i+1), -1
		case pairs:
			to[i], sign[i] = int64(i-1), 1
		case i < n/2:
			to[i], sign[i] = int64(i+n/2), -1
		default:
			to[i], sign[i] = int64(i-n/2), 1
		}
	}
	switch {
	case a.Wrong("two channels exchanged"): // from two pairs
		i := 1
		if pairs {
			i = 2
		}
		to[0], to[i] = to[i], to[0]
	case a.Wrong("the next channel instead of the pair's"):
		for i := range to {
			to[i] = int64((i + 1) % n)
		}
	case a.Wrong("one pair not exchanged"):
		to[0] = 0
		to[n-1] = to[1]
	}
	switch a.Rand.IntN(4) {
	case 0: // a matrix with the signs, or a permutation matrix
		return turning(a, x, to, sign)
	case 1:
		return a.Op("Mul", turning(a, x, to, ones(n)), a.Floats(onnx.Float, []int{n}, sign))
	case 2:
		return a.Op("Mul", a.Op("Gather", x, a.Ints(to...), onnx.IntAttr("axis", a.LastAxis(a.Rank))),
			a.Floats(onnx.Float, []int{n}, sign))
	}
	before := make([]float64, n) // the signs at the source channels
	for i, j := range to {
		before[j] = sign[i]
	}
	return a.Op("Gather", a.Op("Mul", x, a.Floats(onnx.Float, []int{n}, before)), a.Ints(to...),
		onnx.IntAttr("axis", a.LastAxis(a.Rank)))
}

func ones(n int) []float64 {
	v := make([]float64, n)
	for i := range v {
		v[i] = 1
	}
	return v
}

// turning multiplies x by a matrix that reads channel to[i] for channel i, times sign[i].
func turning(a *writer.Algebra, x *onnx.Value, to []int64, sign []float64) *onnx.Value {
	n := len(to)
	m, t := make([]float64, n*n), make([]float64, n*n)
	for i, j := range to {
		m[int(j)*n+i], t[i*n+int(j)] = sign[i], sign[i]
	}
	switch a.Rand.IntN(4) {
	case 0:
		return a.Op("Einsum", x, a.Floats(onnx.Float, []int{n, n}, m), onnx.StringAttr("equation", "...d,de->...e"))
	case 1:
		return a.Op("Einsum", a.Floats(onnx.Float, []int{n, n}, t), x, onnx.StringAttr("equation", "ed,...d->...e"))
	case 2:
		return a.Op("MatMul", x, a.Op("Transpose", a.Floats(onnx.Float, []int{n, n}, t),
			onnx.IntsAttr("perm", []int64{1, 0})))
	}
	return a.Op("MatMul", x, a.Floats(onnx.Float, []int{n, n}, m))
}

// WriteComposedRotary writes a rotary embedding by identities.
func WriteComposedRotary(w *writer.Writer) []*onnx.Value {
	w.Simply()
	n := writer.Choose(w, 4, 8, 6)
	dims := append(w.Rows(2, 3, n), writer.Dim{Name: "", Size: n})
	table := []writer.Dim{dims[len(dims)-2], {Name: "", Size: n / 2}}
	in := w.Enter(w.Input("x", w.Type, dims), w.Input("angles", w.Type, table))
	a, x := writer.NewAlgebra(w, dims), in[0]
	pairs := a.Chance(2)
	c := writer.Channels{Writer: w, Rank: 2, Size: n}
	var angles *onnx.Value
	if pairs {
		angles = c.Weave(in[1], in[1])
	} else {
		angles = c.Join(in[1], in[1])
	}
	cos, sin := a.Op("Cos", angles), a.Op("Sin", angles)
	switch { // not the tables: the op accepts any
	case a.Wrong("x passed through tanh beside the sine"):
		return []*onnx.Value{a.Plus(a.Product(x, cos), a.Product(turned(a, a.Op("Tanh", x), pairs), sin))}
	case a.Wrong("greater one instead of the sum"):
		return []*onnx.Value{a.Op("Max", a.Product(x, cos), a.Product(turned(a, x, pairs), sin))}
	case a.Wrong("product instead of the sum"):
		return []*onnx.Value{a.Op("Mul", a.Product(x, cos), a.Product(turned(a, x, pairs), sin))}
	case a.Wrong("magnitude beside the cosine"):
		return []*onnx.Value{a.Plus(a.Product(a.Op("Abs", x), cos), a.Product(turned(a, x, pairs), sin))}
	}
	switch a.Rand.IntN(5) {
	case 0: // the sign is in the table
		y := a.Op("Mul", turned(a, x, pairs), a.Negative(a.Negative(sin)))
		return []*onnx.Value{a.Plus(a.Product(x, cos), y)}
	case 1: // minus the opposite
		return []*onnx.Value{a.Op("Sub", a.Product(x, cos), a.Product(turned(a, x, pairs), a.Negative(sin)))}
	case 2: // the opposite turn of the opposite x
		return []*onnx.Value{a.Plus(a.Product(x, cos), a.Negative(a.Product(turned(a, a.Negative(x), pairs), sin)))}
	case 3: // numbers before and after
		k := writer.Choose(w, 2.0, 0.5)
		x = a.Times(x, k)
		return []*onnx.Value{a.Times(a.Plus(a.Product(x, cos), a.Product(turned(a, x, pairs), sin)), 1/k)}
	}
	return []*onnx.Value{a.Plus(a.Product(x, cos), a.Product(turned(a, x, pairs), sin))}
}
