package attacks_test

import (
	"testing"

	"github.com/mojo-patch/mojo-patch/onnx"
)

// shaped overrides the shapes of inputs, although the model's dimension names say otherwise.
func shaped(shapes map[string][]int) trial { return trial{shapes: shapes} }

// shapeAttacks are blocks whose scales or tables have sizes other than declared, or undeclared ones.
var shapeAttacks = []attack{
	{name: "a scale of one element", at: shaped(map[string][]int{"w": {1}}), write: func(b *maker) {
		x, w := b.input("x", "batch", "seq", "d"), b.input("w", "d")
		mean := b.Op("ReduceMean", b.Op("Mul", x, x), []int64{-1}, onnx.IntAttr("keepdims", 1))
		b.Output(b.Op("Mul", b.Op("Div", x, b.Op("Sqrt", b.Op("Add", mean, b.number(1e-6)))), w))
	}, unlike: true},
	{name: "a scale for each batch", at: shaped(map[string][]int{"w": {1, 1, width}}), write: func(b *maker) {
		x, w := b.rows("x"), b.input("w", "batch", 1, width)
		mean := b.Op("ReduceMean", b.Op("Mul", x, x), []int64{-1}, onnx.IntAttr("keepdims", 1))
		b.Output(b.Op("Mul", b.Op("Div", x, b.Op("Sqrt", b.Op("Add", mean, b.number(1e-6)))), w))
	}},
	{name: "tables of one batch", at: shaped(map[string][]int{"c": {1, 1, 3, 8}, "s": {1, 1, 3, 8}}),
		write: func(b *maker) {
			x := b.input("x", "batch", 2, "seq", 8)
			b.Output(b.rotate(x, b.input("c", "batch", 1, "seq", 8), b.input("s", "batch", 1, "seq", 8), 8))
		}},
	{name: "tables of other positions", at: shaped(map[string][]int{"x": {2, 2, 1, 8}, "c": {3, 8}, "s": {3, 8}}),
		write: func(b *maker) {
			x := b.input("x", "batch", 2, -1, 8)
			b.Output(b.rotate(x, b.input("c", -1, 8), b.input("s", -1, 8), 8))
		}, unlike: true},
	{name: "tables of another length", at: shaped(map[string][]int{"x": {2, 2, 1, 8}}), write: func(b *maker) {
		b.Output(b.rotate(b.heads("x"), b.input("c", "places", 8), b.input("s", "places", 8), 8))
	}, unlike: true},
	{name: "a normed rotation by tables of another length", at: shaped(map[string][]int{"x": {2, 2, 1, 8}}),
		write: func(b *maker) {
			x := b.heads("x")
			mean := b.Op("ReduceMean", b.Op("Mul", x, x), []int64{-1}, onnx.IntAttr("keepdims", 1))
			x = b.Op("Mul", b.Op("Div", x, b.Op("Sqrt", b.Op("Add", mean, b.number(1e-6)))), b.weight(8))
			b.Output(b.rotate(x, b.input("c", "places", 8), b.input("s", "places", 8), 8))
		}},
	{name: "up of one batch", at: shaped(map[string][]int{"u": {1, 3, width}}), write: func(b *maker) {
		b.Output(b.Op("Mul", b.silu(b.rows("g"), b.number(1)), b.rows("u")))
	}, fails: true},
	{name: "a gate of one position", at: shaped(map[string][]int{"g": {2, 1, width}}), write: func(b *maker) {
		b.Output(b.Op("Mul", b.silu(b.rows("g"), b.number(1)), b.rows("u")))
	}, fails: true},
	{name: "a residual of one batch", at: shaped(map[string][]int{"x2": {1, 3, width}}), write: func(b *maker) {
		s := b.Op("Add", b.rows("x"), b.rows("x2"))
		b.Output(s)
		b.Output(b.norm(s, b.number(1e-6)))
	}, fails: true},
	{name: "a norm's gate of one position", at: shaped(map[string][]int{"g": {2, 1, width}}), write: func(b *maker) {
		b.Output(b.Op("Mul", b.norm(b.rows("x"), b.number(1e-6)), b.silu(b.rows("g"), b.number(1))))
	}, fails: true},
	{name: "keys of one batch", at: shaped(map[string][]int{"k": {1, 2, 3, 8}}), write: attends("seq", nil),
		fails: true},
	{name: "padding of one key", at: shaped(map[string][]int{"m": {2, 1}}), write: attends("seq", padded), fails: true},
	// Exporters name the length of a mask differently from that of past and new keys, although they are equal.
	{name: "padding of one key of another name", at: shaped(map[string][]int{"m": {2, 1}}),
		write: attends("keys", padded), fails: true},
}

