// Package blocks writes norms, gated units, rotary embeddings, attention and recurrences.
package blocks

import (
	"github.com/mojo-patch/mojo-patch/internal/spellings/writer"
	"github.com/mojo-patch/mojo-patch/onnx"
)

// norm holds the data that the writers of norms share.
type norm struct {
	*writer.Writer
	wide      onnx.DataType // of the statistics
	scaleType onnx.DataType
	epsilon   float64
	rank      int
	size      int // of the last axis
}

func newNorm(w *writer.Writer, dims []writer.Dim) norm {
	return norm{w, onnx.Float, w.Type, writer.Choose(w, 1e-5, 1e-6, 1e-3), len(dims), dims[len(dims)-1].Size}
}

// widen casts to the type of the statistics; a cast to the same type may be omitted.
func (n norm) widen(v *onnx.Value) *onnx.Value {
	if n.Half() || n.Chance(4) {
		return n.Cast(v, n.wide)
	}
	return v
}

func (n norm) power(x *onnx.Value) *onnx.Value {
	switch {
	case n.Wrong("cube instead of the square"):
		return n.Op("Pow", x, n.Scalar(n.wide, 3))
	case n.Wrong("magnitude instead of the square"):
		return n.Op("Abs", x)
	case n.Wrong("square of a shifted x"):
		x = n.Op("Add", x, n.Scalar(n.wide, 0.25))
	case n.Wrong("product with the sigmoid instead of the square"):
		return n.Op("Mul", x, n.Op("Sigmoid", x))
	}
	if n.Chance(2) {
		return n.Op("Mul", x, x)
	}
	return n.Op("Pow", x, n.Scalar(writer.Choose(n.Writer, n.wide, n.wide, onnx.Double), 2))
}

// mean returns the mean over the last axis, which is kept.
func (n norm) mean(x *onnx.Value) *onnx.Value {
	last := n.LastAxis(n.rank)
	reduce, over := "ReduceMean", []int64{n.LastAxis(n.rank)}
	switch {
	case n.Wrong("sum instead of the mean"):
		reduce = "ReduceSum"
	case n.Wrong("maximum instead of the mean"):
		reduce = "ReduceMax"
	case n.Wrong("mean over the first axis"):
		over = []int64{0}
	case n.Wrong("mean over all axes"):
		over = nil
	case n.rank > 2 && n.Wrong("mean over the last two axes"):
		over = []int64{-1, -2}
	}
	if n.Wrong("sum over too great a number") {
		return n.Op("Div", n.Reduce("ReduceSum", x, over, true), n.Scalar(n.wide, float64(n.size+1)))
	}
	if n.Change == "" && n.Chance(6) {
		return n.sumOverNumber(x)
	}
	if n.Square && n.Wrong("mean without the axis, broadcast along another") {
		return n.Reduce("ReduceMean", x, over, false)
	}
	if !n.Chance(3) || len(over) != 1 {
		return n.Reduce(reduce, x, over, true)
	}
	if n.Square && n.Wrong("mean put back at another axis") {
		last = 0
	}
	if over[0] == 0 {
		last = 0
	}
	return n.Op("Unsqueeze", n.Reduce(reduce, x, over, false), n.Ints(last))
}

// sumOverNumber writes the mean as a sum and a factor.
func (n norm) sumOverNumber(x *onnx.Value) *onnx.Value {
	keep := n.Chance(2)
	sum := n.Reduce("ReduceSum", x, []int64{n.LastAxis(n.rank)}, keep)
	if n.Chance(2) {
		sum = n.Op("Div", sum, n.Scalar(n.wide, float64(n.size)))
	} else {
		sum = n.Product(sum, n.Scalar(n.wide, 1/float64(n.size)))
	}
	if !keep {
		sum = n.Op("Unsqueeze", sum, n.Ints(n.LastAxis(n.rank)))
	}
	return sum
}

// inverseRoot returns 1 / sqrt(v), or another value under a change.
func (n norm) inverseRoot(v *onnx.Value) *onnx.Value {
	one := func() *onnx.Value { return n.Scalar(n.wide, 1) }
	switch n.Rand.IntN(6) {
	case 0:
		return n.Op("Reciprocal", n.root(v))
	case 1, 2:
		return n.Op("Div", one(), n.root(v))
	case 3:
		return n.Op("Pow", v, n.Scalar(n.wide, -0.5))
	case 4:
		if n.Chance(2) {
			return n.Op("Sqrt", n.Op("Reciprocal", v))
		}
		return n.Op("Sqrt", n.Op("Div", one(), v))
	}
	return n.Op("Pow", n.root(v), n.Scalar(n.wide, -1))
}

