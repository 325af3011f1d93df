package sites_test

import (
	"bytes"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/onnx/onnxtest"
	"github.com/mojo-patch/mojo-patch/rewrite"
	"github.com/mojo-patch/mojo-patch/rewrite/applytest"
	"github.com/mojo-patch/mojo-patch/rewrite/rewritetest"
	"github.com/mojo-patch/mojo-patch/rewrite/sites"
)

// TestOverflow demands that reports name exactly the inputs on which fused nodes overflow or return NaN.
func TestOverflow(t *testing.T) {
	const channels = 12
	scale := func(b builder) value {
		return b.Floats([]int64{channels}, 0.5, 0.6, 0.7, 0.8, 0.9, 1, 1.1, 1.2, 1.3, 1.4, 1.5, 1.6)
	}
	cast := func(b builder, v value, to onnx.DataType) value {
		return b.Op("Cast", v, onnx.IntAttr("to", int64(to)))
	}
	norm := func(b builder, x value, t onnx.DataType) value {
		mean := b.Op("ReduceMean", b.Op("Mul", x, x), []int64{-1})
		return b.Op("Div", x, b.Op("Sqrt", b.Op("Add", mean, cast(b, b.Floats([]int64{}, 1e-5), t))))
	}
	attention := func(hidden float32, guarded bool) func(b builder) value {
		return func(b builder) value {
			heads := func(name string) value { return b.Input(name, onnx.Float, "batch", 2, "seq", 8) }
			exists := b.Input("mask", onnx.Int64, "batch", "seq")
			mask := b.Op("Where", b.Op("Cast", b.Op("Unsqueeze", exists, []int64{1, 2}),
				onnx.IntAttr("to", int64(onnx.Bool))), 0.0, b.Floats([]int64{}, hidden))
			keys := b.Op("Transpose", heads("k"), onnx.IntsAttr("perm", []int64{0, 1, 3, 2}))
			scores := b.Op("Mul", b.Op("MatMul", heads("q"), keys), float64(1/math.Sqrt(8)))
			weights := b.Op("Softmax", b.Op("Add", scores, mask), onnx.IntAttr("axis", -1))
			if guarded {
				weights = b.Op("Where", b.Op("IsNaN", weights), 0.0, weights)
			}
			return b.Op("MatMul", weights, heads("v"))
		}
	}
	for _, c := range []struct {
		name, op string
		build    func(b builder) value
		want     string // the named inputs, or ""
	}{
		{"squares in float16", "RMSNorm", func(b builder) value {
			x := b.Input("x", onnx.Float16, "batch", "seq", channels)
			return b.Op("Mul", norm(b, x, onnx.Float16), cast(b, scale(b), onnx.Float16))
		}, "outlier"},
		{"squares in float32", "RMSNorm", func(b builder) value {
			x := b.Input("x", onnx.Float16, "batch", "seq", channels)
			n := norm(b, cast(b, x, onnx.Float), onnx.Float)
			return b.Op("Mul", cast(b, n, onnx.Float16), cast(b, scale(b), onnx.Float16))
		}, ""},
		{"float32", "RMSNorm", func(b builder) value {
			x := b.Input("x", onnx.Float, "batch", "seq", channels)
			return b.Op("Mul", norm(b, x, onnx.Float), scale(b))
		}, ""},
		{"without an epsilon", "RMSNorm", func(b builder) value {
			x := b.Input("x", onnx.Float, "batch", "seq", channels)
			return b.Op("Mul", b.Op("Div", x, b.Op("ReduceL2", x, []int64{-1})), math.Sqrt(channels))
		}, "tiny"},
		{"padding of -inf", "Attention", attention(float32(math.Inf(-1)), false), "nothing but padding"},
		{"a guard against NaN", "Attention", attention(float32(math.Inf(-1)), true), sites.NaNQueries},
		{"padding of -10000", "Attention", attention(-1e4, false), ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := onnxtest.New(20)
			b.Output(c.build(b))
			r := applytest.Apply(t, b.Model)
			var text bytes.Buffer
			if err := r.WriteText(&text); err != nil {
				t.Fatal(err)
			}
			if rewritetest.CountOps(b.Model)[c.op] != 1 {
				t.Fatalf("not fused\n%s", &text)
			}
			var named []string
			for _, s := range r.Sites {
				if s.Status == rewrite.Fused {
					named = append(named, s.Check.Overflow...)
				}
			}
			if c.want == "" && len(named) > 0 || c.want != "" && !slices.Contains(named, c.want) {
				t.Errorf("the report names %q, want %q", named, c.want)
			}
			if guarded := strings.Contains(text.String(), "NaN guard"); guarded != (c.want == sites.NaNQueries) {
				t.Errorf("a guard against NaN: %v in\n%s", guarded, &text)
			}
			said := strings.Contains(text.String(), "results differ if numbers overflow")
			if said != (c.want != "" && c.want != sites.NaNQueries) {
				t.Errorf("want %q in\n%s", c.want, &text)
			}
		})
	}
}

// TestTies demands that reports name inputs on which rounding makes scores equal and the op chooses another expert.
func TestTies(t *testing.T) {
	for name, want := range map[string]bool{"moe-einsum-dynamo-fp16": true, "moe-flattened-ts-fp32": false} {
		m := rewritetest.ReadModel(t, name)
		r := applytest.Apply(t, m)
		var text bytes.Buffer
		if err := r.WriteText(&text); err != nil {
			t.Fatal(err)
		}
		said := strings.Contains(text.String(), "the op may choose another expert")
		found := slices.ContainsFunc(r.Sites, func(s rewrite.SiteReport) bool {
			return s.Check != nil && len(s.Check.Ties) > 0
		})
		if said != want || found != want {
			t.Errorf("%s: ties said %v, in the figures %v, want %v", name, said, found, want)
		}
	}
}
