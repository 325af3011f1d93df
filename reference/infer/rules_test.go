package infer

import (
	"testing"

	"github.com/mojo-patch/mojo-patch/onnx"
)

// TestRules checks what the standard's own tests do not: symbolic dimensions, ops of other domains, and what is left
// when inputs are unknown. batch is 2 and 5, seq 3 and 11.
func TestRules(t *testing.T) {
	i, s, str := onnx.IntAttr, onnx.IntsAttr, onnx.StringAttr
	for _, c := range []struct {
		name string
		make func(b *builder, x, w *onnx.Value) []*onnx.Value
		want []string
	}{
		{"broadcast", func(b *builder, x, w *onnx.Value) []*onnx.Value {
			return in(b.op("Add", in(x, b.weight(3, 1, 1, 1))), b.op("Mul", in(b.weight(64), x)))
		}, []string{"float16[3 2 3 64][3 5 11 64]", "float32[2 3 64][5 11 64]"}},
		{"comparison and Where", func(b *builder, x, w *onnx.Value) []*onnx.Value {
			e := b.op("Equal", in(x, x))
			return in(e, b.op("Where", in(e, b.weight(64), x)), b.op("Not", in(e)))
		}, []string{"bool[2 3 64][5 11 64]", "float32[2 3 64][5 11 64]", "bool[2 3 64][5 11 64]"}},
		{"casts", func(b *builder, x, w *onnx.Value) []*onnx.Value {
			f := b.op("Cast", in(x), i("to", int64(onnx.Float)))
			return in(f, b.op("CastLike", in(f, x)))
		}, []string{"float32[2 3 64][5 11 64]", "float16[2 3 64][5 11 64]"}},
		{"Reshape with 0 and -1", func(b *builder, x, w *onnx.Value) []*onnx.Value {
			r := b.op("Reshape", in(x, b.ints(0, 0, -1, 16)))
			return in(r, b.op("Transpose", in(r), s("perm", []int64{0, 2, 1, 3})), b.op("Reshape", in(x, b.ints(-1, 64))))
		}, []string{"float16[2 3 4 16][5 11 4 16]", "float16[2 4 3 16][5 4 11 16]", "float16[6 64][55 64]"}},
		{"Reshape to an unknown shape", func(b *builder, x, w *onnx.Value) []*onnx.Value {
			return in(b.op("Reshape", in(x, b.input("shape", onnx.Int64, "4"))))
		}, []string{"float16[-1 -1 -1 -1]"}},
		{"Expand to -1", func(b *builder, x, w *onnx.Value) []*onnx.Value {
			return in(b.op("Expand", in(x, b.ints(7, -1, -1, -1))))
		}, []string{"float16[7 2 3 64][7 5 11 64]"}},
		{"Slice", func(b *builder, x, w *onnx.Value) []*onnx.Value {
			return in(b.op("Slice", in(x, b.ints(32), b.ints(1<<62), b.ints(-1))),
				b.op("Slice", in(x, b.ints(-1), b.ints(-1<<62), b.ints(2), b.ints(-2))))
		}, []string{"float16[2 3 32][5 11 32]", "float16[2 3 32][5 11 32]"}},
		{"Split", func(b *builder, x, w *onnx.Value) []*onnx.Value {
			return append(b.ops("Split", in(x, b.ints(16, 48)), 2, i("axis", -1)), b.ops("Split", in(x), 2, i("axis", 2), i("num_outputs", 2))...)
		}, []string{"float16[2 3 16][5 11 16]", "float16[2 3 48][5 11 48]", "float16[2 3 32][5 11 32]", "float16[2 3 32][5 11 32]"}},
		{"Concat", func(b *builder, x, w *onnx.Value) []*onnx.Value {
			return in(b.op("Concat", in(x, x), i("axis", 1)))
		}, []string{"float16[2 6 64][5 22 64]"}},
		{"Gather", func(b *builder, x, w *onnx.Value) []*onnx.Value {
			return in(b.op("Gather", in(x, b.scalar(1)), i("axis", 1)), b.op("Gather", in(x, b.ints(0, 1, 2)), i("axis", 2)))
		}, []string{"float16[2 64][5 64]", "float16[2 3 3][5 11 3]"}},
		{"reductions", func(b *builder, x, w *onnx.Value) []*onnx.Value {
			return in(b.op("ReduceMean", in(x, b.ints(-1))), b.op("ReduceMean", in(x), s("axes", []int64{-1}), i("keepdims", 0)),
				b.op("ReduceSum", in(x, b.input("axes", onnx.Int64, "1"))), b.op("ArgMax", in(x), i("axis", -1), i("keepdims", 0)))
		}, []string{"float16[2 3 1][5 11 1]", "float16[2 3][5 11]", "float16[-1 -1 -1]", "int64[2 3][5 11]"}},
		{"products", func(b *builder, x, w *onnx.Value) []*onnx.Value {
			return in(b.op("MatMul", in(x, w)), b.op("Einsum", in(x, w), str("equation", "...k,kn->n...")),
				b.op("Gemm", in(b.op("Reshape", in(x, b.ints(-1, 64))), b.weight(80, 64)), i("transB", 1)))
		}, []string{"float16[2 3 96][5 11 96]", "float16[96 2 3][96 5 11]", "float16[6 80][55 80]"}},
		{"TopK", func(b *builder, x, w *onnx.Value) []*onnx.Value { return b.ops("TopK", in(x, b.ints(4)), 2) },
			[]string{"float16[2 3 4][5 11 4]", "int64[2 3 4][5 11 4]"}},
		{"norms", func(b *builder, x, w *onnx.Value) []*onnx.Value {
			g := b.weight(64)
			return append(in(b.op("RMSNormalization", in(x, g)), b.op("com.microsoft:SimplifiedLayerNormalization", in(x, x))),
				b.ops("com.microsoft:SkipSimplifiedLayerNormalization", in(x, x, g), 4)...)
		}, []string{"float32[2 3 64][5 11 64]", "float16[2 3 64][5 11 64]", "float16[2 3 64][5 11 64]", "float32[2 3 1][5 11 1]",
			"float32[2 3 1][5 11 1]", "float16[2 3 64][5 11 64]"}},
		{"what stands in their place", func(b *builder, x, w *onnx.Value) []*onnx.Value {
			four, table := b.op("Unsqueeze", in(x, b.ints(1))), b.input("table", onnx.Float16, "seq 32")
			logits, fc1, fc2 := b.input("logits", onnx.Float16, "tokens 8"), b.input("fc1", onnx.Float16, "8 32 64"), b.input("fc2", onnx.Float16, "8 64 16")
			return in(b.op("RotaryEmbedding", in(four, table, table)), b.op("com.microsoft:RotaryEmbedding", in(four, b.ints(0), table, table)),
				b.op("com.microsoft:MoE", in(x, logits, fc1, nil, fc2), i("k", 2)), b.op("com.microsoft:QuickGelu", in(x)), b.op("Swish", in(x)))
		}, []string{"float16[2 1 3 64][5 1 11 64]", "float16[2 1 3 64][5 1 11 64]", "float16[2 3 64][5 11 64]", "float16[2 3 64][5 11 64]",
			"float16[2 3 64][5 11 64]"}},
		{"fused ops", func(b *builder, x, w *onnx.Value) []*onnx.Value {
			g := b.weight(64)
			return append(append(in(b.op("mojo:RMSNorm", in(x, g), i("scale_after_cast", 0)), b.op("mojo:RMSNorm", in(x, g), i("scale_after_cast", 1)),
				b.op("mojo:GLU", in(x, x))), b.ops("mojo:AddRMSNorm", in(x, x, g), 2, i("scale_after_cast", 1))...), b.op("mojo:RotaryEmbedding", in(x, x, x)),
				b.op("mojo:NormRotary", in(x, g, x, x), i("scale_after_cast", 1)), b.op("mojo:NormRotary", in(x, g, x, x), i("scale_after_cast", 0)))
		}, []string{"float16[2 3 64][5 11 64]", "float32[2 3 64][5 11 64]", "float16[2 3 64][5 11 64]", "float32[2 3 64][5 11 64]",
			"float16[2 3 64][5 11 64]", "float16[2 3 64][5 11 64]", "float32[2 3 64][5 11 64]", "float16[2 3 64][5 11 64]"}},
		{"mixture of experts", func(b *builder, x, w *onnx.Value) []*onnx.Value {
			logits, up, down := b.op("MatMul", in(x, w)), b.input("up", onnx.BFloat16, "96 32 64"), b.input("down", onnx.BFloat16, "96 64 16")
			routed := b.ops("mojo:TopKRouter", in(logits), 2, i("top_k", 8))
			// The width of tokens that are not known is that of the experts.
			unknown := b.op("Reshape", in(x, b.input("shape", onnx.Int64, "2")))
			flipped := b.op("Transpose", in(up), s("perm", []int64{0, 2, 1}))
			return append(routed, b.op("mojo:MoE", in(x, routed[0], routed[1], up, down), str("gate_up_layout", "out_in"), str("down_layout", "out_in")),
				b.op("mojo:MoE", in(unknown, routed[0], routed[1], flipped, down), str("gate_up_layout", "in_out"), str("down_layout", "out_in")))
		}, []string{"float32[2 3 8][5 11 8]", "int64[2 3 8][5 11 8]", "float16[2 3 64][5 11 64]", "float16[-1 64]"}},
		{"quantised", func(b *builder, x, w *onnx.Value) []*onnx.Value {
			return in(b.op("com.microsoft:MatMulNBits", in(x, w), i("N", 128), i("K", 64)),
				b.op("com.microsoft:GatherBlockQuantized", in(b.input("q", onnx.Uint8, "1000 32"), b.input("ids", onnx.Int64, "batch seq"), x), i("bits", 4)),
				b.op("DequantizeLinear", in(b.input("p", onnx.Int8, "64"), b.weight(1))), b.op("QuantizeLinear", in(x, b.weight(1))))
		}, []string{"float16[2 3 128][5 11 128]", "float16[2 3 64][5 11 64]", "float32[64]", "uint8[2 3 64][5 11 64]"}},
		{"attention", func(b *builder, x, w *onnx.Value) []*onnx.Value {
			past := b.input("past", onnx.Float16, "batch 2 past 16")
			k := b.op("Slice", in(x, b.ints(0), b.ints(32), b.ints(2)))
			return append(b.ops("Attention", in(x, k, k, nil, past, past), 3, i("q_num_heads", 4), i("kv_num_heads", 2)),
				b.ops("com.microsoft:GroupQueryAttention", in(x, k, k), 1, i("num_heads", 4), i("kv_num_heads", 2))...)
		}, []string{"float16[2 3 64][5 11 64]", "float16[2 2 8 16][5 2 24 16]", "float16[2 2 8 16][5 2 24 16]", "float16[2 3 64][5 11 64]"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := newBuilder(23)
			x := b.input("x", onnx.Float16, "batch seq 64")
			w := b.input("w", onnx.Float16, "64 96")
			out := c.make(b, x, w)
			f := Analyze(b.m)
			if len(out) != len(c.want) {
				t.Fatalf("%d outputs, %d wanted", len(out), len(c.want))
			}
			for k, v := range out {
				wantShapes(t, f, v, c.want[k])
			}
		})
	}
}
