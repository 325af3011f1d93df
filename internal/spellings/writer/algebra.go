package writer

import (
	"math"

	"github.com/mojo-patch/mojo-patch/onnx"
)

// Algebra writes functions by identities. They hold in float32, so it only writes float32.
type Algebra struct {
	*Writer
	Rank, Size int // of x; size is the size of its last axis
	depth      int // identities within identities
	// AnySize means that numbers may have any magnitude, so logarithms are not used for powers: in float32, exp(log(x)
	// / 2) of 1e18 has a relative error of 5e-6, more than the op's rounding, and the check of a site refuses it.
	AnySize bool
}

// NewAlgebra returns the algebra of a value with these dimensions.
func NewAlgebra(w *Writer, dims []Dim) *Algebra {
	return &Algebra{Writer: w, Rank: len(dims), Size: dims[len(dims)-1].Size}
}

// Simply sets the writer as algebra needs it: float32, and no other readers of inner values.
func (w *Writer) Simply() { w.Type, w.Alone = onnx.Float, true }

// Number writes a constant of one number.
func (a *Algebra) Number(x float64) *onnx.Value { return a.Floats(onnx.Float, []int{}, []float64{x}) }

// deeper reports whether to insert another identity, less often at greater depth.
func (a *Algebra) deeper() bool {
	if a.depth > 3 || a.Chance(a.depth+2) {
		return false
	}
	a.depth++
	return true
}

// Times multiplies x by a number.
func (a *Algebra) Times(x *onnx.Value, k float64) *onnx.Value {
	switch a.Rand.IntN(5) {
	case 0:
		return a.Op("Div", x, a.Number(1/k))
	case 1: // by parts
		return a.Op("Mul", a.Op("Mul", x, a.Number(k*4)), a.Number(0.25))
	case 2: // distributed over a sum
		return a.Op("Add", a.Op("Mul", x, a.Number(k/4)), a.Op("Mul", x, a.Number(3*k/4)))
	}
	return a.Op("Mul", x, a.Number(k))
}

// Negative returns -x.
func (a *Algebra) Negative(x *onnx.Value) *onnx.Value {
	switch a.Rand.IntN(3) {
	case 0:
		return a.Op("Neg", x)
	case 1:
		return a.Op("Sub", a.Number(0), x)
	}
	return a.Times(x, -1)
}

// Plus adds; it may subtract a negated side.
func (a *Algebra) Plus(x, y *onnx.Value) *onnx.Value {
	if a.deeper() {
		return a.Op("Sub", x, a.Negative(y))
	}
	return a.Sum(x, y)
}

// Square returns x*x.
func (a *Algebra) Square(x *onnx.Value) *onnx.Value {
	switch a.Rand.IntN(5) {
	case 0:
		return a.Op("Pow", x, a.Number(2))
	case 1: // exp(2 log |x|)
		if !a.AnySize {
			return a.Op("Exp", a.Times(a.Op("Log", a.Op("Abs", x)), 2))
		}
	case 2:
		return a.Op("Pow", a.Op("Abs", x), a.Number(2))
	case 3:
		return a.Op("Mul", a.Negative(x), a.Negative(x))
	}
	return a.Op("Mul", x, x)
}

// Over returns the sum over the last axis, which is kept.
func (a *Algebra) Over(x *onnx.Value) *onnx.Value {
	last := []int64{a.LastAxis(a.Rank)}
	switch a.Rand.IntN(5) {
	case 0:
		return a.Op("MatMul", x, a.full(1, a.Size, 1))
	case 1:
		return a.Op("Unsqueeze", a.Op("Einsum", x, onnx.StringAttr("equation", "...d->...")), a.Ints(-1))
	case 2:
		return a.Times(a.Reduce("ReduceMean", x, last, true), float64(a.Size))
	case 3:
		return a.Op("MatMul", x, a.Op("Transpose", a.full(1, 1, a.Size), onnx.IntsAttr("perm", []int64{1, 0})))
	}
	return a.Reduce("ReduceSum", x, last, true)
}

// full returns a constant of one repeated number.
func (a *Algebra) full(x float64, dims ...int) *onnx.Value {
	n := 1
	for _, d := range dims {
		n *= d
	}
	v := make([]float64, n)
	for i := range v {
		v[i] = x
	}
	return a.Floats(onnx.Float, dims, v)
}

// Squares returns the sum of squares over the last axis.
func (a *Algebra) Squares(x *onnx.Value) *onnx.Value {
	last := []int64{a.LastAxis(a.Rank)}
	switch a.Rand.IntN(6) {
	case 0:
		return a.Reduce("ReduceSumSquare", x, last, true)
	case 1:
		return a.Square(a.Reduce("ReduceL2", x, last, true))
	case 2:
		return a.Op("Unsqueeze", a.Op("Einsum", x, x, onnx.StringAttr("equation", "...d,...d->...")), a.Ints(-1))
	case 3: // a row by a column
		row, column := a.Op("Unsqueeze", x, a.Ints(-2)), a.Op("Unsqueeze", x, a.Ints(-1))
		return a.Op("Squeeze", a.Op("MatMul", row, column), a.Ints(-1))
	}
	return a.Over(a.Square(x))
}

