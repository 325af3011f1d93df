package sites_test

import (
	"math"
	"testing"

	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/onnx/onnxtest"
	"github.com/mojo-patch/mojo-patch/rewrite"
	"github.com/mojo-patch/mojo-patch/rewrite/applytest"
)

// TestOtherLengths refuses nodes that compute another function only for more tokens than the usual lengths: chunks of
// 200 tokens without the states before them, and the keys of the last 200 tokens.
func TestOtherLengths(t *testing.T) {
	turned := func(b builder, v value, perm ...int64) value {
		return b.Op("Transpose", v, onnx.IntsAttr("perm", perm))
	}
	for name, build := range map[string]func(b builder, q, k, v, gate, n value) value{
		"chunks": func(b builder, q, k, v, gate, n value) value {
			const size = 200
			chunks := inChunks(b, n, size, 0, 0, -1)
			_, scores := scoresOf(b, size, chunks(q, 4), chunks(k, 4), chunks(gate, 1), 0, 1, 2, 4, 3)
			rows := b.Op("Reshape", b.Op("MatMul", scores, chunks(v, 5)), b.Ints(0, 0, -1, 5))
			return b.Op("Slice", rows, b.Ints(0), n, b.Ints(2))
		},
		"window": func(b builder, q, k, v, gate, n value) value {
			sums := b.Op("CumSum", gate, 2)
			places := b.Op("Range", 0, b.Op("Squeeze", n, b.Ints(0)), 1)
			ago := b.Op("Sub", b.Op("Unsqueeze", places, b.Ints(1)), b.Op("Unsqueeze", places, b.Ints(0)))
			near := b.Op("And", b.Op("GreaterOrEqual", ago, 0), b.Op("Less", ago, 200))
			factors := b.Op("Exp", b.Op("Where", near, b.Op("Sub", sums, turned(b, sums, 0, 1, 3, 2)), math.Inf(-1)))
			return b.Op("MatMul", b.Op("Mul", b.Op("MatMul", q, turned(b, k, 0, 1, 3, 2)), factors), v)
		},
	} {
		t.Run(name, func(t *testing.T) {
			b := onnxtest.New(18)
			in := func(name string, width int) value { return b.Input(name, onnx.Float, "b", 2, "n", width) }
			q, k, v, gate := in("q", 4), in("k", 4), in("v", 5), in("gate", 1)
			b.Output(build(b, q, k, v, gate, b.Op("Slice", b.Op("Shape", v), b.Ints(2), b.Ints(3))))
			for _, s := range applytest.Apply(t, b.Model).Sites {
				if s.Op == "LinearAttention" && s.Status == rewrite.Fused {
					t.Errorf("fused: %+v", s.Check)
				}
			}
		})
	}
}
