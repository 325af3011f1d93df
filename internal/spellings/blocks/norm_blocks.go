package blocks

import (
	"github.com/mojo-patch/mojo-patch/internal/spellings/writer"
	"github.com/mojo-patch/mojo-patch/onnx"
)

// rmsNorm writes the norm with its casts: the scale comes before the cast back, or after it.
func (n norm) rmsNorm(x, scale *onnx.Value, after bool) *onnx.Value {
	xf := n.widen(x)
	if n.Wrong("x centered") {
		xf = n.Op("Sub", xf, n.Reduce("ReduceMean", xf, []int64{-1}, true))
	}
	if n.Outside("bias instead of the scale") {
		return n.Op("Add", n.Cast(scale, n.Type), n.Cast(n.normalize(xf, nil), n.Type))
	}
	scale = n.spread(scale, x)
	if !after {
		if n.scaleType != n.wide || n.Chance(4) {
			scale = n.Cast(scale, n.wide)
		}
		y := n.normalize(xf, scale)
		if n.Half() || n.Chance(4) {
			y = n.Cast(y, n.Type)
		}
		return y
	}
	y := n.normalize(xf, nil)
	if n.Half() || n.Chance(4) {
		y = n.Cast(y, n.Type)
	}
	return n.Product(y, scale)
}

// WriteRMSNorm writes an RMSNorm of the last axis.
func WriteRMSNorm(w *writer.Writer) []*onnx.Value {
	last := writer.Choose(w, 4, 6, 8)
	dims := append(w.Rows(1, 3, last), writer.Dim{Name: "", Size: last})
	n := newNorm(w, dims)
	x := w.Input("x", w.Type, dims)
	after := w.Chance(2)
	if !after && w.Chance(4) {
		n.scaleType = onnx.Float
	}
	in := w.Enter(x, n.scaleOf(n.scaleType, dims))
	return []*onnx.Value{n.rmsNorm(in[0], in[1], after)}
}

// WriteAddRMSNorm writes the RMSNorm of a sum, which is a second result.
func WriteAddRMSNorm(w *writer.Writer) []*onnx.Value {
	last := writer.Choose(w, 4, 6, 8)
	dims := append(w.Rows(1, 3, last), writer.Dim{Name: "", Size: last})
	n := newNorm(w, dims)
	in := w.Enter(w.Input("x", w.Type, dims), residual(w, dims), n.scaleOf(w.Type, dims))
	sum := residualSum(w, in[0], in[1])
	if w.Opset >= 23 && w.Chance(2) {
		return []*onnx.Value{w.Op("RMSNormalization", sum, in[2], onnx.FloatAttr("epsilon", float32(n.epsilon))), sum}
	}
	return []*onnx.Value{n.rmsNorm(sum, in[2], w.Chance(2)), sum}
}

// residualEdits lists the edits of residual and residualSum.
var residualEdits = []string{"residual of one row", "difference instead of the sum", "product instead of the sum",
	"greatest instead of the sum"}

// residual is an input that is added to x, which has these dimensions.
func residual(w *writer.Writer, dims []writer.Dim) *onnx.Value {
	if !w.Symbol && w.Wrong("residual of one row") {
		dims = append([]writer.Dim{}, dims...)
		dims[len(dims)-2] = writer.Dim{Name: "", Size: 1}
	}
	return w.Input("residual", w.Type, dims)
}

// residualSum writes the sum of x and a residual.
func residualSum(w *writer.Writer, x, residual *onnx.Value) *onnx.Value {
	switch {
	case w.Wrong("difference instead of the sum"):
		return w.Op("Sub", x, residual)
	case w.Wrong("product instead of the sum"):
		return w.Op("Mul", x, residual)
	case w.Wrong("greatest instead of the sum"):
		return w.Op("Max", x, residual)
	}
	return w.Sum(x, residual)
}

