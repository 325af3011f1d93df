package rewrite

import (
	"math"
	"slices"
	"testing"

	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/onnx/onnxtest"
	"github.com/mojo-patch/mojo-patch/reference"
	"github.com/mojo-patch/mojo-patch/rewrite/prove"
	"github.com/mojo-patch/mojo-patch/rewrite/rewritetest"
	"github.com/mojo-patch/mojo-patch/rewrite/staticcache"
)

// groupQueryModel is one node as onnxruntime-genai's builder writes it: packed, with a rotation inside, and lengths
// from the mask.
func groupQueryModel() *onnx.Model {
	b := onnxtest.New(21)
	typed := func(v value, dims ...any) value { v.SetType(onnxtest.Type(onnx.Float, dims...)); return v }
	mask := b.Input("attention_mask", onnx.Int64, "batch", "total")
	qkv := b.Input("qkv", onnx.Float, "batch", "queries", 8*16)
	past := []value{b.Input("past_key", onnx.Float, "batch", 2, "past", 16),
		b.Input("past_value", onnx.Float, "batch", 2, "past", 16)}
	to32 := onnx.IntAttr("to", int64(onnx.Int32))
	sum := b.Op("ReduceSum", mask, []int64{1}, onnx.IntAttr("keepdims", 0))
	var cos, sin []float32
	for i := range 32 * 8 {
		angle := float64(i/8) * math.Pow(100, -float64(i%8)/8)
		cos, sin = append(cos, float32(math.Cos(angle))), append(sin, float32(math.Sin(angle)))
	}
	table := []int64{32, 8}
	out := b.Ops(3, "com.microsoft:GroupQueryAttention", qkv, nil, nil, past[0], past[1],
		b.Op("Cast", b.Op("Sub", sum, []int64{1}), to32),
		b.Op("Cast", b.Op("Gather", b.Op("Shape", mask), 1), to32), b.Floats(table, cos...), b.Floats(table, sin...),
		onnx.IntAttr("num_heads", 4), onnx.IntAttr("kv_num_heads", 2), onnx.IntAttr("do_rotary", 1))
	b.Output(out[0])
	b.Output(typed(out[1], "batch", 2, "total", 16))
	b.Output(typed(out[2], "batch", 2, "total", 16))
	return b.Model
}

// TestGroupQueryAttention compares the op with its replacement on prompts with right padding and on tokens after a
// past, in growing caches and in buffers.
func TestGroupQueryAttention(t *testing.T) {
	original := groupQueryModel()
	for _, cache := range []*staticcache.Options{nil, {}} {
		m := groupQueryModel()
		if r := apply(t, m, Request{StaticCache: cache}); r.Sites[0].Check.Cases < 8 ||
			rewritetest.CountOps(m)["GroupQueryAttention"] > 0 {
			t.Fatalf("reported %+v", r.Sites)
		}
		for _, at := range []struct{ batch, queries, past, padding int }{{3, 7, 0, 2}, {2, 1, 5, 0}, {1, 4, 6, 0}} {
			inputs := func(room int) map[string]*reference.Tensor {
				mask := prove.Padding{Exists: func(b, j, n int) bool { return j < n-b*at.padding }}
				in := map[string]*reference.Tensor{"attention_mask": mask.Tensor(onnx.Int64,
					[]int64{int64(at.batch), int64(at.past + at.queries)})}
				for i, name := range []string{"qkv", "past_key", "past_value"} {
					dims := []int64{int64(at.batch), int64(at.queries), 128}
					if i > 0 {
						dims = []int64{int64(at.batch), 2, int64(at.past), 16}
					}
					x, err := prove.MakeInput(prove.Normal, i, onnx.Float, dims)
					if err != nil {
						t.Fatal(err)
					}
					if in[name] = x; i > 0 && room > 0 {
						shape := []int{at.batch, 2, room, 16}
						in[name] = reference.NewFloats(onnx.Float, shape, make([]float64, at.batch*2*room*16))
						prove.CopyRows(in[name], x)
					}
				}
				return in
			}
			room := 0
			if cache != nil {
				room = 12
			}
			want, got := rewritetest.Run(t, original, inputs(0)), rewritetest.Run(t, m, inputs(room))
			for i, v := range original.Graph.Outputs {
				w, g := want[v.Name], got[m.Graph.Outputs[i].Name]
				if i > 0 && room > 0 {
					grown := reference.NewFloats(onnx.Float, g.Shape, slices.Clone(g.F))
					prove.CopyRows(grown, w)
					w = grown
				}
				d, scale := prove.Distance(w.F, g.F)
				if !slices.Equal(w.Shape, g.Shape) || d > 16*prove.Spacing(onnx.Float, scale) {
					t.Errorf("%v, %v: %q differs by %g", at, cache != nil, v.Name, d)
				}
			}
		}
	}
}
