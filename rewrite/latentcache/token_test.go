package latentcache

import (
	"fmt"
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
	for _, dims := range [][]any{{2, 3, 4}, {2, 1, 3, 4}, {2, 3, 1, 4}, {2, 1, 4}} {
		for _, head := range []bool{true, false} {
			b := onnxtest.New(20)
			x := b.Op("Identity", b.Input("x", onnx.Float, dims...))
			c := &latentChange{Run: &pass.Run{Editor: edit.Editor{Model: b.Model}}, facts: infer.Analyze(b.Model)}
			y := c.perToken(x, head)
			if err := c.edit.Finish(); err != nil {
				t.Fatal(err)
			}
			b.Output(y)
			in := reference.NewFloats(onnx.Float, nil, make([]float64, 0, 24))
			for i, n := 0, 1; i < len(dims); i++ {
				in.Shape, n = append(in.Shape, dims[i].(int)), n*dims[i].(int)
				for len(in.F) < n {
					in.F = append(in.F, float64(len(in.F)))
				}
			}
			want := slices.DeleteFunc(slices.Clone(in.Shape[1:]), func(n int) bool { return n == 1 && len(dims) == 4 })
			if want = append([]int{2}, want...); head {
				want = slices.Insert(want, 1, 1)
			}
			got := rewritetest.Run(t, b.Model, map[string]*reference.Tensor{"x": in})[y.Name]
			if fmt.Sprint(got.Shape) != fmt.Sprint(want) || !slices.Equal(got.F, in.F) {
				t.Errorf("%v with a head %v: %v, want %v", dims, head, got.Shape, want)
			}
		}
	}
}
