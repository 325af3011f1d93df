package sites_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/onnx/onnxtest"
	"github.com/mojo-patch/mojo-patch/patterns"
	"github.com/mojo-patch/mojo-patch/patterns/reason"
	"github.com/mojo-patch/mojo-patch/reference"
	"github.com/mojo-patch/mojo-patch/rewrite"
	"github.com/mojo-patch/mojo-patch/rewrite/applytest"
	"github.com/mojo-patch/mojo-patch/rewrite/pass"
	"github.com/mojo-patch/mojo-patch/rewrite/rewritetest"
)

func normAttributes(epsilon float32, after int64) []*onnx.Attribute {
	return []*onnx.Attribute{onnx.IntAttr("axis", -1), onnx.FloatAttr("epsilon", epsilon),
		onnx.IntAttr("scale_after_cast", after)}
}

func TestNormSites(t *testing.T) {
	tests := []struct {
		name   string
		typ    onnx.DataType
		attrs  []*onnx.Attribute
		spoil  func(b *rewritetest.Builder, x, scale value) value // the graph instead of a norm
		reason string                                             // empty: fused
	}{
		{"right", onnx.Float, normAttributes(1e-6, 0), nil, ""},
		{"right in bfloat16", onnx.BFloat16, normAttributes(1e-6, 1), nil, ""},
		{"wrong epsilon", onnx.Float, normAttributes(1e-5, 0), nil, "differs"},
		{"slightly wrong epsilon", onnx.Float, normAttributes(1.1e-6, 0), nil, "differs"},
		// a rounding less: allowed
		{"scale on the wrong side of the cast", onnx.BFloat16, normAttributes(1e-6, 0), nil, ""},
		{"no root", onnx.Float, normAttributes(1e-6, 0), func(b *rewritetest.Builder, x, scale value) value {
			mean := b.Op("ReduceMean", b.Op("Mul", x, x), b.Ints(-1), onnx.IntAttr("keepdims", 1))
			return b.Op("Mul", b.Op("Div", x, mean), scale)
		}, "differs"},
		{"other axis", onnx.Float, normAttributes(1e-6, 0), func(b *rewritetest.Builder, x, scale value) value {
			mean := b.Op("ReduceMean", b.Op("Mul", x, x), b.Ints(1), onnx.IntAttr("keepdims", 1))
			return b.Op("Mul", b.Op("Div", x, b.Op("Sqrt", b.Op("Add", mean, b.Scalar(onnx.Float, 1e-6)))), scale)
		}, "differs"},
		{"shift", onnx.Float, normAttributes(1e-6, 0), func(b *rewritetest.Builder, x, scale value) value {
			return b.Op("Add", b.Norm(x, scale, 1e-6), b.Scalar(onnx.Float, 1e-3))
		}, "differs"},
		{"statistics in half precision", onnx.Float16, normAttributes(1e-6, 1),
			func(b *rewritetest.Builder, x, scale value) value {
				mean := b.Op("ReduceMean", b.Op("Mul", x, x), b.Ints(-1), onnx.IntAttr("keepdims", 1))
				return b.Op("Mul", b.Op("Div", x, b.Op("Sqrt", mean)), scale)
			}, "differs"}, // epsilon is missing
		{"double", onnx.Double, normAttributes(1e-6, 0), func(b *rewritetest.Builder, x, scale value) value {
			mean := b.Op("ReduceMean", b.Op("Mul", x, x), b.Ints(-1), onnx.IntAttr("keepdims", 1))
			return b.Op("Mul", b.Op("Div", x, b.Op("Sqrt", mean)), scale)
		}, "not float64"},
		{"narrow on the way", onnx.Float, normAttributes(1e-6, 0),
			func(b *rewritetest.Builder, x, scale value) value {
				narrow := b.Op("Cast", x, onnx.IntAttr("to", int64(onnx.BFloat16)))
				return b.Norm(b.Op("Cast", narrow, onnx.IntAttr("to", int64(onnx.Float))), scale, 1e-6)
			}, "differs from the matched nodes on normal inputs: "}, // the same without rounding
		{"missing attribute", onnx.Float, normAttributes(1e-6, 0)[:2], nil, "scale_after_cast"},
	}
	for _, c := range tests {
		t.Run(c.name, func(t *testing.T) {
			b := rewritetest.New(t, 20, c.typ)
			x, scale := b.In("x", "batch", "seq", 16), b.Weight("scale", 16)
			build := c.spoil
			if build == nil {
				build = func(b *rewritetest.Builder, x, scale value) value { return b.Norm(x, scale, 1e-6) }
			}
			y := build(b, x, scale)
			b.Out(y, "batch", "seq", 16)
			s := judge(t, b.Model, &patterns.Match{Pattern: "P", Op: "RMSNorm", Inputs: []value{x, scale},
				Outputs: []value{y}, Attributes: c.attrs})
			if s.fused != (c.reason == "") || !strings.Contains(s.reason, c.reason) {
				t.Errorf("%s, want a reason with %q", s, c.reason)
			}
			if strings.Contains(c.reason, "differs") &&
				(s.check == nil || max(s.check.MaxAbs, s.check.Structural) == 0) {
				t.Errorf("no figures: %+v", s.check)
			}
		})
	}
}

