package spellings

import (
	"math"

	"github.com/mojo-patch/mojo-patch/onnx"
)

// Composed lists kinds whose spellings are not chosen from a list of forms: an identity of algebra writes each step of
// a block's formula, and other identities write its steps in turn. Possibly no exporter ever wrote the result, so a
// pattern need not know it; Pattern is the op that it should become.
func Composed() []Kind {
	return []Kind{
		{composed + "RMSNorm", "RMSNorm", "", 13, writeComposedNorm},
		{composed + "gated unit", "GLU", "", 13, writeComposedGate},
		{composed + "rotary embedding", rotary, "", 13, writeComposedRotary},
		{composed + "router", "TopKRouter", "", 13, writeComposedRouter},
	}
}

const composed = "composed "

// algebra writes functions by identities. They hold in float32, so it only writes float32.
type algebra struct {
	*writer
	rank, size int // of x; size is the size of its last axis
	depth      int // identities within identities
	// anySize means that numbers may have any magnitude, so logarithms are not used for powers: in float32, exp(log(x)
	// / 2) of 1e18 has a relative error of 5e-6, more than the op's rounding, and the check of a site refuses it.
	anySize bool
}

func newAlgebra(w *writer, dims []dim) *algebra {
	return &algebra{writer: w, rank: len(dims), size: dims[len(dims)-1].size}
}

// simply sets the writer as algebra needs it: float32, and no other readers of inner values.
func (w *writer) simply() { w.typ, w.alone = onnx.Float, true }

func (a *algebra) number(x float64) *onnx.Value { return a.floats(onnx.Float, []int{}, []float64{x}) }

// deeper reports whether to insert another identity, less often at greater depth.
func (a *algebra) deeper() bool {
	if a.depth > 3 || a.chance(a.depth+2) {
		return false
	}
	a.depth++
	return true
}

// times multiplies x by a number.
func (a *algebra) times(x *onnx.Value, k float64) *onnx.Value {
	switch a.r.IntN(5) {
	case 0:
		return a.op("Div", x, a.number(1/k))
	case 1: // by parts
		return a.op("Mul", a.op("Mul", x, a.number(k*4)), a.number(0.25))
	case 2: // distributed over a sum
		return a.op("Add", a.op("Mul", x, a.number(k/4)), a.op("Mul", x, a.number(3*k/4)))
	}
	return a.op("Mul", x, a.number(k))
}

// negative returns -x.
func (a *algebra) negative(x *onnx.Value) *onnx.Value {
	switch a.r.IntN(3) {
	case 0:
		return a.op("Neg", x)
	case 1:
		return a.op("Sub", a.number(0), x)
	}
	return a.times(x, -1)
}

// plus adds; it may subtract a negated side.
func (a *algebra) plus(x, y *onnx.Value) *onnx.Value {
	if a.deeper() {
		return a.op("Sub", x, a.negative(y))
	}
	return a.sum(x, y)
}

// square returns x*x.
func (a *algebra) square(x *onnx.Value) *onnx.Value {
	switch a.r.IntN(5) {
	case 0:
		return a.op("Pow", x, a.number(2))
	case 1: // exp(2 log |x|)
		if !a.anySize {
			return a.op("Exp", a.times(a.op("Log", a.op("Abs", x)), 2))
		}
	case 2:
		return a.op("Pow", a.op("Abs", x), a.number(2))
	case 3:
		return a.op("Mul", a.negative(x), a.negative(x))
	}
	return a.op("Mul", x, x)
}

// over returns the sum over the last axis, which is kept.
func (a *algebra) over(x *onnx.Value) *onnx.Value {
	last := []int64{a.lastAxis(a.rank)}
	switch a.r.IntN(5) {
	case 0:
		return a.op("MatMul", x, a.full(1, a.size, 1))
	case 1:
		return a.op("Unsqueeze", a.op("Einsum", x, onnx.StringAttr("equation", "...d->...")), a.ints(-1))
	case 2:
		return a.times(a.reduce("ReduceMean", x, last, true), float64(a.size))
	case 3:
		return a.op("MatMul", x, a.op("Transpose", a.full(1, 1, a.size), onnx.IntsAttr("perm", []int64{1, 0})))
	}
	return a.reduce("ReduceSum", x, last, true)
}

// full returns a constant of one repeated number.
func (a *algebra) full(x float64, dims ...int) *onnx.Value {
	n := 1
	for _, d := range dims {
		n *= d
	}
	v := make([]float64, n)
	for i := range v {
		v[i] = x
	}
	return a.floats(onnx.Float, dims, v)
}