// InverseRoot returns 1 / sqrt(v).
func (a *Algebra) InverseRoot(v *onnx.Value) *onnx.Value {
	switch a.Rand.IntN(6) {
	case 0:
		return a.Op("Pow", v, a.Number(-0.5))
	case 1: // exp(-log(v) / 2)
		if !a.AnySize {
			return a.Op("Exp", a.Times(a.Op("Log", v), -0.5))
		}
	case 2:
		return a.Op("Sqrt", a.Op("Reciprocal", v))
	case 3:
		return a.Op("Div", a.Number(1), a.Root(v))
	case 4: // the root over v
		return a.Op("Div", a.Root(v), v)
	}
	return a.Op("Reciprocal", a.Root(v))
}

// Root returns sqrt(v).
func (a *Algebra) Root(v *onnx.Value) *onnx.Value {
	switch a.Rand.IntN(4) {
	case 0:
		return a.Op("Pow", v, a.Number(0.5))
	case 1:
		if !a.AnySize {
			return a.Op("Exp", a.Times(a.Op("Log", v), 0.5))
		}
	}
	return a.Op("Sqrt", v)
}

// Logistic returns 1 / (1 + exp(-x)).
func (a *Algebra) Logistic(x *onnx.Value) *onnx.Value {
	switch a.Rand.IntN(7) {
	case 0: // (1 + tanh(x/2)) / 2
		return a.Times(a.Plus(a.Op("Tanh", a.Times(x, 0.5)), a.Number(1)), 0.5)
	case 1: // the first of a softmax of x and 0
		nothing := a.Op("Mul", x, a.Number(0))
		pair := a.Op("Concat", a.Op("Unsqueeze", x, a.Ints(-1)), a.Op("Unsqueeze", nothing, a.Ints(-1)),
			onnx.IntAttr("axis", -1))
		return a.Op("Gather", a.Op("Softmax", pair, onnx.IntAttr("axis", -1)), a.Constant(ScalarInt(0)),
			onnx.IntAttr("axis", -1))
	case 2:
		return a.Op("Exp", a.Negative(a.Op("Softplus", a.Negative(x))))
	case 3: // 1 - logistic(-x)
		if a.deeper() {
			return a.Op("Sub", a.Number(1), a.Logistic(a.Negative(x)))
		}
	case 4:
		return a.Op("Reciprocal", a.Plus(a.Op("Exp", a.Negative(x)), a.Number(1)))
	case 5:
		return a.Op("Div", a.Number(1), a.Plus(a.Number(1), a.Op("Exp", a.Negative(x))))
	}
	return a.Op("Sigmoid", x)
}

// tangent returns tanh(x).
func (a *Algebra) tangent(x *onnx.Value) *onnx.Value {
	if a.Chance(3) {
		return a.Op("Sub", a.Times(a.Logistic(a.Times(x, 2)), 2), a.Number(1))
	}
	return a.Op("Tanh", x)
}

// Normal returns the normal distribution function, or GELU's approximation of it.
func (a *Algebra) Normal(x *onnx.Value, tanh bool) *onnx.Value {
	outer, inner := math.Sqrt(2/math.Pi), 0.044715
	if !tanh {
		argument := math.Sqrt2 / 2
		if a.Wrong("another factor within erf") {
			argument = 0.75
		}
		return a.Times(a.Plus(a.Op("Erf", a.Times(x, argument)), a.Number(1)), 0.5)
	}
	switch {
	case a.Wrong("another factor before tanh"):
		outer = 0.85
	case a.Wrong("another factor of the cube"):
		inner = 0.0715
	}
	var y *onnx.Value
	if a.Chance(2) { // x (1 + 0.04 x^2)
		y = a.Times(a.Op("Mul", x, a.Plus(a.Times(a.Square(x), inner), a.Number(1))), outer)
	} else {
		y = a.Times(a.Plus(x, a.Times(a.Product(x, x, x), inner)), outer)
	}
	if a.Chance(2) {
		return a.Logistic(a.Times(y, 2))
	}
	return a.Times(a.Plus(a.tangent(y), a.Number(1)), 0.5)
}

// Softened returns the softmax over the last axis.
func (a *Algebra) Softened(x *onnx.Value) *onnx.Value {
	last := []int64{a.LastAxis(2)}
	switch a.Rand.IntN(5) {
	case 0:
		return a.Op("Exp", a.Op("LogSoftmax", x, onnx.IntAttr("axis", -1)))
	case 1:
		e := a.Op("Exp", a.Op("Sub", x, a.Reduce("ReduceMax", x, last, true)))
		if a.Chance(2) {
			return a.Op("Mul", e, a.Op("Reciprocal", a.Over(e)))
		}
		return a.Op("Div", e, a.Over(e))
	case 2: // exp(x - log(sum(exp(x))))
		return a.Op("Exp", a.Op("Sub", x, a.Reduce("ReduceLogSumExp", x, last, true)))
	case 3: // of x minus any number
		return a.Op("Softmax", a.Op("Sub", x, a.Reduce("ReduceMean", x, last, true)), onnx.IntAttr("axis", -1))
	}
	return a.Op("Softmax", x, onnx.IntAttr("axis", -1))
}
