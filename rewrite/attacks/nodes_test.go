package attacks_test

import (
	"slices"
	"testing"

	"github.com/mojo-patch/mojo-patch/onnx"
)

// dropped returns x after a Dropout that is off or, if twisted, on if an input says so.
func (b *maker) dropped(x *onnx.Value) *onnx.Value {
	off := b.Op("Cast", b.Ints(0), onnx.IntAttr("to", int64(onnx.Bool)))
	off = b.Op("Squeeze", off)
	return b.Op("Dropout", x, b.number(0.5), b.or(b.Input("training", onnx.Bool), off))
}

// TestRandom: random nodes stay; no fused op may replace them.
func TestRandom(t *testing.T) {
	for _, c := range []struct {
		name  string
		write func(b *maker)
	}{
		{"dropout of a gate", func(b *maker) {
			g, u := b.rows("g"), b.rows("u")
			b.Output(b.Op("Mul", b.dropped(b.silu(g, b.number(1))), u))
		}},
		{"dropout of a normalized row", func(b *maker) {
			x := b.rows("x")
			mean := b.Op("ReduceMean", b.Op("Mul", x, x), []int64{-1}, onnx.IntAttr("keepdims", 1))
			n := b.Op("Div", x, b.Op("Sqrt", b.Op("Add", mean, b.number(1e-6))))
			b.Output(b.Op("Mul", b.dropped(n), b.weight(width)))
		}},
		{"an epsilon by chance", func(b *maker) {
			x := b.rows("x")
			noise := b.Op("RandomUniform", onnx.IntsAttr("shape", []int64{1}), onnx.FloatAttr("low", 1e-6),
				onnx.FloatAttr("high", 1e-5))
			b.Output(b.norm(x, b.or(noise, b.number(1e-6))))
		}},
		{"a scale by chance", func(b *maker) {
			x := b.rows("x")
			mean := b.Op("ReduceMean", b.Op("Mul", x, x), []int64{-1}, onnx.IntAttr("keepdims", 1))
			n := b.Op("Div", x, b.Op("Sqrt", b.Op("Add", mean, b.number(1e-6))))
			noise := b.Op("RandomUniform", onnx.IntsAttr("shape", []int64{width}), onnx.FloatAttr("low", 0.5))
			b.Output(b.Op("Mul", n, b.or(noise, b.weight(width))))
		}},
		{"an alpha by chance", func(b *maker) {
			noise := b.Op("RandomUniform", onnx.IntsAttr("shape", []int64{1}), onnx.FloatAttr("low", 1))
			g := b.rows("g")
			b.Output(b.Op("Mul", b.silu(g, b.or(noise, b.number(1))), b.rows("u")))
		}},
		{"dropout of weights", func(b *maker) {
			x := b.input("x", "seq", width)
			w, ids := b.router(x, 8, []int64{2})
			b.Output(b.experts(x, b.dropped(w), ids, b.swiglu))
		}},
		{"dropout within experts", func(b *maker) {
			x := b.input("x", "seq", width)
			w, ids := b.router(x, 8, []int64{2})
			b.Output(b.experts(x, w, ids, func(gate, up *onnx.Value) *onnx.Value {
				return b.dropped(b.swiglu(gate, up))
			}))
		}},
		{"dropout of tables", func(b *maker) {
			x := b.input("x", "batch", 2, "seq", 8)
			cos, sin := b.angles(b.size(x, 2), 4)
			b.Output(b.rotate(x, b.dropped(cos), b.dropped(sin), 8))
		}},
		{"dropout within a rotation", func(b *maker) {
			x := b.input("x", "batch", 2, "seq", 8)
			cos, sin := b.angles(b.size(x, 2), 4)
			b.Output(b.Op("Add", b.dropped(b.Op("Mul", x, cos)), b.Op("Mul", b.turned(x, 8), sin)))
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			a := attack{write: c.write}
			m := a.model(true)
			before := random(m)
			patch(t, m)
			if after := random(m); after != before {
				t.Errorf("%d nodes are random, before %d: %s", after, before, ops(m))
			}
		})
	}
}

// random counts the random nodes whose results are needed.
func random(m *onnx.Model) int {
	count := 0
	for _, n := range m.Graph.Nodes {
		if n.IsRandom() || n.Is("Dropout") {
			count++
		}
	}
	return count
}

// TestUnsortedChoice: experts from an unsorted TopK are sorted only if nothing reads their order.
func TestUnsortedChoice(t *testing.T) {
	for name, seen := range map[string]func(b *maker, w, ids *onnx.Value){
		"nothing":       nil,
		"ids":           func(b *maker, _, ids *onnx.Value) { b.Output(ids) },
		"moved weights": func(b *maker, w, _ *onnx.Value) { b.Output(b.Op("Reshape", w, []int64{-1})) },
	} {
		t.Run(name, func(t *testing.T) {
			a := attack{write: func(b *maker) {
				x := b.input("x", "seq", width)
				scores := b.Op("Softmax", b.Op("MatMul", x, b.weight(width, 8)), last())
				top := b.Ops(2, "TopK", scores, []int64{3}, last(), onnx.IntAttr("sorted", 0))
				b.Output(b.experts(x, top[0], top[1], b.swiglu))
				if seen != nil {
					seen(b, top[0], top[1])
				}
			}}
			m := a.model(false)
			patch(t, m)
			if fused := slices.ContainsFunc(m.Graph.Nodes, func(n *onnx.Node) bool {
				return n.OpType == "TopKRouter"
			}); fused != (seen == nil) {
				t.Errorf("a router is there: %v", fused)
			}
		})
	}
}

