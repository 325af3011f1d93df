package rewrite

import (
	"fmt"
	"testing"

	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/onnx/onnxtest"
	"github.com/mojo-patch/mojo-patch/patterns"
	"github.com/mojo-patch/mojo-patch/patterns/reason"
)

// TestTablesOfOtherRows refuses a rotation whose tables may have more rows than the rotated tensor: the nodes then
// return more rows than the op.
func TestTablesOfOtherRows(t *testing.T) {
	for rows, fused := range map[any]bool{"sequence": true, 1: true, "places": false} {
		t.Run(fmt.Sprint(rows), func(t *testing.T) {
			b := onnxtest.New(20)
			x := b.Input("x", onnx.Float, "batch", "sequence", 8)
			c, s := b.Input("c", onnx.Float, rows, 8), b.Input("s", onnx.Float, rows, 8)
			lower := b.Op("Slice", x, []int64{0}, []int64{4}, []int64{-1})
			upper := b.Op("Slice", x, []int64{4}, []int64{1 << 62}, []int64{-1})
			turned := b.Op("Concat", b.Op("Neg", upper), lower, onnx.IntAttr("axis", -1))
			y := b.Op("Add", b.Op("Mul", x, c), b.Op("Mul", turned, s))
			b.Output(y)
			site := judgeOne(t, b.Model, &patterns.Match{Pattern: "RotaryEmbedding", Op: "RotaryEmbedding",
				Inputs: []value{x, c, s}, Outputs: []value{y}, Attributes: []*onnx.Attribute{
					onnx.IntAttr("interleaved", 0), onnx.IntAttr("rotary_dim", 8),
					onnx.StringAttr("rotated_side", "first"), onnx.StringAttr("output_layout", "halves")}})
			if (site.Status == Fused) != fused || !fused && site.Code != reason.Unknown {
				t.Errorf("%s, %s: %s", site.Status, site.Code, site.Reason)
			}
		})
	}
}