func TestGLUSites(t *testing.T) {
	tests := []struct {
		name   string
		attrs  []*onnx.Attribute
		up     []any
		reason string
	}{
		{"silu", rewritetest.GLUAttributes("silu", 1, 0, 0), []any{"batch", 16}, ""},
		{"alpha", rewritetest.GLUAttributes("silu", 1.702, 0, 0), []any{"batch", 16}, "differs"},
		{"gelu", rewritetest.GLUAttributes("gelu", 1, 0, 0), []any{"batch", 16}, "differs"},
		{"limit beyond normal inputs", rewritetest.GLUAttributes("silu", 1, 1e4, 0), []any{"batch", 16},
			"large inputs"},
		{"offset", rewritetest.GLUAttributes("silu", 1, 0, 1), []any{"batch", 16}, "differs"},
		{"broadcasting", rewritetest.GLUAttributes("silu", 1, 0, 0), []any{1, 16}, "the same shape"},
	}
	for _, c := range tests {
		t.Run(c.name, func(t *testing.T) {
			b := rewritetest.New(t, 20, onnx.Float)
			gate, up := b.In("gate", "batch", 16), b.In("up", c.up...)
			y := b.Op("Mul", up, b.Op("Mul", b.Op("Sigmoid", gate), gate))
			b.Out(y, "batch", 16)
			match := &patterns.Match{Pattern: "P", Op: "GLU", Inputs: []value{gate, up},
				Outputs: []value{y}, Attributes: c.attrs}
			s := judge(t, b.Model, match)
			if s.fused != (c.reason == "") || !strings.Contains(s.reason, c.reason) {
				t.Errorf("%s, want a reason with %q", s, c.reason)
			}
		})
	}
}

// A graph that agrees with the op at one assignment of the symbolic dimensions only must not pass.
func TestSitesThatDependOnSymbolicDimensions(t *testing.T) {
	b := rewritetest.New(t, 20, onnx.Float)
	x := b.In("x", "batch", 16)
	first := b.Op("Gather", b.Op("Shape", x), b.Ints(0))
	rows := b.Op("Cast", first, onnx.IntAttr("to", int64(onnx.Float))) // 2 in the first world, other numbers elsewhere
	scaled := b.Op("Mul", x, b.Op("Sub", rows, b.Scalar(onnx.Float, 1)))
	y := b.Op("Mul", b.Op("Mul", b.Op("Sigmoid", x), x), scaled)
	b.Out(y, "batch", 16)
	s := judge(t, b.Model, &patterns.Match{Pattern: "P", Op: "GLU", Inputs: []value{x, x},
		Outputs:    []value{y},
		Attributes: rewritetest.GLUAttributes("silu", 1, 0, 0)})
	if s.fused || !strings.Contains(s.reason, "differs") {
		t.Errorf("%s", s)
	}
}

