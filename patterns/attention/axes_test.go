package attention_test

import (
	"testing"

	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/onnx/onnxtest"
	"github.com/mojo-patch/mojo-patch/reference"
)

type value = *onnx.Value

// TestAttentionAxes reads blocks whose tensors have their dimensions in other orders, or fewer of them.
func TestAttentionAxes(t *testing.T) {
	transposed := func(b *onnxtest.Builder, v value, perm ...int64) value {
		return b.Op("Transpose", v, onnx.IntsAttr("perm", perm))
	}
	softmax := func(b *onnxtest.Builder, v value, axis int) value {
		return b.Op("Softmax", b.Op("Mul", v, 0.5), onnx.IntAttr("axis", int64(axis)))
	}
	einsum := func(dims []any, scores, sum string, axis int) func(*onnxtest.Builder) {
		return func(b *onnxtest.Builder) {
			q, k := b.Input("q", onnx.Float, dims...), b.Input("k", onnx.Float, dims...)
			v := b.Input("v", onnx.Float, dims...)
			s := b.Op("Einsum", q, k, onnx.StringAttr("equation", scores))
			b.Output(b.Op("Einsum", softmax(b, s, axis), v, onnx.StringAttr("equation", sum)))
		}
	}
	rows, sequenceFirst := []any{"batch", "seq", 4, 8}, []any{"seq", "batch", 4, 8}
	for _, c := range []struct {
		name  string
		build func(b *onnxtest.Builder)
		want  string
	}{
		{"heads last", einsum(rows, "bqhd,bkhd->bhqk", "bhqk,bkhd->bqhd", -1), "scale=0.5 zero blocked q k v"},
		{"rows before heads", einsum(rows, "bqhd,bkhd->bqhk", "bqhk,bkhd->bqhd", -1), "scale=0.5 zero blocked q k v"},
		{"heads first", einsum(rows, "bqhd,bkhd->hbqk", "hbqk,bkhd->bqhd", -1), "scale=0.5 zero blocked q k v"},
		{"keys before queries", einsum(rows, "bqhd,bkhd->bhkq", "bhkq,bkhd->bqhd", 2), "scale=0.5 zero blocked q k v"},
		{"keys as the first operand", einsum(rows, "bkhd,bqhd->bhqk", "bhqk,bkhd->bqhd", -1),
			"scale=0.5 zero blocked k q v"},
		{"rows, then the batch", einsum(sequenceFirst, "ibnd,jbnd->ijbn", "ijbn,jbnd->ibnd", 1),
			"scale=0.5 zero blocked q k v"},
		{"softmax over the queries", einsum(rows, "bqhd,bkhd->bhqk", "bhqk,bkhd->bqhd", 2),
			"missed: the weights are not the softmax of scores times one number plus a mask"},
		{"sums over the queries", einsum(rows, "bqhd,bkhd->bhqk", "bhqk,bqhd->bkhd", -1),
			"missed: the weights are not the softmax of scores times one number plus a mask"},
		{"products of keys and queries", func(b *onnxtest.Builder) {
			q, k := b.Input("q", onnx.Float, "batch", 4, "queries", 8), b.Input("k", onnx.Float, "batch", 4, "keys", 8)
			v := b.Input("v", onnx.Float, "batch", 4, "keys", 6)
			p := softmax(b, b.Op("MatMul", k, transposed(b, q, 0, 1, 3, 2)), 2)
			b.Output(transposed(b, b.Op("MatMul", transposed(b, v, 0, 1, 3, 2), p), 0, 3, 1, 2))
		}, "scale=0.5 zero blocked q k v"},
		{"heads in the rows of one head's keys", func(b *onnxtest.Builder) {
			q, k := b.Input("q", onnx.Float, "batch", "seq", 32), b.Input("k", onnx.Float, "batch", "seq", 8)
			v := b.Input("v", onnx.Float, "batch", "seq", 8)
			dims := b.Op("Concat", b.Op("Slice", b.Op("Shape", q), []int64{0}, []int64{1}), []int64{-1}, []int64{8},
				onnx.IntAttr("axis", 0))
			p := softmax(b, b.Op("MatMul", b.Op("Reshape", q, dims), transposed(b, k, 0, 2, 1)), -1)
			b.Output(b.Op("Reshape", b.Op("MatMul", p, v), b.Op("Shape", q)))
		}, "scale=0.5 zero blocked q k v"},
		{"heads in the batch, rows first", func(b *onnxtest.Builder) {
			by := func(name string) value {
				x := b.Input(name, onnx.Float, "seq", "batch", 32)
				dims := b.Op("Concat", b.Op("Slice", b.Op("Shape", x), []int64{0}, []int64{1}), []int64{-1}, []int64{8},
					onnx.IntAttr("axis", 0))
				return transposed(b, b.Op("Reshape", x, dims), 1, 0, 2)
			}
			q, k, v := by("q"), by("k"), by("v")
			p := softmax(b, b.Op("MatMul", q, transposed(b, k, 0, 2, 1)), -1)
			shape := b.Op("Shape", b.Graph.Inputs[0])
			b.Output(b.Op("Reshape", transposed(b, b.Op("MatMul", p, v), 1, 0, 2), shape))
		}, "scale=0.5 zero blocked q k v"},
		{"without a batch", func(b *onnxtest.Builder) {
			q, k := b.Input("q", onnx.Float, 4, "seq", 8), b.Input("k", onnx.Float, 4, "seq", 8)
			v := b.Input("v", onnx.Float, 4, "seq", 8)
			b.Output(b.Op("MatMul", softmax(b, b.Op("MatMul", q, transposed(b, k, 0, 2, 1)), -1), v))
		}, "scale=0.5 zero blocked q k v"},
		{"keys of one length", func(b *onnxtest.Builder) {
			q, k := b.Input("q", onnx.Float, "batch", 4, "queries", 8), b.Input("k", onnx.Float, "batch", 4, 11, 8)
			v := b.Input("v", onnx.Float, "batch", 4, 11, 8)
			b.Output(b.Op("MatMul", softmax(b, b.Op("MatMul", q, transposed(b, k, 0, 1, 3, 2)), -1), v))
		}, "scale=0.5 zero blocked q k v"},
		{"sequences of a window each", func(b *onnxtest.Builder) { // 6 windows of an image, 4 tokens of each
			x := b.Input("x", onnx.Float, "images", 24, 32)
			by := func() value {
				return transposed(b, b.Op("Reshape", x, []int64{-1, 4, 4, 8}), 0, 2, 1, 3)
			}
			c := reference.NewFloats(onnx.Float, []int{1, 1, 4, 4},
				[]float64{0, 1, 2, 3, 1, 0, 1, 2, 2, 1, 0, 1, 3, 2, 1, 0})
			near, _ := c.ToONNX("near")
			dims := b.Op("Concat", b.Op("Mul", b.Op("Slice", b.Op("Shape", x), []int64{0}, []int64{1}), []int64{6}),
				[]int64{1, 4, 4}, onnx.IntAttr("axis", 0))
			bias := b.Op("Expand", b.Graph.AddInitializer(near), dims)
			s := b.Op("Add", b.Op("Mul", b.Op("MatMul", by(), transposed(b, by(), 0, 1, 3, 2)), 0.5), bias)
			b.Output(b.Op("MatMul", b.Op("Softmax", s, onnx.IntAttr("axis", -1)), by()))
		}, "scale=0.5 zero blocked reshape reshape_1 reshape_2 expand"},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := onnxtest.New(18)
			c.build(b)
			if got := found(t, b.Model); got != c.want {
				t.Errorf("%s\nwant %s", got, c.want)
			}
		})
	}
}
