package rewrite

import (
	"bytes"
	"testing"

	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/onnx/onnxtest"
	"github.com/mojo-patch/mojo-patch/rewrite/rewritetest"
)

// TestFittedHalf fits blocks of half types, computed in float32 as PyTorch and JAX write them, or entirely in the half
// type.
func TestFittedHalf(t *testing.T) {
	cast := func(b builder, v value, to onnx.DataType) value {
		return b.Op("Cast", v, onnx.IntAttr("to", int64(to)))
	}
	rows := func(b builder, x value, t onnx.DataType) value { // normalized
		number := func(x float32) value { return cast(b, b.Floats([]int64{}, x), t) }
		mean := b.Op("Div", b.Op("Einsum", x, x, equation("bsc,bsc->bs")), number(channels))
		root := b.Op("Reciprocal", b.Op("Sqrt", b.Op("Add", mean, number(1e-5))))
		return b.Op("Mul", x, b.Op("Unsqueeze", root, []int64{-1}))
	}
	unit := func(b builder, g, u value, t onnx.DataType) value {
		one := cast(b, b.Floats([]int64{}, 1), t)
		return b.Op("Div", b.Op("Mul", g, u), b.Op("Add", b.Op("Exp", b.Op("Neg", g)), one))
	}
	forms := []struct {
		name, op string
		make     func(b builder, x value, t onnx.DataType) value
	}{
		{"scaled in the half type", "RMSNorm", func(b builder, x value, t onnx.DataType) value {
			normalized := cast(b, rows(b, cast(b, x, onnx.Float), onnx.Float), t)
			return b.Op("Mul", normalized, cast(b, vectorOf(b, channels), t))
		}},
		{"scaled in float32", "RMSNorm", func(b builder, x value, t onnx.DataType) value {
			w := cast(b, cast(b, vectorOf(b, channels), t), onnx.Float)
			return cast(b, b.Op("Mul", rows(b, cast(b, x, onnx.Float), onnx.Float), w), t)
		}},
		{"throughout", "RMSNorm", func(b builder, x value, t onnx.DataType) value {
			return b.Op("Mul", rows(b, x, t), cast(b, vectorOf(b, channels), t))
		}},
		{"layer norm", "LayerNormalization", func(b builder, x value, t onnx.DataType) value {
			wide := cast(b, x, onnx.Float)
			centered := b.Op("Sub", wide, b.Op("ReduceMean", wide, []int64{-1}))
			w := cast(b, cast(b, vectorOf(b, channels), t), onnx.Float)
			return cast(b, b.Op("Add", b.Op("Mul", rows(b, centered, onnx.Float), w), w), t)
		}},
		{"rotation", "RotaryEmbedding", func(b builder, x value, t onnx.DataType) value {
			return rotated(func(b builder, x, cos, sin value) value {
				turned := b.Op("MatMul", x, cast(b, signs(b, half), t))
				cos, sin = cast(b, twice(b, cos), t), cast(b, twice(b, sin), t)
				return b.Op("Add", b.Op("Mul", x, cos), b.Op("Mul", turned, sin))
			})(b, x)
		}},
		{"rotation in float32", "RotaryEmbedding", func(b builder, x value,
			t onnx.DataType) value {
			return rotated(func(b builder, x, cos, sin value) value {
				wide := cast(b, x, onnx.Float)
				turned := b.Op("MatMul", wide, signs(b, half))
				return cast(b, b.Op("Add", b.Op("Mul", wide, twice(b, cos)), b.Op("Mul", turned, twice(b, sin))), t)
			})(b, x)
		}},
		{"unit in float32", "GLU", func(b builder, x value, t onnx.DataType) value {
			h := b.Ops(2, "Split", x, onnx.IntAttr("axis", -1), onnx.IntAttr("num_outputs", 2))
			return cast(b, unit(b, cast(b, h[0], onnx.Float), cast(b, h[1], onnx.Float), onnx.Float), t)
		}},
		{"activation in float32", "GLU", func(b builder, x value, t onnx.DataType) value {
			h := b.Ops(2, "Split", x, onnx.IntAttr("axis", -1), onnx.IntAttr("num_outputs", 2))
			g := cast(b, h[0], onnx.Float)
			s := b.Op("Div", g, b.Op("Add", b.Op("Exp", b.Op("Neg", g)), 1.0))
			return b.Op("Mul", cast(b, s, t), h[1])
		}},
		{"unit throughout", "GLU", func(b builder, x value, t onnx.DataType) value {
			h := b.Ops(2, "Split", x, onnx.IntAttr("axis", -1), onnx.IntAttr("num_outputs", 2))
			return unit(b, h[0], h[1], t)
		}},
	}
	for _, form := range forms {
		for _, typ := range []onnx.DataType{onnx.Float16, onnx.BFloat16} {
			t.Run(form.name+"/"+typ.String(), func(t *testing.T) {
				b := onnxtest.New(20)
				b.Output(form.make(b, b.Input("x", typ, "batch", "sequence", channels), typ))
				r := apply(t, b.Model)
				if rewritetest.CountOps(b.Model)[form.op] != 1 {
					var text bytes.Buffer
					r.WriteText(&text)
					t.Errorf("not found\n%s", &text)
				}
			})
		}
	}
}
