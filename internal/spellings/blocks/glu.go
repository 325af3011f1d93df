package blocks

import (
	"github.com/mojo-patch/mojo-patch/internal/spellings/writer"
	"github.com/mojo-patch/mojo-patch/onnx"
)

// gated declares gate and up: two inputs, or the halves of one.
func gated(w *writer.Writer, interleaved bool) (gate, up *onnx.Value, rank int) {
	last := writer.Choose(w, 4, 6, 8)
	dims := append(w.Rows(1, 2, last), writer.Dim{Name: "", Size: last})
	rank = len(dims)
	if w.Chance(2) {
		wide := append(append([]writer.Dim{}, dims[:rank-1]...), writer.Dim{Name: "", Size: 2 * last})
		x := w.Enter(w.Input("x", w.Type, wide))[0]
		c := writer.Channels{Writer: w, Rank: rank, Size: 2 * last}
		if interleaved {
			return c.Every(x, 2, 0), c.Every(x, 2, 1), rank
		}
		parts := c.Cut(x, last, last)
		return parts[0], parts[1], rank
	}
	other := dims
	if !w.Symbol && w.Wrong("up of one row") {
		other = append([]writer.Dim{}, dims...)
		other[rank-2] = writer.Dim{Name: "", Size: 1}
	}
	in := w.Enter(w.Input("gate", w.Type, dims), w.Input("up", w.Type, other))
	return in[0], in[1], rank
}

// WriteSwiGLU writes the gate's silu times up.
func WriteSwiGLU(w *writer.Writer) []*onnx.Value {
	gate, up, _ := gated(w, false)
	silu := func(x *onnx.Value) *onnx.Value {
		return w.Wider(x, func(x *onnx.Value, t onnx.DataType) *onnx.Value { return w.Op("Mul", x, w.Sigmoid(x, t)) })
	}
	if y := w.GLUEdits(gate, up, silu); y != nil {
		return []*onnx.Value{y}
	}
	var y *onnx.Value
	switch w.Rand.IntN(4) {
	case 0:
		y = w.Product(silu(gate), up)
	case 1: // x / (1 + exp(-x))
		a := w.Wider(gate, func(x *onnx.Value, t onnx.DataType) *onnx.Value {
			d := w.OnePlusExp(x, t)
			if w.Wrong("divided by itself") {
				x = d
			}
			return w.Op("Div", x, d)
		})
		y = w.Product(a, up)
	default:
		y = w.Product(gate, up, w.Sigmoid(gate, w.Type))
	}
	return []*onnx.Value{y}
}

// WriteQuickGLU writes SwiGLU with a factor inside the sigmoid.
func WriteQuickGLU(w *writer.Writer) []*onnx.Value {
	gate, up, _ := gated(w, false)
	inner := func(x *onnx.Value) *onnx.Value {
		return w.Op("Mul", w.Product(x, w.Scalar(w.Type, writer.Choose(w, 1.702, 0.5, 2))), w.Sigmoid(x, w.Type))
	}
	if w.Wrong("factor outside the sigmoid") {
		return []*onnx.Value{w.Op("Mul", inner(gate), up)}
	}
	alpha := writer.Choose(w, 1.702, 0.5, 2)
	if w.Wrong("negative factor") {
		alpha = -alpha
	}
	silu := func(x *onnx.Value) *onnx.Value {
		return w.Wider(x, func(x *onnx.Value, t onnx.DataType) *onnx.Value {
			return w.Product(x, w.Sigmoid(w.Product(x, w.Scalar(t, alpha)), t))
		})
	}
	if y := w.GLUEdits(gate, up, silu); y != nil {
		return []*onnx.Value{y}
	}
	if w.Chance(2) {
		return []*onnx.Value{w.Product(silu(gate), up)}
	}
	return []*onnx.Value{w.Product(gate, up, w.Sigmoid(w.Product(gate, w.Scalar(w.Type, alpha)), w.Type))}
}

// WriteSwish writes the op Swish of opset 24 and its product with up, or SwiGLU of opset 28.
func WriteSwish(w *writer.Writer) []*onnx.Value {
	gate, up, _ := gated(w, false)
	var alpha []any
	if a := writer.Choose(w, 0, 1, 1.702, 0.5); a != 0 {
		alpha = []any{onnx.FloatAttr("alpha", float32(a))}
	}
	if w.Wrong("negative factor") {
		alpha = []any{onnx.FloatAttr("alpha", -1)}
	}
	swish := func(x *onnx.Value) *onnx.Value { return w.Op("Swish", append([]any{x}, alpha...)...) }
	if y := w.GLUEdits(gate, up, swish); y != nil {
		return []*onnx.Value{y}
	}
	if w.Opset >= 28 && w.Chance(2) {
		return []*onnx.Value{w.Op("SwiGLU", append([]any{gate, up}, alpha...)...)}
	}
	return []*onnx.Value{w.Product(swish(gate), up)}
}

// WriteClampedSwiGLU writes SwiGLU with limits, a factor in the sigmoid and an offset of up.
func WriteClampedSwiGLU(w *writer.Writer) []*onnx.Value {
	gate, up, _ := gated(w, w.Chance(2))
	return []*onnx.Value{w.ClampedSwiGLU(gate, up, writer.NewClamping(w))}
}
