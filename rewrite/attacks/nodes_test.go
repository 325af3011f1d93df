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
