package spellings

import "github.com/mojo-patch/mojo-patch/onnx"

// rmsNorm writes the norm with its casts: the scale comes before the cast back, or after it.
func (n norm) rmsNorm(x, scale *onnx.Value, after bool) *onnx.Value {
	xf := n.widen(x)
	if n.wrong("x centered") {
		xf = n.op("Sub", xf, n.reduce("ReduceMean", xf, []int64{-1}, true))
	}
	if n.outside("bias instead of the scale") {
		return n.op("Add", n.cast(scale, n.typ), n.cast(n.normalize(xf, nil), n.typ))
	}
	scale = n.spread(scale, x)
	if !after {
		if n.scaleType != n.wide || n.chance(4) {
			scale = n.cast(scale, n.wide)
		}
		y := n.normalize(xf, scale)
		if n.half() || n.chance(4) {
			y = n.cast(y, n.typ)
		}
		return y
	}
	y := n.normalize(xf, nil)
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
	in := w.enter(w.input("x", w.typ, dims), w.residual(dims), n.scaleOf(w.typ, dims))
	sum := w.residualSum(in[0], in[1])
	if w.opset >= 23 && w.chance(2) {
		return []*onnx.Value{w.op("RMSNormalization", sum, in[2], onnx.FloatAttr("epsilon", float32(n.epsilon))), sum}
	}
	return []*onnx.Value{n.rmsNorm(sum, in[2], w.chance(2)), sum}
}

// residualEdits lists the edits of residual and residualSum.
var residualEdits = []string{"residual of one row", "difference instead of the sum", "product instead of the sum",
	"greatest instead of the sum"}

// residual is an input that is added to x, which has these dimensions.
func (w *writer) residual(dims []dim) *onnx.Value {
	if !w.symbol && w.wrong("residual of one row") {
		dims = append([]dim{}, dims...)
		dims[len(dims)-2] = dim{"", 1}
	}
	return w.input("residual", w.typ, dims)
}

// residualSum writes the sum of x and a residual.
func (w *writer) residualSum(x, residual *onnx.Value) *onnx.Value {
	switch {
	case w.wrong("difference instead of the sum"):
		return w.op("Sub", x, residual)
	case w.wrong("product instead of the sum"):
		return w.op("Mul", x, residual)
	case w.wrong("greatest instead of the sum"):
		return w.op("Max", x, residual)
	}
	return w.sum(x, residual)
}

// writeRMSNormalization writes the op of opset 23.
func writeRMSNormalization(w *writer) []*onnx.Value {
	last := choose(w, 4, 6, 8)
	dims := append(w.rows(1, 3, last), dim{"", last})
	n := w.newNorm(dims)
	in := w.enter(w.input("x", w.typ, dims), n.scaleOf(w.typ, dims))
	attrs := []any{in[0], in[1], onnx.FloatAttr("epsilon", float32(n.epsilon))}
	switch axis := w.lastAxis(len(dims)); {
	case w.square && w.wrong("normalized over two axes"):
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
		read = append(read, w.row("bias", last))
	}
	in := w.enter(read...)
	return []*onnx.Value{n.layerNorm(in[0], in[1:])}
}

// row returns a constant with an element for each channel.
func (w *writer) row(name string, channels int) *onnx.Value {
	values := make([]float64, channels)
	for i := range values {
		values[i] = float64(i%3) / 4
	}
	t := tensor(w.typ, []int{channels}, values)
	t.Name = name
	return w.m.Graph.AddInitializer(t)
}

// layerNorm writes a LayerNorm of x with a scale and, if there is one, a bias.
func (n norm) layerNorm(x *onnx.Value, rows []*onnx.Value) *onnx.Value {
	w := n.writer
	xf := n.widen(x)
	center := n.reduce("ReduceMean", xf, []int64{n.lastAxis(n.rank)}, true)
	switch {
	case w.wrong("centered at the maximum"):
		center = n.reduce("ReduceMax", xf, []int64{-1}, true)
	case w.wrong("centered along another axis"):
		center = n.reduce("ReduceMean", xf, []int64{0}, true)
	case w.wrong("mean added"):
		center = w.op("Neg", center)
	}
	d := w.op("Sub", xf, center)
	after := w.chance(2)
	var scale *onnx.Value
	if !after {
		scale = n.widen(n.spread(rows[0], x))
	}
	y := n.normalize(d, scale)
	if w.half() || w.chance(4) {
		y = w.cast(y, w.typ)
	}
	if after {
		y = w.product(y, rows[0])
	}
	if len(rows) > 1 {
		y = w.sum(y, rows[1])
	}
	return y
}

// writeAddLayerNorm writes a residual addition, perhaps with a bias on x, and the sum's LayerNorm.
func writeAddLayerNorm(w *writer) []*onnx.Value {
	last := choose(w, 4, 6, 8)
	dims := append(w.rows(1, 3, last), dim{"", last})
	n := w.newNorm(dims)
	in := w.enter(w.input("x", w.typ, dims), w.residual(dims), n.scaleOf(w.typ, dims),
		w.row("bias", last), w.row("x_bias", last))
	x := in[0]
	if w.chance(2) {
		x = w.sum(x, in[4])
	}
	sum := w.residualSum(x, in[1])
	if w.opset < 17 || w.chance(3) {
		return []*onnx.Value{n.layerNorm(sum, in[2:4]), sum}
	}
	rows := []any{sum, in[2], in[3], onnx.FloatAttr("epsilon", float32(n.epsilon))}
	if w.square && w.wrong("normalized over two axes") {
		rows = append(rows, onnx.IntAttr("axis", -2))
	}
	return []*onnx.Value{w.op("LayerNormalization", rows...), sum}
}
