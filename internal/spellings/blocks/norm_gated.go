package blocks

import (
	"github.com/mojo-patch/mojo-patch/internal/spellings/writer"
	"github.com/mojo-patch/mojo-patch/onnx"
)

// WriteGatedRMSNorm writes a norm with a SiLU gate before or after it, over all channels or in groups.
func WriteGatedRMSNorm(first bool) func(*writer.Writer) []*onnx.Value {
	return func(w *writer.Writer) []*onnx.Value {
		last, groups := writer.Choose(w, 4, 6, 8), writer.Choose(w, 1, 1, 2)
		dims := append(w.Rows(1, 2, last), writer.Dim{Name: "", Size: last})
		n := newNorm(w, dims)
		if w.Chance(3) {
			n.scaleType = onnx.Float
		}
		in := w.Enter(w.Input("x", w.Type, dims), w.Input("gate", w.Type, dims), n.scaleOf(n.scaleType, dims))
		x, scale := w.Cast(in[0], onnx.Float), in[2]
		a := w.Cast(in[1], onnx.Float)
		switch {
		case w.Wrong("gate without its sigmoid"):
		case w.Wrong("sigmoid without the gate"):
			a = w.Op("Sigmoid", a)
		case w.Wrong("gate of the other sign"):
			a = w.Op("Mul", a, w.Sigmoid(w.Op("Neg", a), onnx.Float))
		case w.Chance(3):
			a = w.Op("Div", a, w.OnePlusExp(a, onnx.Float))
		default:
			a = w.Op("Mul", a, w.Sigmoid(a, onnx.Float))
		}
		if first {
			x = w.Product(x, a)
		}
		shape := w.Op("Shape", writer.Choose(w, in[0], x))
		if groups > 1 || w.Chance(3) {
			rest := w.Op("Slice", shape, w.Ints(0), w.Ints(-1), w.Ints(0))
			x = w.Op("Reshape", x, w.Op("Concat", rest, w.Ints(int64(groups), int64(last/groups)),
				onnx.IntAttr("axis", 0)))
			n.rank, n.size = n.rank+1, last/groups
		}
		y := n.normalize(x, nil)
		grid := n.rank > len(dims) && w.Chance(2) // the scale has groups
		if grid {
			scale = w.Op("Reshape", scale, w.Ints(int64(groups), int64(last/groups)))
		}
		inner := n.scaleType == w.Type && w.Chance(2) // the scale follows the cast back
		if inner {
			y = w.Cast(y, w.Type)
		} else {
			scale = w.Cast(scale, onnx.Float)
		}
		if grid {
			y = w.Product(y, scale)
		}
		if n.rank > len(dims) {
			y = w.Op("Reshape", y, shape)
		}
		if !grid {
			y = w.Product(y, scale)
		}
		if first && inner {
			return []*onnx.Value{y}
		}
		if !first {
			y = w.Product(w.Cast(y, onnx.Float), a)
		}
		return []*onnx.Value{w.Cast(y, w.Type)}
	}
}
