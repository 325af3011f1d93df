package spellings

import "github.com/mojo-patch/mojo-patch/onnx"

// rmsNorm writes the casts around the norm: the scale comes before the cast back, or after it.
func (n norm) rmsNorm(x, scale *onnx.Value, after bool) *onnx.Value {
	xf := n.widen(x)
	if n.wrong("x centred") {
		xf = n.op("Sub", xf, n.reduce("ReduceMean", xf, []int64{-1}, true))
	}
	if n.outside("bias in place of the scale") {
		return n.op("Add", n.cast(scale, n.typ), n.cast(n.normalise(xf, nil), n.typ))
	}
	scale = n.spread(scale, x)
	if !after {
		if n.scaleType != n.wide || n.chance(4) {
			scale = n.cast(scale, n.wide)
		}
		y := n.normalise(xf, scale)
		if n.half() || n.chance(4) {
			y = n.cast(y, n.typ)
		}
		return y
	}
	y := n.normalise(xf, nil)
	if n.half() || n.chance(4) {
		y = n.cast(y, n.typ)
	}
	return n.product(y, scale)
}

func writeRMSNorm(w *writer) []*onnx.Value {
	last := choose(w, 4, 6, 8)
	dims := append(w.rows(1, 3, last), dim{"", last})
	n := w.newNorm(dims)
	x := w.input("x", w.typ, dims)
	after := w.chance(2)
	if !after && w.chance(4) {
		n.scaleType = onnx.Float
	}
	in := w.enter(x, n.scaleOf(n.scaleType, dims))
	return []*onnx.Value{n.rmsNorm(in[0], in[1], after)}
}

func writeAddRMSNorm(w *writer) []*onnx.Value {
	last := choose(w, 4, 6, 8)
	dims := append(w.rows(1, 3, last), dim{"", last})
	n := w.newNorm(dims)
	other := dims
	if !w.symbol && w.wrong("residual of one row") {
		other = append([]dim{}, dims...)
		other[len(dims)-2] = dim{"", 1}
	}
	in := w.enter(w.input("x", w.typ, dims), w.input("residual", w.typ, other), n.scaleOf(w.typ, dims))
	var sum *onnx.Value
	switch {
	case w.wrong("difference in place of the sum"):
		sum = w.op("Sub", in[0], in[1])
	case w.wrong("product in place of the sum"):
		sum = w.op("Mul", in[0], in[1])
	case w.wrong("greatest in place of the sum"):
		sum = w.op("Max", in[0], in[1])
	default:
		sum = w.sum(in[0], in[1])
	}
	if w.opset >= 23 && w.chance(2) {
		return []*onnx.Value{w.op("RMSNormalization", sum, in[2], onnx.FloatAttr("epsilon", float32(n.epsilon))), sum}
	}
	return []*onnx.Value{n.rmsNorm(sum, in[2], w.chance(2)), sum}
}

// writeRMSNormalization writes the op of opset 23.
func writeRMSNormalization(w *writer) []*onnx.Value {
	last := choose(w, 4, 6, 8)
	dims := append(w.rows(1, 3, last), dim{"", last})
	n := w.newNorm(dims)
	in := w.enter(w.input("x", w.typ, dims), n.scaleOf(w.typ, dims))
	attrs := []any{in[0], in[1], onnx.FloatAttr("epsilon", float32(n.epsilon))}
	switch axis := w.lastAxis(len(dims)); {
	case w.square && w.wrong("normalised over two axes"):
		attrs = append(attrs, onnx.IntAttr("axis", -2))
	case w.half() && w.wrong("statistics in the type of x"):
		attrs = append(attrs, onnx.IntAttr("stash_type", int64(w.typ)))
	case axis != -1 || w.chance(2):
		attrs = append(attrs, onnx.IntAttr("axis", axis))
	}
	return []*onnx.Value{w.op("RMSNormalization", attrs...)}
}

// writeLayerNorm writes a LayerNorm, mostly without bias.
func writeLayerNorm(w *writer) []*onnx.Value {
	last := choose(w, 4, 6, 8)
	dims := append(w.rows(1, 3, last), dim{"", last})
	n := w.newNorm(dims)
	read := []*onnx.Value{w.input("x", w.typ, dims), n.scaleOf(w.typ, dims)}
	if w.chance(3) {
		b := tensor(w.typ, []int{last}, make([]float64, last))
		b.Name = "bias"
		read = append(read, w.m.Graph.AddInitializer(b))
	}
	in := w.enter(read...)
	xf := n.widen(in[0])
	centre := n.reduce("ReduceMean", xf, []int64{n.lastAxis(n.rank)}, true)
	switch {
	case w.wrong("centred at the maximum"):
		centre = n.reduce("ReduceMax", xf, []int64{-1}, true)
	case w.wrong("centred along another axis"):
		centre = n.reduce("ReduceMean", xf, []int64{0}, true)
	case w.wrong("mean added"):
		centre = w.op("Neg", centre)
	}
	d := w.op("Sub", xf, centre)
	after := w.chance(2)
	var scale *onnx.Value
	if !after {
		scale = n.widen(n.spread(in[1], in[0]))
	}
	bias := func(y *onnx.Value) *onnx.Value {
		if len(in) == 3 {
			y = w.sum(y, in[2])
		}
		return y
	}
	y := n.normalise(d, scale)
	if w.half() || w.chance(4) {
		y = w.cast(y, w.typ)
	}
	if after {
		y = w.product(y, in[1])
	}
	return []*onnx.Value{bias(y)}
}
