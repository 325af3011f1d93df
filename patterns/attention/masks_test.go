package attention_test

import (
	"math"
	"testing"

	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/reference"
)

// TestAttentionMasks reads multiplied masks, masks that do not follow from positions, and factors of heads.
func TestAttentionMasks(t *testing.T) {
	floats := func(b *block, v value) value {
		return b.Op("Cast", v, onnx.IntAttr("to", int64(onnx.Float)))
	}
	near := func(b *block, i, j value) value {
		return b.Op("LessOrEqual", b.Op("Abs", b.Op("Sub", i, j)), 2)
	}
	heads := func(b *block, name string, list ...float64) value {
		c, _ := reference.NewFloats(onnx.Float, []int{len(list), 1, 1}, list).ToONNX(name)
		return b.Graph.AddInitializer(c)
	}
	// exponents multiplies the exponentials by the mask.
	exponents := func(squared bool) func(b *block) {
		return func(b *block) {
			var mask value
			b.masked = func(b *block, s, allowed value) value { mask = floats(b, allowed); return s }
			b.softmax = func(b *block, s value) value {
				e := b.Op("Mul", b.Op("Exp", b.Op("Sub", s, b.Op("ReduceMax", s, []int64{-1}))), mask)
				if squared {
					e = b.Op("Mul", e, e)
				}
				return b.Op("Div", e, b.Op("ReduceSum", e, []int64{-1}))
			}
		}
	}
	// shared gives each key a share in rows that see none: one over the number of keys and some more.
	shared := func(more int) func(b *block) {
		return func(b *block) {
			b.masked = func(b *block, s, allowed value) value { return b.Op("Where", allowed, s, math.Inf(-1)) }
			b.softmax = func(b *block, s value) value {
				most := b.Op("ReduceMax", s, []int64{-1})
				none := b.Op("IsInf", most, onnx.IntAttr("detect_positive", 0))
				e := b.Op("Exp", b.Op("Sub", s, b.Op("Where", none, 0.0, most)))
				p := b.Op("Div", e, b.Op("Where", none, 1.0, b.Op("ReduceSum", e, []int64{-1})))
				keys := b.Op("Add", b.Op("Gather", b.Op("Shape", s), 3), more)
				return b.Op("Where", none, b.Op("Reciprocal", floats(b, keys)), p)
			}
		}
	}
	for _, c := range []struct {
		name   string
		change func(b *block)
		want   string
	}{
		{"a factor of the exponentials", exponents(false), "scale=0.5 causal=1 zero blocked q k v mask"},
		{"a factor, and squares", exponents(true), "scale=1 causal=1 zero blocked q k v mask"},
		{"a factor of the scores as well", func(b *block) {
			b.masked = func(b *block, s, allowed value) value {
				m := floats(b, allowed)
				return b.Op("Add", b.Op("Mul", s, m), b.Op("Mul", b.Op("Sub", 1.0, m), -1e30))
			}
		}, "scale=0.5 causal=1 mean blocked q k v mask"},
		{"a factor of the scores alone", func(b *block) {
			b.masked = func(b *block, s, allowed value) value { return b.Op("Mul", s, floats(b, allowed)) }
		}, "missed: the weights are not the softmax of scores times one number plus a mask"},
		{"a window to both sides", func(b *block) {
			b.allowed = near
			b.masked = func(b *block, s, allowed value) value { return b.Op("Where", allowed, s, lowest) }
		}, "scale=0.5 mean blocked q k v and"},
		{"positions from a table", func(b *block) { // the table is shorter than the keys that are tried
			b.allowed = func(b *block, i, j value) value {
				table := []int64{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11}
				return b.Op("LessOrEqual", b.Op("Gather", table, j), b.Op("Gather", table, i))
			}
			b.masked = func(b *block, s, allowed value) value { return b.Op("Where", allowed, s, lowest) }
		}, "scale=0.5 causal=1 mean blocked q k v mask"},
		{"what is not seen, and no weight there", func(b *block) {
			b.allowed = near
			b.masked = func(b *block, s, allowed value) value {
				return b.Op("Where", b.Op("Not", allowed), math.Inf(-1), s)
			}
			b.softmax = func(b *block, s value) value {
				p := b.Op("Softmax", s, onnx.IntAttr("axis", -1))
				return b.Op("Where", b.Op("IsNaN", p), 0.0, p)
			}
		}, "scale=0.5 zero blocked q k v not"},
		{"the mean of all where nothing is seen", shared(0), "scale=0.5 causal=1 mean blocked q k v mask"},
		{"more than the mean", shared(-1), // the check refuses it
			"scale=0.5 causal=1 zero blocked q k v mask reciprocal"},
		{"another number where nothing is seen", func(b *block) {
			b.allowed = near
			b.masked = func(b *block, s, allowed value) value { return b.Op("Where", allowed, s, 0.0) }
		}, "missed: the mask is not computed from positions, and it does not hide keys"},
		{"products with relative positions are added, then scaled", func(b *block) {
			b.product = func(b *block, q, k value) value {
				r := b.Op("MatMul", q, b.Input("positions", onnx.Float, 1, 4, 8, "queries"))
				return b.Op("Mul", b.Op("Add", b.Op("MatMul", q, b.turned(k)), r), 0.5)
			}
		}, "scale=0.5 causal=1 mean blocked q k v mask matmul"},
		{"gates of other values are added", func(b *block) {
			b.product = func(b *block, q, k value) value {
				w := b.Op("MatMul", b.Input("x", onnx.Float, "batch", 4, "queries", 8), b.turned(k))
				return b.Op("Add", b.Op("Relu", w), b.Op("Mul", b.Op("MatMul", q, b.turned(k)), 0.5))
			}
		}, "missed: the weights are not the softmax of scores times one number plus a mask"},
		{"a factor for each head", func(b *block) {
			b.product = func(b *block, q, k value) value {
				return b.Op("Mul", b.Op("MatMul", q, b.turned(k)), heads(b, "factors", 1, 2, 0.5, 3))
			}
		}, "scale=1 causal=1 mean blocked q factors k v mask"},
		{"a factor for each head, and a cap", func(b *block) {
			b.product = func(b *block, q, k value) value {
				s := b.Op("Mul", b.Op("MatMul", q, b.turned(k)), heads(b, "factors", 1, 2, 0.5, 3))
				return b.Op("Mul", b.Op("Tanh", s), 30.0)
			}
		}, "missed: the weights are not the softmax of scores times one number plus a mask"},
		{"a bias for each head", func(b *block) { // changes nothing
			b.product = func(b *block, q, k value) value {
				return b.Op("Add", b.Op("MatMul", q, b.turned(k)), heads(b, "biases", 1, 2, 0.5, 3))
			}
		}, "scale=1 causal=1 mean blocked q k v mask"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := found(t, build(c.change, false)); got != c.want {
				t.Errorf("%s\nwant %s", got, c.want)
			}
		})
	}
}