// TestSizeOfNorm has a norm of which only the size is read, next to that of a constant: the region between them reads
// no data.
func TestSizeOfNorm(t *testing.T) {
	a := attack{write: func(b *maker) {
		x := b.rows("x")
		squares := b.Op("Mul", x, x)
		sum := b.cast(b.Op("ReduceSum", squares, []int64{2}), onnx.Double)
		size := b.Op("Gather", b.Op("Shape", squares), []int64{2})
		count := b.cast(b.Op("ReduceProd", size, onnx.IntAttr("keepdims", 0)), onnx.Double)
		mean := b.cast(b.Op("Div", sum, count), b.typ)
		y := b.Op("Mul", b.Op("Div", x, b.Op("Sqrt", b.Op("Add", mean, b.number(1e-5)))), b.weight(width))
		b.Output(b.Op("Mul", b.Op("Size", y), b.Op("Size", b.weight(1, width))))
	}}
	m := a.model(false)
	patch(t, m)
	if d := difference(evaluate(t, a.model(false), trial{}), evaluate(t, m, trial{})); d != 0 {
		t.Errorf("the patched model differs by %g", d)
	}
}

// TestDetours adds tensors to scores in other shapes, as masks of windows and biases by row and column are. A node that
// moves scores between, or a shape in which they are other scores, must stay.
func TestDetours(t *testing.T) {
	shape := func(b *maker, v *onnx.Value, dims ...int64) *onnx.Value { return b.Op("Reshape", v, dims) }
	turned := func(b *maker, v *onnx.Value, perm ...int64) *onnx.Value {
		return b.Op("Transpose", v, onnx.IntsAttr("perm", perm))
	}
	for _, c := range []struct {
		name, want string
		add        func(b *maker, s *onnx.Value) *onnx.Value // scores [batch, 2, 6, 6], of two windows
	}{
		{"windows", "[Attention]", func(b *maker, s *onnx.Value) *onnx.Value {
			s = shape(b, b.Op("Add", s, b.weight(2, 6, 6)), -1, 2, 2, 6, 6)
			return shape(b, b.Op("Add", b.weight(1, 2, 1, 6, 6), s), -1, 2, 6, 6)
		}},
		{"rows and columns of queries", "[Attention]", func(b *maker, s *onnx.Value) *onnx.Value {
			rows := shape(b, b.Op("MatMul", b.Graph.Inputs[0], b.weight(8, 5)), -1, 2, 2, 3, 5)
			s = b.Op("Add", shape(b, s, -1, 2, 6, 2, 3), b.Op("Unsqueeze", b.weight(2, 6, 2), []int64{-1}))
			rows = b.Op("Slice", rows, []int64{1}, []int64{2}, []int64{-1})
			return shape(b, b.Op("Add", shape(b, s, -1, 2, 2, 3, 6), rows), -1, 2, 6, 6)
		}},
		{"scaled afterwards", "[Attention]", func(b *maker, s *onnx.Value) *onnx.Value {
			s = b.Op("Add", shape(b, s, -1, 2, 2, 6, 6), b.weight(2, 2, 6, 6))
			return b.Op("Mul", shape(b, s, -1, 2, 6, 6), 0.5)
		}},
		{"turned between", "[]", func(b *maker, s *onnx.Value) *onnx.Value {
			s = b.Op("Add", turned(b, shape(b, s, -1, 2, 2, 6, 6), 0, 2, 1, 3, 4), b.weight(2, 2, 6, 6))
			return shape(b, s, -1, 2, 6, 6)
		}},
		{"added and multiplied", "[]", func(b *maker, s *onnx.Value) *onnx.Value {
			s = b.Op("Add", shape(b, s, -1, 2, 2, 6, 6), b.weight(2, 2, 6, 6))
			return shape(b, b.Op("Mul", s, b.weight(1, 2, 1, 6, 1)), -1, 2, 6, 6)
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			a := attack{write: func(b *maker) {
				heads := func(name string) *onnx.Value {
					return shape(b, b.input(name, "images", 2, 2, 6, 8), -1, 2, 6, 8)
				}
				q, k, v := heads("q"), heads("k"), heads("v")
				s := b.Op("MatMul", b.Op("Mul", q, 0.35), turned(b, k, 0, 1, 3, 2))
				b.Output(b.Op("MatMul", b.Op("Softmax", c.add(b, s), last()), v))
			}}
			checkPatched(t, a, c.want, trial{sizes: map[string]int{"images": 3}})
		})
	}
}

// TestLearnedQueries has constant queries, as pooling heads and decoders of objects have.
func TestLearnedQueries(t *testing.T) {
	a := attack{write: func(b *maker) {
		k, v := b.heads("k"), b.heads("v")
		q := b.Op("Expand", b.weight(1, 2, 3, 8), b.Op("Concat", b.first(b.size(k, 0)), []int64{1, 1, 1},
			onnx.IntAttr("axis", 0)))
		s := b.Op("MatMul", q, b.Op("Transpose", k, onnx.IntsAttr("perm", []int64{0, 1, 3, 2})))
		b.Output(b.Op("MatMul", b.Op("Softmax", b.Op("Mul", s, 0.35), last()), v))
	}}
	checkPatched(t, a, "[Attention]", trial{sizes: map[string]int{"batch": 3, "seq": 7}})
}

// checkPatched patches a model and compares it with the original. want is its fused ops, or "".
func checkPatched(t *testing.T, a attack, want string, at trial) {
	t.Helper()
	m := a.model(false)
	if patch(t, m); want != "" && ops(m) != want {
		t.Errorf("found %s, want %s", ops(m), want)
	}
	if d := difference(evaluate(t, a.model(false), at), evaluate(t, m, at)); d > 1e-5 {
		t.Errorf("the patched model differs by %g: %s", d, ops(m))
	}
}
