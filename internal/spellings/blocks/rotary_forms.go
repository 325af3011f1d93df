package blocks

import (
	"github.com/mojo-patch/mojo-patch/internal/spellings/writer"
	"github.com/mojo-patch/mojo-patch/onnx"
)

// WriteComplexRotary writes the product of complex numbers: pairs have a separate axis, in x and in the table.
func WriteComplexRotary(w *writer.Writer) []*onnx.Value {
	n := writer.Choose(w, 4, 8, 6)
	dims := append(w.Rows(2, 3, n), writer.Dim{Name: "", Size: n})
	rank := len(dims)
	table := []writer.Dim{dims[rank-2], {Name: "", Size: n / 2}, {Name: "", Size: 2}}
	in := w.Enter(w.Input("x", w.Type, dims), w.Input("table", w.Type, table))
	c := writer.Channels{Writer: w, Rank: rank, Size: n}
	x := c.Reshaped(in[0], int64(n/2), 2)
	parts := func(v *onnx.Value, rank int) (re, im *onnx.Value) {
		axis := onnx.IntAttr("axis", -1)
		if w.Chance(2) {
			p := w.Ops("Split", 2, append([]any{v, w.Ints(1, 1)}, axis)...)
			return w.Op("Squeeze", p[0], w.Ints(-1)), w.Op("Squeeze", p[1], w.Ints(-1))
		}
		return c.Pick(v, 0, -1, rank), c.Pick(v, 1, -1, rank)
	}
	re, im := parts(x, rank+1)
	cos, sin := parts(in[1], 3)
	sin2 := sin
	switch {
	case w.Wrong("real parts taken twice"):
		im = re
	case w.Wrong("cosine instead of the sine, in one part"):
		sin2 = cos
	case w.Wrong("imaginary parts taken twice"):
		re = im
	}
	p, q := minus(w, w.Product(re, cos), w.Product(im, sin)), w.Sum(w.Product(re, sin2), w.Product(im, cos))
	switch {
	case w.Wrong("sum instead of the difference"):
		p = w.Op("Add", w.Op("Mul", re, cos), w.Op("Mul", im, sin))
	case w.Wrong("difference instead of the sum"):
		q = w.Op("Sub", w.Op("Mul", re, sin), w.Op("Mul", im, cos))
	case w.Wrong("results exchanged"):
		p, q = q, p
	case w.Wrong("imaginary parts twice"):
		p = q
	case w.Wrong("magnitudes added"):
		q = w.Op("Add", w.Op("Mul", re, re), w.Op("Mul", im, im))
	}
	axis := w.Ints(-1)
	pairs := w.Op("Concat", w.Op("Unsqueeze", p, axis), w.Op("Unsqueeze", q, axis),
		onnx.IntAttr("axis", writer.Choose(w, -1, int64(rank))))
	return []*onnx.Value{c.Flat(pairs)}
}

// WriteRotaryEmbedding writes the op of opset 23.
func WriteRotaryEmbedding(w *writer.Writer) []*onnx.Value {
	n := writer.Choose(w, 4, 8)
	batch, heads, seq := writer.Dim{Name: "batch", Size: 2}, writer.Dim{Name: "", Size: 3}, writer.Dim{Name: "seq",
		Size: 2 + w.Rand.IntN(3)}
	dims := []writer.Dim{batch, heads, seq, {Name: "", Size: n}}
	rotated := n
	var attrs []any
	if w.Chance(3) {
		rotated = n / 2
		attrs = append(attrs, onnx.IntAttr("rotary_embedding_dim", int64(rotated)))
	}
	table := []writer.Dim{batch, seq, {Name: "", Size: rotated / 2}}
	if w.Chance(2) {
		attrs = append(attrs, onnx.IntAttr("interleaved", int64(w.Rand.IntN(2))))
	}
	var positions *onnx.Value
	if !w.Symbol && w.Chance(2) { // tables of all positions, and the selected positions
		ids := make([]int64, batch.Size*seq.Size)
		for i := range ids {
			ids[i] = w.Rand.Int64N(9)
		}
		t := onnx.NewInt64s("positions", ids)
		t.Dims = []int64{int64(batch.Size), int64(seq.Size)}
		positions = w.Model.Graph.AddInitializer(t)
		table = []writer.Dim{{Name: "", Size: 9}, {Name: "", Size: rotated / 2}}
	}
	read := []*onnx.Value{w.Input("x", w.Type, dims), w.Input("cos_table", w.Type, table),
		w.Input("sin_table", w.Type, table)}
	if positions != nil {
		read = append(read, positions)
	}
	args := attrs
	for _, v := range w.Enter(read...) {
		args = append(args, v)
	}
	return []*onnx.Value{w.Op("RotaryEmbedding", args...)}
}

// WriteNormRotary normalizes the heads and rotates them in any form.
func WriteNormRotary(w *writer.Writer) []*onnx.Value {
	f := writer.Choose(w, Form{Wide: true, Whole: true}, Form{}, Form{In: true, Out: true}, Form{In: true},
		Form{In: true, Out: true, Wide: true, Whole: true})
	f.partial, f.normed = w.Chance(4), true
	return WriteRotary(f)(w)
}

// WritePartialRotary rotates some of the channels in any form.
func WritePartialRotary(w *writer.Writer) []*onnx.Value {
	f := writer.Choose(w, Form{Wide: true, Whole: true}, Form{}, Form{In: true, Out: true}, Form{In: true},
		Form{In: true, Out: true, Wide: true, Whole: true})
	f.partial = true
	return WriteRotary(f)(w)
}