// cutAttacks take the first 5 rows, which a later node requires.
var cutAttacks = []attack{
	{name: "a bias for the first rows", write: func(b *maker) { b.cutAttention(true, 2, 5, 5) }},
	{name: "a bias for the first keys", write: func(b *maker) { b.cutAttention(false, 2, 1, 5) }},
	{name: "a shape for the first rows", write: func(b *maker) { b.cutAttention(true) }},
	{name: "experts for the first rows", write: func(b *maker) {
		x := b.input("x", "seq", width)
		w, ids := b.router(x, 8, []int64{2})
		y := b.experts(b.firstRows(x, 0), b.firstRows(w, 0), b.firstRows(ids, 0), b.swiglu)
		b.Output(b.Op("Add", y, b.weight(5, width)))
	}},
}

func (b *maker) firstRows(x *onnx.Value, axis int64) *onnx.Value {
	return b.Op("Slice", x, []int64{0}, []int64{5}, []int64{axis})
}

// cutAttention writes attention of the first 5 keys, and queries if rows is set. A bias of the given shape or, without
// one, the shape of the result needs so many rows.
func (b *maker) cutAttention(rows bool, bias ...int) {
	q, k, v := b.heads("q"), b.firstRows(b.heads("k"), 2), b.firstRows(b.heads("v"), 2)
	if rows {
		q = b.firstRows(q, 2)
	}
	s := b.Op("MatMul", q, b.Op("Transpose", k, onnx.IntsAttr("perm", []int64{0, 1, 3, 2})))
	if bias != nil {
		s = b.Op("Add", s, b.weight(bias...))
	}
	y := b.Op("MatMul", b.Op("Softmax", s, last()), v)
	if bias == nil {
		y = b.Op("Reshape", y, []int64{0, 2, 5, 8})
	}
	b.Output(y)
}

func padded(b *maker, scores *onnx.Value, keys string) *onnx.Value {
	m := b.cast(b.Input("m", onnx.Int64, "batch", keys), onnx.Bool)
	return b.Op("Where", b.Op("Unsqueeze", m, []int64{1, 2}), scores, b.number(-3e38))
}

// attends writes attention whose mask names its key dimension keys.
func attends(keys string, mask func(b *maker, scores *onnx.Value, keys string) *onnx.Value) func(*maker) {
	return func(b *maker) {
		q, k, v := b.heads("q"), b.heads("k"), b.heads("v")
		s := b.Op("MatMul", q, b.Op("Transpose", k, onnx.IntsAttr("perm", []int64{0, 1, 3, 2})))
		s = b.Op("Mul", s, b.number(0.35))
		if mask != nil {
			s = mask(b, s, keys)
		}
		b.Output(b.Op("MatMul", b.Op("Softmax", s, last()), v))
	}
}

func TestShapes(t *testing.T) {
	for _, a := range shapeAttacks {
		t.Run(a.name, a.run)
	}
}

// TestCut runs graphs that need at least 5 rows with more.
func TestCut(t *testing.T) {
	for _, a := range cutAttacks {
		t.Run(a.name, func(t *testing.T) {
			checkPatched(t, a, "", trial{sizes: map[string]int{"seq": 9}})
		})
	}
}

// TestOneKey has one query and one key, as the last stage of a pyramid of images has.
func TestOneKey(t *testing.T) {
	(&attack{same: true, unlike: true, write: func(b *maker) {
		q, k, v := b.input("q", "batch", 2, 1, 8), b.input("k", "batch", 2, 1, 8), b.input("v", "batch", 2, 1, 8)
		scores := b.Op("MatMul", q, b.Op("Transpose", k, onnx.IntsAttr("perm", []int64{0, 1, 3, 2})))
		b.Output(b.Op("MatMul", b.Op("Softmax", b.Op("Mul", scores, 0.25), last()), v))
	}}).run(t)
}