// squares returns the sum of squares over the last axis.
func (a *algebra) squares(x *onnx.Value) *onnx.Value {
	last := []int64{a.lastAxis(a.rank)}
	switch a.r.IntN(6) {
	case 0:
		return a.reduce("ReduceSumSquare", x, last, true)
	case 1:
		return a.square(a.reduce("ReduceL2", x, last, true))
	case 2:
		return a.op("Unsqueeze", a.op("Einsum", x, x, onnx.StringAttr("equation", "...d,...d->...")), a.ints(-1))
	case 3: // a row by a column
		row, column := a.op("Unsqueeze", x, a.ints(-2)), a.op("Unsqueeze", x, a.ints(-1))
		return a.op("Squeeze", a.op("MatMul", row, column), a.ints(-1))
	}
	return a.over(a.square(x))
}

// inverseRoot returns 1 / sqrt(v).
func (a *algebra) inverseRoot(v *onnx.Value) *onnx.Value {
	switch a.r.IntN(6) {
	case 0:
		return a.op("Pow", v, a.number(-0.5))
	case 1: // exp(-log(v) / 2)
		if !a.anySize {
			return a.op("Exp", a.times(a.op("Log", v), -0.5))
		}
	case 2:
		return a.op("Sqrt", a.op("Reciprocal", v))
	case 3:
		return a.op("Div", a.number(1), a.root(v))
	case 4: // the root over v
		return a.op("Div", a.root(v), v)
	}
	return a.op("Reciprocal", a.root(v))
}

func (a *algebra) root(v *onnx.Value) *onnx.Value {
	switch a.r.IntN(4) {
	case 0:
		return a.op("Pow", v, a.number(0.5))
	case 1:
		if !a.anySize {
			return a.op("Exp", a.times(a.op("Log", v), 0.5))
		}
	}
	return a.op("Sqrt", v)
}

func writeComposedNorm(w *writer) []*onnx.Value {
	w.simply()
	last := choose(w, 4, 6, 8)
	dims := append(w.rows(1, 3, last), dim{"", last})
	n := w.newNorm(dims)
	in := w.enter(w.input("x", w.typ, dims), n.scaleOf(w.typ, dims))
	a, x, scale := newAlgebra(w, dims), in[0], in[1]
	a.anySize = true
	epsilon, count := n.epsilon, float64(last)
	switch {
	case a.outside("sum over another number"): // another epsilon, and a factor
		count++
	case a.wrong("negative epsilon"):
		epsilon = -epsilon
	case a.wrong("cube instead of the square"):
		return []*onnx.Value{a.product(x, scale, a.inverseRoot(a.plus(a.times(a.over(a.op("Abs",
			a.op("Mul", a.op("Mul", x, x), x))), 1/count), a.number(epsilon))))}
	case a.outside("x centered"):
		x = a.op("Sub", x, a.times(a.over(x), 1/count))
	case a.wrong("first axis instead of the last"):
		mean := a.reduce("ReduceMean", a.square(x), []int64{0}, true)
		return []*onnx.Value{a.product(x, scale, a.inverseRoot(a.plus(mean, a.number(epsilon))))}
	case a.wrong("epsilon outside the root"):
		return []*onnx.Value{a.product(x, scale, a.op("Reciprocal", a.plus(a.root(a.times(a.squares(x), 1/count)),
			a.number(epsilon))))}
	case a.wrong("greatest of mean and epsilon"):
		return []*onnx.Value{a.product(x, scale, a.inverseRoot(a.op("Max", a.times(a.squares(x), 1/count),
			a.number(epsilon))))}
	}
	factor := 1.0
	var v *onnx.Value
	switch a.r.IntN(4) {
	case 0: // n times the mean, and the epsilon with it
		v, factor = a.plus(a.squares(x), a.number(epsilon*count)), math.Sqrt(count)
	case 1: // of x by a number
		k := choose(w, 0.5, 2, 3)
		v, factor = a.plus(a.times(a.squares(a.times(x, k)), 1/count), a.number(epsilon*k*k)), k
	case 2:
		v = a.plus(a.reduce("ReduceMean", a.square(x), []int64{a.lastAxis(a.rank)}, true), a.number(epsilon))
	default:
		v = a.plus(a.times(a.squares(x), 1/count), a.number(epsilon))
	}
	if a.wrong("times the root") {
		return []*onnx.Value{a.product(x, scale, a.root(v))}
	}
	if factor != 1 { // with x, or with the scale
		if a.chance(2) {
			x = a.times(x, factor)
		} else {
			scale = a.times(scale, factor)
		}
	}
	if a.chance(4) { // the other way to divide
		return []*onnx.Value{a.op("Div", a.product(x, scale), a.root(v))}
	}
	return []*onnx.Value{a.product(x, scale, a.inverseRoot(v))}
}