// TestOrderOfInputs: an input may follow an output, but must not depend on it.
func TestOrderOfInputs(t *testing.T) {
	for _, depends := range []bool{false, true} {
		b := rewritetest.New(t, 20, onnx.Float)
		x, residual, w := b.In("x", 2, 16), b.In("residual", 2, 16), b.In("w", 16)
		sum := b.Op("Add", x, residual)
		b.Out(b.Op("Neg", sum), 2, 16)
		scale := b.Op("Abs", w)
		if depends {
			scale = b.Op("ReduceMean", sum, b.Ints(0), onnx.IntAttr("keepdims", 0))
		}
		y := b.Norm(sum, scale, 1e-6)
		b.Out(y, 2, 16)
		s := judge(t, b.Model, &patterns.Match{Pattern: "P", Op: "AddRMSNorm", Outputs: []value{y, sum},
			Inputs: []value{x, residual, scale}, Attributes: normAttributes(1e-6, 0)})
		if s.fused == depends || depends && !strings.Contains(s.reason, "depends on one of its outputs") {
			t.Errorf("%s", s)
		}
		rewritetest.CheckOrder(t, b.Model)
	}
}

func TestLargeStaticShapes(t *testing.T) {
	b := rewritetest.New(t, 20, onnx.Float)
	gate, up := b.In("gate", 1, 512, 4096), b.In("up", 1, 512, 4096)
	y := b.Op("Mul", b.Op("Mul", b.Op("Sigmoid", gate), gate), up)
	b.Out(y, 1, 512, 4096)
	s := judge(t, b.Model, &patterns.Match{Pattern: "P", Op: "GLU", Inputs: []value{gate, up},
		Outputs:    []value{y},
		Attributes: rewritetest.GLUAttributes("silu", 1, 0, 0)})
	if !s.fused || s.check.Cases == 0 {
		t.Errorf("%s", s)
	}
}

func TestEqualSitesAreCheckedOnce(t *testing.T) {
	for verify, shared := range map[rewrite.Verify]int{rewrite.VerifyDistinct: 1, rewrite.VerifyAll: 0} {
		r := applytest.Apply(t, rewritetest.Block(t, 20, onnx.Float),
			rewrite.Request{Verify: verify, KeepPattern: func(p string) bool { return p == "SwiGLU" }})
		n := 0
		for _, s := range r.Sites {
			if s.Check != nil && s.Check.Shared {
				n++
			}
		}
		if r.Fused() != 2 || n != shared {
			t.Errorf("%s: %d fused, %d shared a check, want %d", verify, r.Fused(), n, shared)
		}
	}
	unchecked := applytest.Apply(t, rewritetest.Block(t, 20, onnx.Float), rewrite.Request{Verify: rewrite.VerifyOff})
	for _, s := range unchecked.Sites {
		if s.Check != nil {
			t.Errorf("verify off, and %s has a check", s.Pattern)
		}
	}
}

// kernelOf imitates a kernel library: its kernel is right, or wrong by a factor.
func kernelOf(factor float64) pass.Kernel {
	if factor == 0 {
		return func(string, []*onnx.Attribute, []*onnx.Tensor) ([]*onnx.Tensor, error) {
			return nil, errors.New("no such kernel")
		}
	}
	return rewritetest.Kernel(func(_, out []*reference.Tensor) {
		for i := range out[0].F {
			out[0].F[i] *= factor
		}
	})
}

