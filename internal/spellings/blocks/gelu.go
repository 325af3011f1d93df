package blocks

import (
	"github.com/mojo-patch/mojo-patch/internal/spellings/writer"
	"github.com/mojo-patch/mojo-patch/onnx"
)

// WriteGeGLU writes the gate's gelu times up; tanh selects the approximation.
func WriteGeGLU(tanh bool) func(w *writer.Writer) []*onnx.Value {
	return func(w *writer.Writer) []*onnx.Value {
		gate, up, _ := gated(w, false)
		gelu := func(x *onnx.Value) *onnx.Value {
			return w.Wider(x, func(x *onnx.Value, t onnx.DataType) *onnx.Value { return w.GELU(x, t, tanh) })
		}
		if y := w.GLUEdits(gate, up, gelu); y != nil {
			return []*onnx.Value{y}
		}
		if w.Chance(2) {
			return []*onnx.Value{w.Product(gelu(gate), up)}
		}
		return []*onnx.Value{w.Product(append(w.GELUFactors(gate, w.Type, tanh), up)...)}
	}
}

// WriteBiasGELU writes the gelu of a sum with a bias; form selects the gelu.
func WriteBiasGELU(form string) func(w *writer.Writer) []*onnx.Value {
	return func(w *writer.Writer) []*onnx.Value {
		last := writer.Choose(w, 4, 6, 8)
		dims := append(w.Rows(1, 2, last), writer.Dim{Name: "", Size: last})
		in := w.Enter(w.Input("x", w.Type, dims), w.Row("bias", last))
		g := in[0]
		switch {
		case w.Wrong("bias missing"):
		case w.Wrong("bias taken away"):
			g = w.Op("Sub", g, in[1])
		case w.Wrong("bias multiplied"):
			g = w.Op("Mul", g, in[1])
		default:
			g = w.Sum(g, in[1])
		}
		if form != "sigmoid" {
			return []*onnx.Value{w.GELU(g, w.Type, form == "tanh")}
		}
		alpha := writer.Choose(w, 1.702, 0.5, 2)
		if w.Wrong("negative factor") {
			alpha = -alpha
		}
		s := w.Sigmoid(w.Product(g, w.Scalar(w.Type, alpha)), w.Type)
		if w.Wrong("sum instead of the product") {
			return []*onnx.Value{w.Op("Add", g, s)}
		}
		return []*onnx.Value{w.Product(g, s)}
	}
}
