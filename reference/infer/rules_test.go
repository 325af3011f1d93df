package infer

import (
	"testing"

	"github.com/mojo-patch/mojo-patch/onnx"
)

type value = *onnx.Value

// TestRules covers cases beyond the standard's own tests: symbolic dimensions, ops of other domains, and partial
// results for unknown inputs. batch is 2 and 5, seq 3 and 11.
func TestRules(t *testing.T) {
	i, s, str := onnx.IntAttr, onnx.IntsAttr, onnx.StringAttr
	for _, c := range []struct {
		name string
		make func(b *builder, x, w value) []value
		want []string
	}{
		{"broadcast", func(b *builder, x, w value) []value {
			return values(b.Op("Add", x, b.weight(3, 1, 1, 1)), b.Op("Mul", b.weight(64), x))
		}, []string{"float16[3 2 3 64][3 5 11 64]", "float32[2 3 64][5 11 64]"}},
		{"comparison and Where", func(b *builder, x, w value) []value {
			e := b.Op("Equal", x, x)
			return values(e, b.Op("Where", e, b.weight(64), x), b.Op("Not", e))
		}, []string{"bool[2 3 64][5 11 64]", "float32[2 3 64][5 11 64]", "bool[2 3 64][5 11 64]"}},
		{"casts", func(b *builder, x, w value) []value {
			f := b.Op("Cast", x, i("to", int64(onnx.Float)))
			return values(f, b.Op("CastLike", f, x))
		}, []string{"float32[2 3 64][5 11 64]", "float16[2 3 64][5 11 64]"}},
		{"Reshape with 0 and -1", func(b *builder, x, w value) []value {
			r := b.Op("Reshape", x, b.Ints(0, 0, -1, 16))
			return values(r, b.Op("Transpose", r, s("perm", []int64{0, 2, 1, 3})), b.Op("Reshape", x, b.Ints(-1, 64)))
		}, []string{"float16[2 3 4 16][5 11 4 16]", "float16[2 4 3 16][5 4 11 16]", "float16[6 64][55 64]"}},
		{"Reshape to an unknown shape", func(b *builder, x, w value) []value {
			return values(b.Op("Reshape", x, b.input("shape", onnx.Int64, "4")))
		}, []string{"float16[-1 -1 -1 -1]"}},
		{"Reshape of nothing", func(b *builder, x, w value) []value {
			unknown := b.Op("Reshape", x, b.input("shape", onnx.Int64, "2"))
			none := b.Op("Slice", unknown, b.Ints(0), b.Ints(0), b.Ints(1))
			return values(none, b.Op("Reshape", none, b.Ints(-1, 4)))
		}, []string{"float16[-1 0]", "float16[0 4]"}},
		{"Expand to -1", func(b *builder, x, w value) []value {
			return values(b.Op("Expand", x, b.Ints(7, -1, -1, -1)))
		}, []string{"float16[7 2 3 64][7 5 11 64]"}},
		{"ConstantOfShape", func(b *builder, x, w value) []value {
			return values(b.Op("ConstantOfShape", b.Op("Shape", x)), b.Op("ConstantOfShape", b.Ints(2, -1)),
				b.Op("ConstantOfShape", b.input("shape", onnx.Int64, "3")))
		}, []string{"float32[2 3 64][5 11 64]", "float32[-1 -1]", "float32[-1 -1 -1]"}},
		{"Range that does not end", func(b *builder, x, w value) []value {
			return values(b.Op("Range", 0, 5, 0), b.Op("Range", 0, 0, 0), b.Op("Range", 5, 0, -2),
				b.Op("Range", 0, 1<<50, 1))
		}, []string{"int64[-1]", "int64[-1]", "int64[3]", "int64[-1]"}},
		{"depth and space", func(b *builder, x, w value) []value {
			r := b.Op("Reshape", x, b.Ints(0, 16, 2, -1))
			return values(b.Op("DepthToSpace", r, i("blocksize", 2)), b.Op("SpaceToDepth", r, i("blocksize", 2)))
		}, []string{"float16[2 4 4 12][5 4 4 44]", "float16[2 64 1 3][5 64 1 11]"}},
		{"Slice", func(b *builder, x, w value) []value {
			return values(b.Op("Slice", x, b.Ints(32), b.Ints(1<<62), b.Ints(-1)),
				b.Op("Slice", x, b.Ints(-1), b.Ints(-1<<62), b.Ints(2), b.Ints(-2)))
		}, []string{"float16[2 3 32][5 11 32]", "float16[2 3 32][5 11 32]"}},
		{"Split", func(b *builder, x, w value) []value {
			return append(b.Ops(2, "Split", x, b.Ints(16, 48), i("axis", -1)),
				b.Ops(2, "Split", x, i("axis", 2), i("num_outputs", 2))...)
		}, []string{"float16[2 3 16][5 11 16]", "float16[2 3 48][5 11 48]", "float16[2 3 32][5 11 32]",
			"float16[2 3 32][5 11 32]"}},
		{"elements of a split", func(b *builder, x, w value) []value {
			at := func(n int64, split ...any) value {
				list := b.Op("SplitToSequence", append(append([]any{x}, split...), i("axis", 2))...)
				return b.Op("SequenceAt", list, b.scalar(n))
			}
			single := b.Op("SplitToSequence", x, i("axis", -1), i("keepdims", 0))
			open := b.input("i", onnx.Int64, "")
			return values(at(0, b.Ints(16, 48)), at(-1, b.Ints(16, 48)), at(2, b.Ints(16, 48)), at(0, b.scalar(40)),
				at(1, b.scalar(40)), at(-1, b.scalar(40)), at(2, b.scalar(40)), at(-2), at(1, i("keepdims", 0)),
				b.Op("SequenceAt", single, open), b.Op("SequenceAt", b.Op("SplitToSequence", x, b.Ints(32, 32),
					i("axis", 2)), open))
		}, []string{"float16[2 3 16][5 11 16]", "float16[2 3 48][5 11 48]", "float16[2 3 -1][5 11 -1]",
			"float16[2 3 40][5 11 40]", "float16[2 3 24][5 11 24]", "float16[2 3 24][5 11 24]",
			"float16[2 3 -1][5 11 -1]", "float16[2 3 1][5 11 1]", "float16[2 3][5 11]", "float16[2 3][5 11]",
			"float16[2 3 -1][5 11 -1]"}},
		{"elements put together", func(b *builder, x, w value) []value {
			list := b.Op("SequenceConstruct", x, b.Op("Transpose", x, s("perm", []int64{0, 2, 1})))
			at := func(n any) value { return b.Op("SequenceAt", list, n) }
			return values(at(b.scalar(1)), at(b.scalar(-2)), at(b.scalar(2)), at(b.input("i", onnx.Int64, "")))
		}, []string{"float16[2 64 3][5 64 11]", "float16[2 3 64][5 11 64]", "float16 ?", "float16 ?"}},
		{"Concat", func(b *builder, x, w value) []value {
			return values(b.Op("Concat", x, x, i("axis", 1)))
		}, []string{"float16[2 6 64][5 22 64]"}},
		{"Gather", func(b *builder, x, w value) []value {
			return values(b.Op("Gather", x, 1, i("axis", 1)), b.Op("Gather", x, b.Ints(0, 1, 2), i("axis", 2)))
		}, []string{"float16[2 64][5 64]", "float16[2 3 3][5 11 3]"}},
		{"reductions", func(b *builder, x, w value) []value {
			return values(b.Op("ReduceMean", x, b.Ints(-1)),
				b.Op("ReduceMean", x, s("axes", []int64{-1}), i("keepdims", 0)),
				b.Op("ReduceSum", x, b.input("axes", onnx.Int64, "1")),
				b.Op("ArgMax", x, i("axis", -1), i("keepdims", 0)))
		}, []string{"float16[2 3 1][5 11 1]", "float16[2 3][5 11]", "float16[-1 -1 -1]", "int64[2 3][5 11]"}},
		{"products", func(b *builder, x, w value) []value {
			return values(b.Op("MatMul", x, w), b.Op("Einsum", x, w, str("equation", "...k,kn->n...")),
				b.Op("Gemm", b.Op("Reshape", x, b.Ints(-1, 64)), b.weight(80, 64), i("transB", 1)))
		}, []string{"float16[2 3 96][5 11 96]", "float16[96 2 3][96 5 11]", "float16[6 80][55 80]"}},
		{"TopK", func(b *builder, x, w value) []value { return b.Ops(2, "TopK", x, b.Ints(4)) },
			[]string{"float16[2 3 4][5 11 4]", "int64[2 3 4][5 11 4]"}},
		{"norms", func(b *builder, x, w value) []value {
			g := b.weight(64)
			return append(values(b.Op("RMSNormalization", x, g),
				b.Op("com.microsoft:SimplifiedLayerNormalization", x, x)),
				b.Ops(4, "com.microsoft:SkipSimplifiedLayerNormalization", x, x, g)...)
		}, []string{"float32[2 3 64][5 11 64]", "float16[2 3 64][5 11 64]", "float16[2 3 64][5 11 64]",
			"float32[2 3 1][5 11 1]",
			"float32[2 3 1][5 11 1]", "float16[2 3 64][5 11 64]"}},
		{"what stands in their place", func(b *builder, x, w value) []value {
			four, table := b.Op("Unsqueeze", x, b.Ints(1)), b.input("table", onnx.Float16, "seq 32")
			logits, fc1, fc2 := b.input("logits", onnx.Float16, "tokens 8"), b.input("fc1", onnx.Float16, "8 32 64"),
				b.input("fc2", onnx.Float16, "8 64 16")
			return values(b.Op("RotaryEmbedding", four, table, table),
				b.Op("com.microsoft:RotaryEmbedding", four, b.Ints(0), table, table),
				b.Op("com.microsoft:MoE", x, logits, fc1, nil, fc2, i("k", 2)), b.Op("com.microsoft:QuickGelu", x),
				b.Op("Swish", x))
		}, []string{"float16[2 1 3 64][5 1 11 64]", "float16[2 1 3 64][5 1 11 64]", "float16[2 3 64][5 11 64]",
			"float16[2 3 64][5 11 64]",
			"float16[2 3 64][5 11 64]"}},
		{"fused ops", func(b *builder, x, w value) []value {
			g := b.weight(64)
			return append(append(values(b.Op("mojo:RMSNorm", x, g, i("scale_after_cast", 0)),
				b.Op("mojo:RMSNorm", x, g, i("scale_after_cast", 1)),
				b.Op("mojo:GLU", x, x)), b.Ops(2, "mojo:AddRMSNorm", x, x, g, i("scale_after_cast", 1))...),
				b.Op("mojo:RotaryEmbedding", x, x, x),
				b.Op("mojo:NormRotary", x, g, x, x, i("scale_after_cast", 1)),
				b.Op("mojo:NormRotary", x, g, x, x, i("scale_after_cast", 0)))
		}, []string{"float16[2 3 64][5 11 64]", "float32[2 3 64][5 11 64]", "float16[2 3 64][5 11 64]",
			"float32[2 3 64][5 11 64]",
			"float16[2 3 64][5 11 64]", "float16[2 3 64][5 11 64]", "float32[2 3 64][5 11 64]",
			"float16[2 3 64][5 11 64]"}},
		{"mixture of experts", func(b *builder, x, w value) []value {
			logits, up, down := b.Op("MatMul", x, w), b.input("up", onnx.BFloat16, "96 32 64"),
				b.input("down", onnx.BFloat16, "96 64 16")
			routed := b.Ops(2, "mojo:TopKRouter", logits, i("top_k", 8))
			// The width of unknown tokens is that of the experts.
			unknown := b.Op("Reshape", x, b.input("shape", onnx.Int64, "2"))
			flipped := b.Op("Transpose", up, s("perm", []int64{0, 2, 1}))
			return append(routed, b.Op("mojo:MoE", x, routed[0], routed[1], up, down, str("gate_up_layout", "out_in"),
				str("down_layout", "out_in")),
				b.Op("mojo:MoE", unknown, routed[0], routed[1], flipped, down, str("gate_up_layout", "in_out"),
					str("down_layout", "out_in")))
		}, []string{"float32[2 3 8][5 11 8]", "int64[2 3 8][5 11 8]", "float16[2 3 64][5 11 64]", "float16[-1 64]"}},
		{"quantized", func(b *builder, x, w value) []value {
			return values(b.Op("com.microsoft:MatMulNBits", x, w, i("N", 128), i("K", 64)),
				b.Op("com.microsoft:GatherBlockQuantized", b.input("q", onnx.Uint8, "1000 32"),
					b.input("ids", onnx.Int64, "batch seq"), x, i("bits", 4)),
				b.Op("DequantizeLinear", b.input("p", onnx.Int8, "64"), b.weight(1)),
				b.Op("QuantizeLinear", x, b.weight(1)))
		}, []string{"float16[2 3 128][5 11 128]", "float16[2 3 64][5 11 64]", "float32[64]", "uint8[2 3 64][5 11 64]"}},
		{"attention", func(b *builder, x, w value) []value {
			past := b.input("past", onnx.Float16, "batch 2 past 16")
			k := b.Op("Slice", x, b.Ints(0), b.Ints(32), b.Ints(2))
			return append(b.Ops(3, "Attention", x, k, k, nil, past, past, i("q_num_heads", 4), i("kv_num_heads", 2)),
				b.Ops(1, "com.microsoft:GroupQueryAttention", x, k, k, i("num_heads", 4), i("kv_num_heads", 2))...)
		}, []string{"float16[2 3 64][5 11 64]", "float16[2 2 8 16][5 2 24 16]", "float16[2 2 8 16][5 2 24 16]",
			"float16[2 3 64][5 11 64]"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := newBuilder(23)
			x := b.input("x", onnx.Float16, "batch seq 64")
			w := b.input("w", onnx.Float16, "64 96")
			out := c.make(b, x, w)
			f := Analyze(b.Model)
			if len(out) != len(c.want) {
				t.Fatalf("%d outputs, %d wanted", len(out), len(c.want))
			}
			for k, v := range out {
				wantShapes(t, f, v, c.want[k])
			}
		})
	}
}