// WriteRMSNormalization writes the op of opset 23.
func WriteRMSNormalization(w *writer.Writer) []*onnx.Value {
	last := writer.Choose(w, 4, 6, 8)
	dims := append(w.Rows(1, 3, last), writer.Dim{Name: "", Size: last})
	n := newNorm(w, dims)
	in := w.Enter(w.Input("x", w.Type, dims), n.scaleOf(w.Type, dims))
	attrs := []any{in[0], in[1], onnx.FloatAttr("epsilon", float32(n.epsilon))}
	switch axis := w.LastAxis(len(dims)); {
	case w.Square && w.Wrong("normalized over two axes"):
		attrs = append(attrs, onnx.IntAttr("axis", -2))
	case w.Half() && w.Wrong("statistics in the type of x"):
		attrs = append(attrs, onnx.IntAttr("stash_type", int64(w.Type)))
	case axis != -1 || w.Chance(2):
		attrs = append(attrs, onnx.IntAttr("axis", axis))
	}
	return []*onnx.Value{w.Op("RMSNormalization", attrs...)}
}

// WriteLayerNorm writes a LayerNorm, mostly without bias.
func WriteLayerNorm(w *writer.Writer) []*onnx.Value {
	last := writer.Choose(w, 4, 6, 8)
	dims := append(w.Rows(1, 3, last), writer.Dim{Name: "", Size: last})
	n := newNorm(w, dims)
	read := []*onnx.Value{w.Input("x", w.Type, dims), n.scaleOf(w.Type, dims)}
	if w.Chance(3) {
		read = append(read, w.Row("bias", last))
	}
	in := w.Enter(read...)
	return []*onnx.Value{n.layerNorm(in[0], in[1:])}
}

// layerNorm writes a LayerNorm of x with a scale and, if there is one, a bias.
func (n norm) layerNorm(x *onnx.Value, rows []*onnx.Value) *onnx.Value {
	w := n.Writer
	xf := n.widen(x)
	center := n.Reduce("ReduceMean", xf, []int64{n.LastAxis(n.rank)}, true)
	switch {
	case w.Wrong("centered at the maximum"):
		center = n.Reduce("ReduceMax", xf, []int64{-1}, true)
	case w.Wrong("centered along another axis"):
		center = n.Reduce("ReduceMean", xf, []int64{0}, true)
	case w.Wrong("mean added"):
		center = w.Op("Neg", center)
	}
	d := w.Op("Sub", xf, center)
	after := w.Chance(2)
	var scale *onnx.Value
	if !after {
		scale = n.widen(n.spread(rows[0], x))
	}
	y := n.normalize(d, scale)
	if w.Half() || w.Chance(4) {
		y = w.Cast(y, w.Type)
	}
	if after {
		y = w.Product(y, rows[0])
	}
	if len(rows) > 1 {
		y = w.Sum(y, rows[1])
	}
	return y
}

// WriteAddLayerNorm writes a residual addition, perhaps with a bias on x, and the sum's LayerNorm. If this is one op, a
// bias is optional.
func WriteAddLayerNorm(w *writer.Writer) []*onnx.Value {
	last := writer.Choose(w, 4, 6, 8)
	dims := append(w.Rows(1, 3, last), writer.Dim{Name: "", Size: last})
	n := newNorm(w, dims)
	in := w.Enter(w.Input("x", w.Type, dims), residual(w, dims), n.scaleOf(w.Type, dims),
		w.Row("bias", last), w.Row("x_bias", last))
	x := in[0]
	if w.Chance(2) {
		x = w.Sum(x, in[4])
	}
	sum := residualSum(w, x, in[1])
	if w.Opset < 17 || w.Chance(3) {
		return []*onnx.Value{n.layerNorm(sum, in[2:4]), sum}
	}
	rows := []any{sum, in[2]}
	if x != in[0] || !w.Chance(3) {
		rows = append(rows, in[3])
	}
	rows = append(rows, onnx.FloatAttr("epsilon", float32(n.epsilon)))
	if w.Square && w.Wrong("normalized over two axes") {
		rows = append(rows, onnx.IntAttr("axis", -2))
	}
	return []*onnx.Value{w.Op("LayerNormalization", rows...), sum}
}
