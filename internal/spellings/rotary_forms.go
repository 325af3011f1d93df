package spellings

import "github.com/mojo-patch/mojo-patch/onnx"

// writeComplexRotary writes the product of complex numbers: pairs have a separate axis, in x and in the table.
func writeComplexRotary(w *writer) []*onnx.Value {
	n := choose(w, 4, 8, 6)
	dims := append(w.rows(2, 3, n), dim{"", n})
	rank := len(dims)
	table := []dim{dims[rank-2], {"", n / 2}, {"", 2}}
	in := w.enter(w.input("x", w.typ, dims), w.input("table", w.typ, table))
	c := channels{w, rank, n}
	x := c.reshaped(in[0], int64(n/2), 2)
	parts := func(v *onnx.Value, rank int) (re, im *onnx.Value) {
		axis := onnx.IntAttr("axis", -1)
		if w.chance(2) {
			p := w.ops("Split", 2, append([]any{v, w.ints(1, 1)}, axis)...)
			return w.op("Squeeze", p[0], w.ints(-1)), w.op("Squeeze", p[1], w.ints(-1))
		}
		return c.pick(v, 0, -1, rank), c.pick(v, 1, -1, rank)
	}
	re, im := parts(x, rank+1)
	cos, sin := parts(in[1], 3)
	sin2 := sin
	switch {
	case w.wrong("real parts taken twice"):
		im = re
	case w.wrong("cosine instead of the sine, in one part"):
		sin2 = cos
	case w.wrong("imaginary parts taken twice"):
		re = im
	}
	p, q := w.minus(w.product(re, cos), w.product(im, sin)), w.sum(w.product(re, sin2), w.product(im, cos))
	switch {
	case w.wrong("sum instead of the difference"):
		p = w.op("Add", w.op("Mul", re, cos), w.op("Mul", im, sin))
	case w.wrong("difference instead of the sum"):
		q = w.op("Sub", w.op("Mul", re, sin), w.op("Mul", im, cos))
	case w.wrong("results exchanged"):
		p, q = q, p
	case w.wrong("imaginary parts twice"):
		p = q
	case w.wrong("magnitudes added"):
		q = w.op("Add", w.op("Mul", re, re), w.op("Mul", im, im))
	}
	axis := w.ints(-1)
	pairs := w.op("Concat", w.op("Unsqueeze", p, axis), w.op("Unsqueeze", q, axis),
		onnx.IntAttr("axis", choose(w, -1, int64(rank))))
	return []*onnx.Value{c.flat(pairs)}
}

// writeRotaryEmbedding writes the op of opset 23.
func writeRotaryEmbedding(w *writer) []*onnx.Value {
	n := choose(w, 4, 8)
	batch, heads, seq := dim{"batch", 2}, dim{"", 3}, dim{"seq", 2 + w.r.IntN(3)}
	dims := []dim{batch, heads, seq, {"", n}}
	rotated := n
	var attrs []any
	if w.chance(3) {
		rotated = n / 2
		attrs = append(attrs, onnx.IntAttr("rotary_embedding_dim", int64(rotated)))
	}
	table := []dim{batch, seq, {"", rotated / 2}}
	if w.chance(2) {
		attrs = append(attrs, onnx.IntAttr("interleaved", int64(w.r.IntN(2))))
	}
	var positions *onnx.Value
	if !w.symbol && w.chance(2) { // tables of all positions, and the selected positions
		ids := make([]int64, batch.size*seq.size)
		for i := range ids {
			ids[i] = w.r.Int64N(9)
		}
		t := onnx.NewInt64s("positions", ids)
		t.Dims = []int64{int64(batch.size), int64(seq.size)}
		positions = w.m.Graph.AddInitializer(t)
		table = []dim{{"", 9}, {"", rotated / 2}}
	}
	read := []*onnx.Value{w.input("x", w.typ, dims), w.input("cos_table", w.typ, table),
		w.input("sin_table", w.typ, table)}
	if positions != nil {
		read = append(read, positions)
	}
	args := attrs
	for _, v := range w.enter(read...) {
		args = append(args, v)
	}
	return []*onnx.Value{w.op("RotaryEmbedding", args...)}
}
