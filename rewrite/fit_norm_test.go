package rewrite

import (
	"bytes"
	"math"
	"testing"

	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/onnx/onnxtest"
	"github.com/mojo-patch/mojo-patch/rewrite/prove"
	"github.com/mojo-patch/mojo-patch/rewrite/rewritetest"
)

// fitted is a spelling, applied to a tensor x, that no pattern lists, and the op that it is fitted to: "" for a
// lookalike that is another function.
type fitted struct {
	name string
	op   string
	make func(b builder, x value) value
}

const channels = 12

func vectorOf(b builder, n int) value {
	w := make([]float32, n)
	for i := range w {
		w[i] = 0.5 + float32(i%7)/8
	}
	return b.Floats([]int64{int64(n)}, w...)
}

func equation(text string) *onnx.Attribute { return onnx.StringAttr("equation", text) }

// rootOf returns 1 / sqrt(mean + epsilon).
func rootOf(b builder, mean value) value {
	return b.Op("Reciprocal", b.Op("Sqrt", b.Op("Add", mean, 1e-5)))
}

var fittedNorms = []fitted{
	{"mean by Einsum", "RMSNorm", func(b builder, x value) value {
		mean := b.Op("Div", b.Op("Einsum", x, x, equation("bsc,bsc->bs")), float64(channels))
		return b.Op("Mul", b.Op("Mul", x, b.Op("Unsqueeze", rootOf(b, mean), []int64{-1})), vectorOf(b, channels))
	}},
	{"mean by Einsum, scaled by Einsum", "RMSNorm", func(b builder, x value) value {
		mean := b.Op("Div", b.Op("Einsum", x, x, equation("bsc,bsc->bs")), float64(channels))
		return b.Op("Einsum", x, rootOf(b, mean), vectorOf(b, channels), equation("bsc,bs,c->bsc"))
	}},
	{"ReduceL2", "RMSNorm", func(b builder, x value) value {
		l2 := b.Op("ReduceL2", x, []int64{-1})
		mean := b.Op("Div", b.Op("Pow", l2, 2.0), float64(channels))
		return b.Op("Mul", b.Op("Div", x, b.Op("Sqrt", b.Op("Add", mean, 1e-5))), vectorOf(b, channels))
	}},
	{"product with ones", "RMSNorm", func(b builder, x value) value {
		ones := make([]float32, channels)
		for i := range ones {
			ones[i] = 1.0 / channels
		}
		mean := b.Op("MatMul", b.Op("Mul", x, x), b.Floats([]int64{channels, 1}, ones...))
		return b.Op("Mul", vectorOf(b, channels), b.Op("Mul", x, rootOf(b, mean)))
	}},
	{"ReduceSumSquare", "RMSNorm", func(b builder, x value) value {
		sum := b.Op("ReduceSumSquare", x, []int64{-1})
		root := b.Op("Sqrt", b.Op("Add", sum, float64(channels)*1e-5))
		return b.Op("Mul", b.Op("Div", b.Op("Mul", x, math.Sqrt(channels)), root), vectorOf(b, channels))
	}},
	{"a sum in the place of the mean", "RMSNorm", func(b builder, x value) value {
		sum := b.Op("ReduceSumSquare", x, []int64{-1})
		root := b.Op("Sqrt", b.Op("Add", sum, float64(channels)*1e-5))
		return b.Op("Mul", b.Op("Div", x, root), vectorOf(b, channels))
	}},
	{"a sum in the place of the mean, without a scale", "", func(b builder, x value) value {
		return b.Op("Div", x, b.Op("Sqrt", b.Op("Add", b.Op("ReduceSumSquare", x, []int64{-1}), 1e-5)))
	}},
	{"exponential of a logarithm, rounded too much", "", func(b builder, x value) value {
		mean := b.Op("Add", b.Op("ReduceMean", b.Op("Mul", x, x), []int64{-1}), 1e-5)
		return b.Op("Mul", b.Op("Mul", x, b.Op("Exp", b.Op("Mul", b.Op("Log", mean), -0.5))), vectorOf(b, channels))
	}},
	{"scaled by its maximum: the op overflows", "", func(b builder, x value) value {
		most := b.Op("Max", b.Op("ReduceMax", b.Op("Abs", x), []int64{-1}), 1e-12)
		scaled := b.Op("Div", x, most)
		mean := b.Op("ReduceMean", b.Op("Mul", scaled, scaled), []int64{-1})
		root := b.Op("Sqrt", b.Op("Add", mean, b.Op("Div", b.Op("Div", 1e-5, most), most)))
		return b.Op("Mul", b.Op("Div", scaled, root), vectorOf(b, channels))
	}},
	{"offset of the scale", "RMSNorm", func(b builder, x value) value {
		mean := b.Op("ReduceMean", b.Op("Mul", x, x), []int64{-1})
		n := b.Op("Div", x, b.Op("ReduceL2", b.Op("Sqrt", b.Op("Add", mean, 1e-5)), []int64{-1}))
		return b.Op("Add", n, b.Op("Mul", n, vectorOf(b, channels)))
	}},
	{"without a scale", "RMSNorm", func(b builder, x value) value {
		mean := b.Op("ReduceMean", b.Op("Mul", x, x), []int64{-1})
		return b.Op("Div", x, b.Op("ReduceL2", b.Op("Sqrt", b.Op("Add", mean, 1e-5)), []int64{-1}))
	}},
	{"second axis", "RMSNorm", func(b builder, x value) value {
		x = b.Op("Transpose", x, onnx.IntsAttr("perm", []int64{0, 2, 1}))
		mean := b.Op("ReduceMean", b.Op("Mul", x, x), []int64{1})
		return b.Op("Mul", b.Op("Mul", x, rootOf(b, mean)), b.Op("Unsqueeze", vectorOf(b, channels), []int64{1}))
	}},
	{"the sum of two", "AddRMSNorm", func(b builder, x value) value {
		x = b.Op("Add", x, b.Op("LeakyRelu", x))
		mean := b.Op("Div", b.Op("Einsum", x, x, equation("bsc,bsc->bs")), float64(channels))
		y := b.Op("Mul", b.Op("Mul", x, b.Op("Unsqueeze", rootOf(b, mean), []int64{-1})), vectorOf(b, channels))
		return b.Op("Add", x, b.Op("Tanh", y))
	}},
	{"the sum of two, twice", "AddRMSNorm", func(b builder, x value) value {
		x = b.Op("Add", x, b.Op("LeakyRelu", x))
		mean := b.Op("Div", b.Op("Einsum", x, x, equation("bsc,bsc->bs")), float64(channels))
		y := b.Op("Mul", x, b.Op("Unsqueeze", rootOf(b, mean), []int64{-1}))
		again := b.Op("Div", b.Op("ReduceSumSquare", x, []int64{-1}), float64(channels))
		z := b.Op("Mul", b.Op("Mul", x, rootOf(b, again)), vectorOf(b, channels))
		return b.Op("Add", b.Op("Mul", y, vectorOf(b, channels)), b.Op("Tanh", z))
	}},
	{"LayerNorm by Einsum", "LayerNormalization", func(b builder, x value) value {
		ones := make([]float32, channels)
		for i := range ones {
			ones[i] = 1.0 / channels
		}
		c := b.Op("Sub", x, b.Op("Einsum", x, b.Floats([]int64{channels, 1}, ones...), equation("bsc,cd->bsd")))
		mean := b.Op("Einsum", b.Op("Mul", c, c), b.Floats([]int64{channels, 1}, ones...), equation("bsc,cd->bsd"))
		y := b.Op("Mul", b.Op("Mul", c, rootOf(b, mean)), vectorOf(b, channels))
		return b.Op("Add", y, b.Floats([]int64{channels}, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12))
	}},
	{"scale that is given", "RMSNorm", func(b builder, x value) value {
		mean := b.Op("Div", b.Op("Einsum", x, x, equation("bsc,bsc->bs")), float64(channels))
		y := b.Op("Mul", x, b.Op("Unsqueeze", rootOf(b, mean), []int64{-1}))
		return b.Op("Mul", y, b.Input("scale", onnx.Float, channels))
	}},
	{"maximum for an epsilon", "", func(b builder, x value) value {
		l2 := b.Op("Clip", b.Op("ReduceL2", x, []int64{-1}), 1e-5)
		return b.Op("Mul", b.Op("Mul", b.Op("Div", x, l2), math.Sqrt(channels)), vectorOf(b, channels))
	}},
	{"epsilon outside of the root", "", func(b builder, x value) value {
		mean := b.Op("Div", b.Op("Einsum", x, x, equation("bsc,bsc->bs")), float64(channels))
		root := b.Op("Unsqueeze", b.Op("Add", b.Op("Sqrt", mean), 1e-5), []int64{-1})
		return b.Op("Mul", b.Op("Div", x, root), vectorOf(b, channels))
	}},
	{"clamped mean", "", func(b builder, x value) value {
		mean := b.Op("Min", b.Op("ReduceSumSquare", x, []int64{-1}), 1e8)
		return b.Op("Mul", b.Op("Mul", x, rootOf(b, mean)), vectorOf(b, channels))
	}},
	{"of clamped rows, and clamped", "RMSNorm", func(b builder, x value) value {
		x = b.Op("Clip", x, -1e4, 1e4)
		mean := b.Op("Div", b.Op("Einsum", x, x, equation("bsc,bsc->bs")), float64(channels))
		y := b.Op("Mul", x, b.Op("Unsqueeze", rootOf(b, mean), []int64{-1}))
		return b.Op("Clip", y, -2.0, 2.0)
	}},
	{"no epsilon", "", func(b builder, x value) value {
		return b.Op("Mul", b.Op("LpNormalization", x, onnx.IntAttr("p", 2)), vectorOf(b, channels))
	}},
	{"divided by the length", "RMSNorm", func(b builder, x value) value {
		n := b.Op("Div", x, b.Op("ReduceL2", x, []int64{-1}))
		return b.Op("Mul", b.Op("Mul", n, math.Sqrt(channels)), vectorOf(b, channels))
	}},
	{"divided by the length, without a scale", "RMSNorm", func(b builder, x value) value {
		return b.Op("Mul", b.Op("Div", x, b.Op("ReduceL2", x, []int64{-1})), math.Sqrt(channels))
	}},
	{"times the reciprocal of the length", "RMSNorm", func(b builder, x value) value {
		sum := b.Op("ReduceSum", b.Op("Mul", x, x), []int64{-1})
		n := b.Op("Mul", x, b.Op("Reciprocal", b.Op("Sqrt", sum)))
		width := b.Op("Cast", b.Op("Gather", b.Op("Shape", x), 2), onnx.IntAttr("to", int64(onnx.Float)))
		return b.Op("Mul", b.Op("Mul", n, b.Op("Sqrt", width)), vectorOf(b, channels))
	}},
	{"the greater one of the length and a number", "", func(b builder, x value) value {
		l2 := b.Op("Max", b.Op("ReduceL2", x, []int64{-1}), 1e-30)
		return b.Op("Mul", b.Op("Mul", b.Op("Div", x, l2), math.Sqrt(channels)), vectorOf(b, channels))
	}},
	{"a number added to the length", "", func(b builder, x value) value {
		l2 := b.Op("Add", b.Op("ReduceL2", x, []int64{-1}), 1e-20)
		return b.Op("Mul", b.Op("Mul", b.Op("Div", x, l2), math.Sqrt(channels)), vectorOf(b, channels))
	}},
	{"the length of zeros replaced", "", func(b builder, x value) value {
		l2 := b.Op("ReduceL2", x, []int64{-1})
		l2 = b.Op("Where", b.Op("Equal", l2, 0.0), 1.0, l2)
		return b.Op("Mul", b.Op("Mul", b.Op("Div", x, l2), math.Sqrt(channels)), vectorOf(b, channels))
	}},
	{"LpNormalization, which returns zeros for zeros", "", func(b builder, x value) value {
		n := b.Op("LpNormalization", x, onnx.IntAttr("p", 2))
		return b.Op("Mul", b.Op("Mul", n, math.Sqrt(channels)), vectorOf(b, channels))
	}},
	{"divided by the length, another factor", "", func(b builder, x value) value {
		return b.Op("Mul", b.Op("Div", x, b.Op("ReduceL2", x, []int64{-1})), math.Sqrt(channels+1))
	}},
	{"divided by the length of columns", "", func(b builder, x value) value {
		n := b.Op("Div", x, b.Op("ReduceL2", x, []int64{1}))
		return b.Op("Mul", b.Op("Mul", n, math.Sqrt(channels)), vectorOf(b, channels))
	}},
	{"part of the channels", "", func(b builder, x value) value {
		some := b.Op("Slice", x, []int64{0}, []int64{channels / 2}, []int64{-1})
		mean := b.Op("Div", b.Op("Einsum", some, some, equation("bsc,bsc->bs")), float64(channels/2))
		return b.Op("Mul", b.Op("Mul", x, b.Op("Unsqueeze", rootOf(b, mean), []int64{-1})), vectorOf(b, channels))
	}},
	{"mean of the magnitudes", "", func(b builder, x value) value {
		mean := b.Op("ReduceL1", x, []int64{-1})
		return b.Op("Mul", b.Op("Div", x, b.Op("Add", mean, 1e-5)), vectorOf(b, channels))
	}},
}

