package latentcache

import (
	"slices"
	"testing"

	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/onnx/onnxtest"
	"github.com/mojo-patch/mojo-patch/patterns/attention"
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

// TestKeptShapes: readers of the shapes of caches get the numbers of heads and channels of the old caches.
func TestKeptShapes(t *testing.T) {
	b := onnxtest.New(20)
	past, dropped := b.Input("past_k", onnx.Float, "b", 1, "n", 20), b.Input("past_v", onnx.Float, "b", 4, "n", 6)
	present, presentV := b.Op("Identity", past), b.Op("Identity", dropped)
	want := map[string][]int64{}
	for k, v := range []*onnx.Value{past, dropped, present, presentV} {
		old := [][]int64{{2, 4, 3, 12}, {2, 4, 3, 6}}[k%2]
		for _, part := range [][2]int64{{0, 1}, {2, 3}, {0, 4}, {1, 2}, {1, 4}, {2, 4}, {3, 4}, {0, 2}, {4, 4},
			{-1, 4}} {
			shape := b.Op("Shape", v, onnx.IntAttr("start", part[0]), onnx.IntAttr("end", part[1]))
			b.Output(shape)
			want[shape.Name] = old[(part[0]+4)%4 : part[1]]
			if part[0] == 4 {
				want[shape.Name] = nil
			}
		}
		shape := b.Op("Shape", v)
		b.Output(shape)
		want[shape.Name] = old
	}
	c := &latentChange{Run: &pass.Run{Editor: edit.Editor{Model: b.Model}}}
	s := &latentSite{byHeads: true, latent: &attention.Latent{Heads: 4, Nope: 8, Rotated: 4, Values: 6, Width: 16},
		past: [2]*onnx.Value{past, dropped}, present: [2]*onnx.Value{present, presentV}}
	c.keepShapes(s, 0)
	c.keepShapes(s, 1)
	if err := c.edit.Finish(); err != nil {
		t.Fatal(err)
	}
	in := reference.NewFloats(onnx.Float, []int{2, 1, 3, 20}, make([]float64, 120))
	other := reference.NewFloats(onnx.Float, []int{1, 4, 1, 6}, make([]float64, 24)) // nothing may read it
	got := rewritetest.Run(t, b.Model, map[string]*reference.Tensor{"past_k": in, "past_v": other})
	for name, shape := range want {
		if !slices.Equal(got[name].I, shape) {
			t.Errorf("%s is %v, want %v", name, got[name].I, shape)
		}
	}
}
