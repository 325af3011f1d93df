package writer

import "github.com/mojo-patch/mojo-patch/onnx"

// Rows draws the dimensions before the last one.
func (w *Writer) Rows(least, most, last int) []Dim {
	names := []string{"batch", "heads", "seq"}
	n := least + w.Rand.IntN(most-least+1)
	dims := make([]Dim, n)
	for i := range dims {
		dims[i] = Dim{names[i], 2 + w.Rand.IntN(3)}
		if w.Square {
			dims[i].Size = last
		}
	}
	return dims
}

// LastAxis returns the last axis, counted from either side.
func (w *Writer) LastAxis(rank int) int64 { return Choose(w, -1, int64(rank)-1) }

// Reduce writes axes as an attribute or an input, depending on the opset; nil means all axes.
func (w *Writer) Reduce(op string, x *onnx.Value, axes []int64, keep bool) *onnx.Value {
	args := []any{x}
	old := w.Opset < 18 && op != "ReduceSum"
	switch {
	case axes == nil:
	case old:
		args = append(args, onnx.IntsAttr("axes", axes))
	default:
		args = append(args, w.Ints(axes...))
	}
	if !keep {
		args = append(args, onnx.IntAttr("keepdims", 0))
	} else if w.Chance(2) {
		args = append(args, onnx.IntAttr("keepdims", 1))
	}
	return w.Op(op, args...)
}

// Row returns a constant with an element for each channel.
func (w *Writer) Row(name string, channels int) *onnx.Value {
	values := make([]float64, channels)
	for i := range values {
		values[i] = float64(i%3) / 4
	}
	t := Tensor(w.Type, []int{channels}, values)
	t.Name = name
	return w.Model.Graph.AddInitializer(t)
}
