package spellings

import "github.com/mojo-patch/mojo-patch/onnx"

// turned moves each channel to its pair, with the sign for the sine: by a product with a matrix, a choice of channels,
// or swapped parts.
func (a *algebra) turned(x *onnx.Value, pairs bool) *onnx.Value {
	n := a.size
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
	case a.wrong("two channels exchanged"): // from two pairs
		i := 1
		if pairs {
			i = 2
		}
		to[0], to[i] = to[i], to[0]
	case a.wrong("the next channel instead of the pair's"):
		for i := range to {
			to[i] = int64((i + 1) % n)
		}
	case a.wrong("one pair not exchanged"):
		to[0] = 0
		to[n-1] = to[1]
	}
	switch a.r.IntN(4) {
	case 0: // a matrix with the signs, or a permutation matrix
		return a.matrix(x, to, sign)
	case 1:
		return a.op("Mul", a.matrix(x, to, ones(n)), a.floats(onnx.Float, []int{n}, sign))
	case 2:
		return a.op("Mul", a.op("Gather", x, a.ints(to...), onnx.IntAttr("axis", a.lastAxis(a.rank))),
			a.floats(onnx.Float, []int{n}, sign))
	}
	before := make([]float64, n) // the signs at the source channels
	for i, j := range to {
		before[j] = sign[i]
	}
	return a.op("Gather", a.op("Mul", x, a.floats(onnx.Float, []int{n}, before)), a.ints(to...),
		onnx.IntAttr("axis", a.lastAxis(a.rank)))
}

func ones(n int) []float64 {
	v := make([]float64, n)
	for i := range v {
		v[i] = 1
	}
	return v
}

// matrix multiplies x by a matrix that reads channel to[i] for channel i, times sign[i].
func (a *algebra) matrix(x *onnx.Value, to []int64, sign []float64) *onnx.Value {
	n := len(to)
	m, t := make([]float64, n*n), make([]float64, n*n)
	for i, j := range to {
		m[int(j)*n+i], t[i*n+int(j)] = sign[i], sign[i]
	}
	switch a.r.IntN(4) {
	case 0:
		return a.op("Einsum", x, a.floats(onnx.Float, []int{n, n}, m), onnx.StringAttr("equation", "...d,de->...e"))
	case 1:
		return a.op("Einsum", a.floats(onnx.Float, []int{n, n}, t), x, onnx.StringAttr("equation", "ed,...d->...e"))
	case 2:
		return a.op("MatMul", x, a.op("Transpose", a.floats(onnx.Float, []int{n, n}, t),
			onnx.IntsAttr("perm", []int64{1, 0})))
	}
	return a.op("MatMul", x, a.floats(onnx.Float, []int{n, n}, m))
}

func writeComposedRotary(w *writer) []*onnx.Value {
	w.simply()
	n := choose(w, 4, 8, 6)
	dims := append(w.rows(2, 3, n), dim{"", n})
	table := []dim{dims[len(dims)-2], {"", n / 2}}
	in := w.enter(w.input("x", w.typ, dims), w.input("angles", w.typ, table))
	a, x := newAlgebra(w, dims), in[0]
	pairs := a.chance(2)
	c := channels{w, 2, n}
	var angles *onnx.Value
	if pairs {
		angles = c.weave(in[1], in[1])
	} else {
		angles = c.join(in[1], in[1])
	}
	cos, sin := a.op("Cos", angles), a.op("Sin", angles)
	switch { // not the tables: the op accepts any
	case a.wrong("x passed through tanh beside the sine"):
		return []*onnx.Value{a.plus(a.product(x, cos), a.product(a.turned(a.op("Tanh", x), pairs), sin))}
	case a.wrong("greater one instead of the sum"):
		return []*onnx.Value{a.op("Max", a.product(x, cos), a.product(a.turned(x, pairs), sin))}
	case a.wrong("product instead of the sum"):
		return []*onnx.Value{a.op("Mul", a.product(x, cos), a.product(a.turned(x, pairs), sin))}
	case a.wrong("magnitude beside the cosine"):
		return []*onnx.Value{a.plus(a.product(a.op("Abs", x), cos), a.product(a.turned(x, pairs), sin))}
	}
	switch a.r.IntN(5) {
	case 0: // the sign is in the table
		y := a.op("Mul", a.turned(x, pairs), a.negative(a.negative(sin)))
		return []*onnx.Value{a.plus(a.product(x, cos), y)}
	case 1: // minus the opposite
		return []*onnx.Value{a.op("Sub", a.product(x, cos), a.product(a.turned(x, pairs), a.negative(sin)))}
	case 2: // the opposite turn of the opposite x
		return []*onnx.Value{a.plus(a.product(x, cos), a.negative(a.product(a.turned(a.negative(x), pairs), sin)))}
	case 3: // numbers before and after
		k := choose(w, 2.0, 0.5)
		x = a.times(x, k)
		return []*onnx.Value{a.times(a.plus(a.product(x, cos), a.product(a.turned(x, pairs), sin)), 1/k)}
	}
	return []*onnx.Value{a.plus(a.product(x, cos), a.product(a.turned(x, pairs), sin))}
}