func TestFittedNorms(t *testing.T) {
	for _, test := range fittedNorms {
		t.Run(test.name, func(t *testing.T) { test.run(t) })
	}
}

// run applies the patterns to the spelling, and compares the results before and after.
func (test fitted) run(t *testing.T) {
	for _, dims := range [][]any{{"batch", "sequence", channels}, {1, 5, channels}} {
		b := onnxtest.New(20)
		x := b.Input("x", onnx.Float, dims...)
		b.Output(test.make(b, x))
		want := rewritetest.Evaluate(t, b.Model)
		r := apply(t, b.Model)
		var text bytes.Buffer
		r.WriteText(&text)
		fused := 0
		for _, op := range []string{"RMSNorm", "AddRMSNorm", "LayerNormalization", "GLU", "RotaryEmbedding"} {
			n := rewritetest.CountOps(b.Model)[op]
			if fused += n; op == test.op && n != 1 {
				t.Errorf("%d %s\n%s\n%s", n, op, &text, b.Graph.Text())
			}
		}
		if test.op == "" && fused > 0 {
			t.Errorf("fused\n%s", &text)
		}
		for name, is := range rewritetest.Evaluate(t, b.Model) {
			if difference, scale := prove.Distance(want[name].F, is.F); difference > 1e-5*scale {
				t.Errorf("%s differs by %.3g of %.3g", name, difference, scale)
			}
		}
	}
}
