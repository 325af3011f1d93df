package attention_test

import (
	"math"
	"testing"

	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/reference"
)

// TestAttentionNumbers reads blocks that change at a length in the graph. Some lengths are shorter than those tried,
// some longer.
func TestAttentionNumbers(t *testing.T) {
	window := func(size int) func(b *block) {
		return func(b *block) {
			b.allowed = func(b *block, i, j value) value {
				return b.Op("And", b.Op("LessOrEqual", j, i), b.Op("Greater", j, b.Op("Sub", i, size)))
			}
		}
	}
	chunk := func(size int) func(b *block) {
		return func(b *block) {
			b.allowed = func(b *block, i, j value) value {
				return b.Op("And", b.Op("LessOrEqual", j, i), b.Op("Equal", b.Op("Div", j, size), b.Op("Div", i, size)))
			}
			b.masked = func(b *block, s, allowed value) value { return b.Op("Where", allowed, s, lowest) }
		}
	}
	// later is 2 for queries from the given position on, and 1 before.
	later := func(b *block, from float64) value {
		i := b.Op("Cast", b.Op("Range", 0, b.Op("Gather", b.Op("Shape", b.q), 2), 1),
			onnx.IntAttr("to", int64(onnx.Float)))
		return b.Op("Unsqueeze", b.Op("Add", b.Op("Min", b.Op("Floor", b.Op("Div", i, from)), 1.0), 1.0), []int64{1})
	}
	triangle := func(size, seen int) *onnx.Tensor {
		list := make([]float64, size*size)
		for i := range size {
			for j := max(i-seen+1, 0); j <= i; j++ {
				list[i*size+j] = 1
			}
		}
		c, _ := reference.NewFloats(onnx.Float, []int{1, 1, size, size}, list).ToONNX("triangle")
		return c
	}
	table := func(seen int) func(b *block) {
		return func(b *block) {
			b.masked = func(b *block, s, allowed value) value {
				at := func(v value) value { return b.Op("Unsqueeze", v, []int64{0}) }
				rows := b.Op("Slice", b.Graph.AddInitializer(triangle(60, seen)), at(b.Op("Sub", b.keys, b.length)),
					at(b.keys), []int64{2})
				see := b.Op("Cast", b.Op("Slice", rows, []int64{0}, at(b.keys), []int64{3}),
					onnx.IntAttr("to", int64(onnx.Bool)))
				return b.Op("Where", b.Op("And", see, allowed), s, lowest)
			}
		}
	}
	const usual = "scale=0.5 causal=1 mean blocked q k v mask"
	for _, c := range []struct {
		name   string
		past   bool
		change func(b *block)
		want   string
	}{
		{"a window of 300", false, window(300), "scale=0.5 causal=1 window=300 mean blocked q k v mask"},
		{"a window of 5000", false, window(5000), "scale=0.5 causal=1 window=5000 mean blocked q k v mask"},
		{"a window of 40000 behind a cache", true, window(40000),
			"scale=0.5 causal=1 window=40000 mean blocked q k v mask past_k past_v"},
		{"a window of more than there are tokens", false, window(math.MaxInt32), usual},
		{"chunks of 50", false, chunk(50), "scale=0.5 mean blocked q k v and_1"},
		{"chunks of 8192", false, chunk(8192), "scale=0.5 mean blocked q k v and_1"},
		{"a table", true, table(60), usual + " past_k past_v"},
		{"a table of a window", true, table(30), "scale=0.5 causal=1 window=30 mean blocked q k v mask past_k past_v"},
		{"queries times a number by position", false, func(b *block) {
			b.product = func(b *block, q, k value) value {
				return b.Op("Mul", b.Op("MatMul", b.Op("Mul", q, later(b, 9000)), b.turned(k)), 0.5)
			}
		}, "scale=0.5 causal=1 mean blocked mul k v mask"},
		{"values times a number by position", false, func(b *block) {
			b.sum = func(b *block, p, v value) value {
				return b.Op("MatMul", p, b.Op("Mul", v, later(b, 9000)))
			}
		}, "scale=0.5 causal=1 mean blocked q reshape mul_1 mask"},
		{"the result times a number by position", false, func(b *block) {
			b.sum = func(b *block, p, v value) value {
				return b.Op("Mul", b.Op("MatMul", p, v), later(b, 9000))
			}
		}, usual},
		{"scores times a number by position", false, func(b *block) {
			b.product = func(b *block, q, k value) value {
				return b.Op("Mul", b.Op("Mul", b.Op("MatMul", q, b.turned(k)), 0.5), later(b, 50))
			}
		}, "scale=0.5 causal=1 mean blocked q unsqueeze_4 k v mask"},
		{"scores times a number by a far position", false, func(b *block) {
			b.product = func(b *block, q, k value) value {
				return b.Op("Mul", b.Op("Mul", b.Op("MatMul", q, b.turned(k)), 0.5), later(b, 9000))
			}
		}, "scale=0.5 causal=1 mean blocked q unsqueeze_4 k v mask"},
		{"the last 5000 keys", false, func(b *block) {
			last := func(v value) value {
				return b.Op("Slice", v, []int64{-5000}, []int64{math.MaxInt64}, []int64{2})
			}
			b.product = func(b *block, q, k value) value {
				return b.Op("Mul", b.Op("MatMul", q, b.turned(last(k))), 0.5)
			}
			b.masked = func(b *block, s, _ value) value { return s }
			b.sum = func(b *block, p, v value) value { return b.Op("MatMul", p, last(v)) }
		}, "scale=0.5 zero blocked q slice slice_1"},
		{"one more in the sum of exponentials", false, func(b *block) {
			b.softmax = func(b *block, s value) value {
				greatest := b.Op("Max", b.Op("ReduceMax", s, []int64{-1}), 0.0)
				e := b.Op("Exp", b.Op("Sub", s, greatest))
				one := b.Op("Exp", b.Op("Neg", greatest))
				return b.Op("Div", e, b.Op("Add", b.Op("ReduceSum", e, []int64{-1}), one))
			}
		}, "scale=0.5 causal=1 zero blocked q k v mask sinks of 0"},
		{"the number of keys more in the sum", false, func(b *block) {
			b.softmax = func(b *block, s value) value {
				return b.Op("Mul", b.Op("Softmax", s, onnx.IntAttr("axis", -1)), 0.5)
			}
		}, "missed: the weights of a query do not add up to 1"},
		{"scores clipped far out", false, func(b *block) {
			b.product = func(b *block, q, k value) value {
				return b.Op("Max", b.Op("Mul", b.Op("MatMul", q, b.turned(k)), 0.5), -1000.0)
			}
		}, "missed: it clips scores"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := found(t, build(c.change, c.past)); got != c.want {
				t.Errorf("%s\nwant %s", got, c.want)
			}
		})
	}
}