func (n norm) root(v *onnx.Value) *onnx.Value {
	if n.Chance(4) {
		return n.Op("Pow", v, n.Scalar(n.wide, 0.5))
	}
	return n.Op("Sqrt", v)
}

// normalize writes x / sqrt(mean(x^2) + epsilon), times scale (in the wide type) unless scale is nil.
func (n norm) normalize(x, scale *onnx.Value) *onnx.Value {
	mean := n.mean(n.power(x))
	eps := n.Scalar(n.wide, n.epsilon)
	switch {
	case n.Wrong("epsilon outside the root"):
		return n.Op("Div", n.scaled(x, scale), n.Sum(n.root(mean), eps))
	case n.Wrong("epsilon outside the inverse"):
		return n.Op("Mul", n.scaled(x, scale), n.Sum(n.Op("Reciprocal", n.root(mean)), eps))
	case n.Wrong("negative epsilon"):
		eps = n.Scalar(n.wide, -n.epsilon)
	case n.Wrong("greatest of mean and epsilon"):
		return n.Op("Div", n.scaled(x, scale), n.root(n.Op("Max", mean, eps)))
	}
	v := n.Sum(mean, eps)
	switch {
	case n.Wrong("no root"):
		return n.Op("Div", n.scaled(x, scale), v)
	case n.Wrong("root of the root"):
		return n.Op("Div", n.scaled(x, scale), n.root(n.root(v)))
	case n.Wrong("times the root"):
		return n.Op("Mul", n.scaled(x, scale), n.root(v))
	case n.Wrong("another numerator"):
		x = n.Op("Tanh", x)
	}
	factors := []*onnx.Value{x}
	if scale != nil {
		factors = append(factors, scale)
	}
	if n.Chance(3) { // divide by the root, whatever the factor
		root := n.root(v)
		if i := n.Rand.IntN(len(factors) + 1); i < len(factors) {
			factors[i] = n.Op("Div", factors[i], root)
			return n.Product(factors...)
		}
		return n.Op("Div", n.Product(factors...), root)
	}
	return n.Product(append(factors, n.inverseRoot(v))...)
}

func (n norm) scaled(x, scale *onnx.Value) *onnx.Value {
	if scale == nil {
		return x
	}
	return n.Product(x, scale)
}

// scaleOf makes the weights, with a wrong shape under a change.
func (n norm) scaleOf(t onnx.DataType, dims []writer.Dim) *onnx.Value {
	last := dims[len(dims)-1].Size
	shape := []int{last}
	switch before := dims[len(dims)-2]; {
	case n.Outside("scale of one element"):
		shape = []int{1}
	case (!n.Symbol || before.Name == "") && n.Outside("scale that differs from row to row"):
		shape = []int{before.Size, last}
	case (!n.Symbol || before.Name == "") && n.Outside("scale of rows"):
		shape = []int{before.Size, 1}
	}
	size := 1
	for _, d := range shape {
		size *= d
	}
	v := make([]float64, size)
	for i := range v {
		v[i] = 0.5 + n.Rand.Float64()
	}
	if len(shape) == 1 && n.Chance(5) { // leading axes of one, as many as fit
		for range n.Rand.IntN(len(dims) - 1) { // leaves room for one more in spread
			shape = append([]int{1}, shape...)
		}
	}
	c := writer.Tensor(t, shape, v)
	c.Name = "scale"
	return n.Model.Graph.AddInitializer(c)
}

// spread returns weights in the block: unchanged, increased by one, or with the axes of x.
func (n norm) spread(scale, x *onnx.Value) *onnx.Value {
	if n.Chance(6) {
		scale = n.Sum(scale, n.Scalar(n.scaleType, 1))
	}
	switch n.Rand.IntN(10) {
	case 0:
		return n.Op("Expand", n.Op("Unsqueeze", scale, n.Ints(0)), n.Op("Shape", x))
	case 1:
		return n.Op("Expand", scale, n.Op("Shape", x))
	}
	return scale
}
