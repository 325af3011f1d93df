package latentcache

import (
	"slices"
	"testing"

	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/onnx/onnxtest"
	"github.com/mojo-patch/mojo-patch/reference"
	"github.com/mojo-patch/mojo-patch/reference/infer"
	"github.com/mojo-patch/mojo-patch/rewrite/edit"
	"github.com/mojo-patch/mojo-patch/rewrite/pass"
	"github.com/mojo-patch/mojo-patch/rewrite/rewritetest"
)

// TestPerToken: rows of tokens with a head of one, before or behind the tokens, or none, keep their order.
func TestPerToken(t *testing.T) {
	for _, dims := range [][]any{{2, 3, 2}, {2, 1, 3, 2}, {2, 3, 1, 2}} {
		for _, want := range [][]int{{2, 3, 2}, {2, 1, 3, 2}} {
			b := onnxtest.New(20)
			x := b.Op("Identity", b.Input("x", onnx.Float, dims...))
			c := &latentChange{Run: &pass.Run{Editor: edit.Editor{Model: b.Model}}, facts: infer.Analyze(b.Model)}
			y := c.perToken(x, len(want) == 4)
			if err := c.edit.Finish(); err != nil {
				t.Fatal(err)
			}
			b.Output(y)
			in := reference.NewFloats(onnx.Float, nil, []float64{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12})
			for _, d := range dims {
				in.Shape = append(in.Shape, d.(int))
			}
			got := rewritetest.Run(t, b.Model, map[string]*reference.Tensor{"x": in})[y.Name]
			if !slices.Equal(got.Shape, want) || !slices.Equal(got.F, in.F) {
				t.Errorf("%v: %v, want %v", dims, got, want)
			}
		}
	}
}
