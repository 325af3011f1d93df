package spellings

import "github.com/mojo-patch/mojo-patch/onnx"

// rows draws the dimensions before the last one.
func (w *writer) rows(least, most, last int) []dim {
	names := []string{"batch", "heads", "seq"}
	n := least + w.r.IntN(most-least+1)
	dims := make([]dim, n)
	for i := range dims {
		dims[i] = dim{names[i], 2 + w.r.IntN(3)}
		if w.square {
			dims[i].size = last
		}
	}
	return dims
}

// norm holds the data that the writers of norms share.
type norm struct {
	*writer
	wide      onnx.DataType // of the statistics
	scaleType onnx.DataType
	epsilon   float64
	rank      int
	size      int // of the last axis
}

func (w *writer) newNorm(dims []dim) norm {
	return norm{w, onnx.Float, w.typ, choose(w, 1e-5, 1e-6, 1e-3), len(dims), dims[len(dims)-1].size}
}

// widen casts to the type of the statistics; a cast to the same type may be omitted.
func (n norm) widen(v *onnx.Value) *onnx.Value {
	if n.half() || n.chance(4) {
		return n.cast(v, n.wide)
	}
	return v
}

func (n norm) power(x *onnx.Value) *onnx.Value {
	switch {
	case n.wrong("cube instead of the square"):
		return n.op("Pow", x, n.scalar(n.wide, 3))
	case n.wrong("magnitude instead of the square"):
		return n.op("Abs", x)
	case n.wrong("square of a shifted x"):
		x = n.op("Add", x, n.scalar(n.wide, 0.25))
	case n.wrong("product with the sigmoid instead of the square"):
		return n.op("Mul", x, n.op("Sigmoid", x))
	}
	if n.chance(2) {
		return n.op("Mul", x, x)
	}
	return n.op("Pow", x, n.scalar(choose(n.writer, n.wide, n.wide, onnx.Double), 2))
}

// mean returns the mean over the last axis, which is kept.
func (n norm) mean(x *onnx.Value) *onnx.Value {
	last := n.lastAxis(n.rank)
	reduce, over := "ReduceMean", []int64{n.lastAxis(n.rank)}
	switch {
	case n.wrong("sum instead of the mean"):
		reduce = "ReduceSum"
	case n.wrong("maximum instead of the mean"):
		reduce = "ReduceMax"
	case n.wrong("mean over the first axis"):
		over = []int64{0}
	case n.wrong("mean over all axes"):
		over = nil
	case n.rank > 2 && n.wrong("mean over the last two axes"):
		over = []int64{-1, -2}
	}
	if n.wrong("sum over too great a number") {
		return n.op("Div", n.reduce("ReduceSum", x, over, true), n.scalar(n.wide, float64(n.size+1)))
	}
	if n.change == "" && n.chance(6) {
		return n.sumOverNumber(x)
	}
	if n.square && n.wrong("mean without the axis, broadcast along another") {
		return n.reduce("ReduceMean", x, over, false)
	}
	if !n.chance(3) || len(over) != 1 {
		return n.reduce(reduce, x, over, true)
	}
	if n.square && n.wrong("mean put back at another axis") {
		last = 0
	}
	if over[0] == 0 {
		last = 0
	}
	return n.op("Unsqueeze", n.reduce(reduce, x, over, false), n.ints(last))
}

// sumOverNumber writes the mean as a sum and a factor.
func (n norm) sumOverNumber(x *onnx.Value) *onnx.Value {
	keep := n.chance(2)
	sum := n.reduce("ReduceSum", x, []int64{n.lastAxis(n.rank)}, keep)
	if n.chance(2) {
		sum = n.op("Div", sum, n.scalar(n.wide, float64(n.size)))
	} else {
		sum = n.product(sum, n.scalar(n.wide, 1/float64(n.size)))
	}
	if !keep {
		sum = n.op("Unsqueeze", sum, n.ints(n.lastAxis(n.rank)))
	}
	return sum
}

func (w *writer) lastAxis(rank int) int64 { return choose(w, -1, int64(rank)-1) }

// reduce writes axes as an attribute or an input, depending on the opset; nil means all axes.
func (w *writer) reduce(op string, x *onnx.Value, axes []int64, keep bool) *onnx.Value {
	args := []any{x}
	old := w.opset < 18 && op != "ReduceSum"
	switch {
	case axes == nil:
	case old:
		args = append(args, onnx.IntsAttr("axes", axes))
	default:
		args = append(args, w.ints(axes...))
	}
	if !keep {
		args = append(args, onnx.IntAttr("keepdims", 0))
	} else if w.chance(2) {
		args = append(args, onnx.IntAttr("keepdims", 1))
	}
	return w.op(op, args...)
}

