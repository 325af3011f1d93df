package infer

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/reference/infer/rules"
)

// TestAnyInputs runs every op with random, mostly wrong inputs and attributes. Nothing may panic or take long, and
// inferred facts must be well-formed.
func TestAnyInputs(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	intNames := []string{"axis", "keepdims", "allowzero", "batch_dims", "num_outputs", "transA", "to", "num_heads",
		"kv_num_heads",
		"q_num_heads", "N", "bits", "gather_axis", "blocksize", "noop_with_empty_axes", "start", "end", "k",
		"scale_after_cast", "ceil_mode"}
	listNames := []string{"axes", "perm", "split", "pads", "shape", "starts", "ends", "strides", "kernel_shape",
		"dilations"}
	number := func() int64 {
		return []int64{-1 << 62, -3, -2, -1, 0, 0, 1, 1, 2, 3, 4, 7, 1 << 40, 1<<63 - 1}[r.IntN(14)]
	}
	list := func() []int64 {
		v := make([]int64, r.IntN(5))
		for i := range v {
			v[i] = number()
		}
		return v
	}
	for _, key := range rules.Keys() {
		for range 60 {
			b := newBuilder(r.Int64N(27))
			inputs := make([]*onnx.Value, r.IntN(8))
			for i := range inputs {
				switch r.IntN(6) {
				case 0: // omitted
				case 1:
					inputs[i] = b.Ints(list()...)
				case 2:
					inputs[i] = b.scalar(number())
				case 3:
					inputs[i] = b.Graph.AddInput("u", onnx.Type{DataType: onnx.Float})
				case 4:
					inputs[i] = b.weight(slices.Repeat([]int64{2}, r.IntN(4))...)
				default:
					inputs[i] = b.input("x", onnx.Float16,
						[]string{"", "a", "a b", "a 0 4", "a b 4 ?", "2 b 3 a 1"}[r.IntN(6)])
				}
			}
			var attrs []*onnx.Attribute
			for range r.IntN(4) {
				attrs = append(attrs, onnx.IntAttr(intNames[r.IntN(len(intNames))], number()),
					onnx.IntsAttr(listNames[r.IntN(len(listNames))], list()))
			}
			if key.Op == "Einsum" {
				attrs = append(attrs,
					onnx.StringAttr("equation", []string{"", "ij,jk", "...i,i...->...", "a,b->ab->", "ii", ",",
						"i...j"}[r.IntN(7)]))
			}
			out := b.Ops(r.IntN(5), key.Domain+":"+key.Op, inputs, attrs)
			f := Analyze(b.Model)
			for _, v := range out {
				for w, s := range f.of(v).Shape {
					if slices.ContainsFunc(s, func(d int64) bool { return d < -1 }) {
						t.Fatalf("%v%v%v: shape %v", key, inputs, attrs, s)
					}
					if val, ok := f.Known(v, w); ok && !slices.Equal(s, val.Dims()) {
						t.Fatalf("%v: shape %v, elements of %s", key, s, val)
					}
				}
			}
		}
	}
}