func TestKernelCheck(t *testing.T) {
	for factor, reason := range map[float64]string{1: "", 1.001: "differs from the op's definition",
		0: "no such kernel"} {
		r := applytest.Apply(t, rewritetest.Block(t, 20, onnx.Float),
			rewrite.Request{KernelCheck: kernelOf(factor), KeepPattern: func(p string) bool { return p == "SwiGLU" }})
		for _, s := range r.Sites {
			if (s.Status == rewrite.Fused) != (reason == "") || !strings.Contains(s.Reason, reason) {
				t.Errorf("factor %g: %s %s", factor, s.Status, s.Reason)
			}
			if reason == "" && (s.Check == nil || s.Check.Kernel == nil) {
				t.Errorf("no figures of the kernel: %+v", s.Check)
			}
		}
	}
}

// TestTablesOfOtherRows refuses a rotation whose tables may have more rows than the rotated tensor: the nodes then
// return more rows than the op.
func TestTablesOfOtherRows(t *testing.T) {
	for rows, fused := range map[any]bool{"sequence": true, 1: true, "places": false} {
		t.Run(fmt.Sprint(rows), func(t *testing.T) {
			b := onnxtest.New(20)
			x := b.Input("x", onnx.Float, "batch", "sequence", 8)
			c, s := b.Input("c", onnx.Float, rows, 8), b.Input("s", onnx.Float, rows, 8)
			lower := b.Op("Slice", x, []int64{0}, []int64{4}, []int64{-1})
			upper := b.Op("Slice", x, []int64{4}, []int64{1 << 62}, []int64{-1})
			turned := b.Op("Concat", b.Op("Neg", upper), lower, onnx.IntAttr("axis", -1))
			y := b.Op("Add", b.Op("Mul", x, c), b.Op("Mul", turned, s))
			b.Output(y)
			site := judge(t, b.Model, &patterns.Match{Pattern: "RotaryEmbedding", Op: "RotaryEmbedding",
				Inputs: []value{x, c, s}, Outputs: []value{y}, Attributes: []*onnx.Attribute{
					onnx.IntAttr("interleaved", 0), onnx.IntAttr("rotary_dim", 8),
					onnx.StringAttr("rotated_side", "first"), onnx.StringAttr("output_layout", "halves")}})
			if site.fused != fused || !fused && site.code != reason.Unknown {
				t.Errorf("%s", site)
			}
		})
	}
}

// TestCopiedWeights sends each of two choices through copies of the same weights.
func TestCopiedWeights(t *testing.T) {
	for _, same := range []bool{true, false} {
		const experts, hidden, inner = 4, 8, 6
		b := rewritetest.New(t, 18, onnx.Float)
		x := b.In("x", "tokens", hidden)
		values, ids := b.Graph.NewValue("values"), b.Graph.NewValue("ids")
		logits := b.Op("MatMul", x, b.Weight("router", hidden, experts))
		b.Graph.AddNode("TopK", []value{b.Op("Softmax", logits, onnx.IntAttr("axis", -1)), b.Ints(2)},
			[]value{values, ids})
		var y value
		for j := range 2 {
			if same {
				b.Seed = 7
			}
			column := func(v value) value {
				return b.Op("Gather", v, b.Tensor(reference.NewInts(onnx.Int64, []int{}, []int64{int64(j)}), "j"),
					onnx.IntAttr("axis", 1))
			}
			id := column(ids)
			h := b.Op("Relu", b.Op("MatMul", b.Op("Unsqueeze", x, b.Ints(1)),
				b.Op("Gather", b.Weight("up", experts, hidden, inner), id)))
			h = b.Op("Squeeze", b.Op("MatMul", h, b.Op("Gather", b.Weight("down", experts, inner, hidden), id)),
				b.Ints(1))
			h = b.Op("Mul", h, b.Op("Unsqueeze", column(values), b.Ints(1)))
			if y == nil {
				y = h
			} else {
				y = b.Op("Add", y, h)
			}
		}
		b.Out(y, "tokens", hidden)
		if _, err := rewrite.Apply(b.Model, rewrite.Request{AssumeAvailable: true}); err != nil {
			t.Fatal(err)
		}
		if fused := rewritetest.CountOps(b.Model)["MoE"] == 1; fused != same {
			t.Errorf("copies: %v, fused: %v", same, fused)
		}
	}
}