// inverseRoot returns 1 / sqrt(v), or another value under a change.
func (n norm) inverseRoot(v *onnx.Value) *onnx.Value {
	one := func() *onnx.Value { return n.scalar(n.wide, 1) }
	switch n.r.IntN(6) {
	case 0:
		return n.op("Reciprocal", n.root(v))
	case 1, 2:
		return n.op("Div", one(), n.root(v))
	case 3:
		return n.op("Pow", v, n.scalar(n.wide, -0.5))
	case 4:
		if n.chance(2) {
			return n.op("Sqrt", n.op("Reciprocal", v))
		}
		return n.op("Sqrt", n.op("Div", one(), v))
	}
	return n.op("Pow", n.root(v), n.scalar(n.wide, -1))
}

func (n norm) root(v *onnx.Value) *onnx.Value {
	if n.chance(4) {
		return n.op("Pow", v, n.scalar(n.wide, 0.5))
	}
	return n.op("Sqrt", v)
}

// normalize writes x / sqrt(mean(x^2) + epsilon), times scale (in the wide type) unless scale is nil.
func (n norm) normalize(x, scale *onnx.Value) *onnx.Value {
	mean := n.mean(n.power(x))
	eps := n.scalar(n.wide, n.epsilon)
	switch {
	case n.wrong("epsilon outside the root"):
		return n.op("Div", n.scaled(x, scale), n.sum(n.root(mean), eps))
	case n.wrong("epsilon outside the inverse"):
		return n.op("Mul", n.scaled(x, scale), n.sum(n.op("Reciprocal", n.root(mean)), eps))
	case n.wrong("negative epsilon"):
		eps = n.scalar(n.wide, -n.epsilon)
	case n.wrong("greatest of mean and epsilon"):
		return n.op("Div", n.scaled(x, scale), n.root(n.op("Max", mean, eps)))
	}
	v := n.sum(mean, eps)
	switch {
	case n.wrong("no root"):
		return n.op("Div", n.scaled(x, scale), v)
	case n.wrong("root of the root"):
		return n.op("Div", n.scaled(x, scale), n.root(n.root(v)))
	case n.wrong("times the root"):
		return n.op("Mul", n.scaled(x, scale), n.root(v))
	case n.wrong("another numerator"):
		x = n.op("Tanh", x)
	}
	factors := []*onnx.Value{x}
	if scale != nil {
		factors = append(factors, scale)
	}
	if n.chance(3) { // divide by the root, whatever the factor
		root := n.root(v)
		if i := n.r.IntN(len(factors) + 1); i < len(factors) {
			factors[i] = n.op("Div", factors[i], root)
			return n.product(factors...)
		}
		return n.op("Div", n.product(factors...), root)
	}
	return n.product(append(factors, n.inverseRoot(v))...)
}

func (n norm) scaled(x, scale *onnx.Value) *onnx.Value {
	if scale == nil {
		return x
	}
	return n.product(x, scale)
}

// scaleOf makes the weights, with a wrong shape under a change.
func (n norm) scaleOf(t onnx.DataType, dims []dim) *onnx.Value {
	last := dims[len(dims)-1].size
	shape := []int{last}
	switch before := dims[len(dims)-2]; {
	case n.outside("scale of one element"):
		shape = []int{1}
	case (!n.symbol || before.name == "") && n.outside("scale that differs from row to row"):
		shape = []int{before.size, last}
	case (!n.symbol || before.name == "") && n.outside("scale of rows"):
		shape = []int{before.size, 1}
	}
	size := 1
	for _, d := range shape {
		size *= d
	}
	v := make([]float64, size)
	for i := range v {
		v[i] = 0.5 + n.r.Float64()
	}
	if len(shape) == 1 && n.chance(5) { // leading axes of one, as many as fit
		for range n.r.IntN(len(dims) - 1) { // leaves room for one more in spread
			shape = append([]int{1}, shape...)
		}
	}
	c := tensor(t, shape, v)
	c.Name = "scale"
	return n.m.Graph.AddInitializer(c)
}

// spread returns weights in the block: unchanged, increased by one, or with the axes of x.
func (n norm) spread(scale, x *onnx.Value) *onnx.Value {
	if n.chance(6) {
		scale = n.sum(scale, n.scalar(n.scaleType, 1))
	}
	switch n.r.IntN(10) {
	case 0:
		return n.op("Expand", n.op("Unsqueeze", scale, n.ints(0)), n.op("Shape", x))
	case 1:
		return n.op("Expand", scale, n.op("Shape", x))
	}
	return scale
}
