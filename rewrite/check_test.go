package rewrite

import (
	"errors"
	"strings"
	"testing"

	"github.com/mojo-patch/mojo-patch/fused"
	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/patterns"
	"github.com/mojo-patch/mojo-patch/reference"
	"github.com/mojo-patch/mojo-patch/rewrite/prove"
	"github.com/mojo-patch/mojo-patch/rewrite/rewritetest"
)

func normAttributes(epsilon float32, after int64) []*onnx.Attribute {
	return []*onnx.Attribute{onnx.IntAttr("axis", -1), onnx.FloatAttr("epsilon", epsilon),
		onnx.IntAttr("scale_after_cast", after)}
}

// oneNode sets a match's replacement to one node whose inputs are the match's, in order.
func oneNode(match *patterns.Match, opset int64) {
	g := onnx.NewFunction("", "", "", opset).Body
	var reads, in, out []value
	stands := map[value]value{}
	for _, v := range match.Inputs {
		if stands[v] == nil {
			stands[v] = g.AddInput("x", onnx.Type{})
			reads = append(reads, v)
		}
		in = append(in, stands[v])
	}
	for range match.Outputs {
		v := g.NewValue("y")
		out = append(out, v)
		g.AddOutput(v)
	}
	g.AddNode(match.Op, in, out, match.Attributes...).Domain = match.Domain
	match.Inputs, match.Replacement = reads, g
}

// judgeOne judges one handmade match and returns its site.
func judgeOne(t *testing.T, m *onnx.Model, match *patterns.Match, request ...Request) SiteReport {
	t.Helper()
	if match.Domain == "" {
		match.Domain = fused.Domain
	}
	oneNode(match, m.Opset(""))
	match.Root = match.Outputs[0].Producer
	match.Nodes = []*onnx.Node{match.Root}
	before := modelBytes(t, m)
	q := Request{}
	if len(request) > 0 {
		q = request[0]
	}
	q.find = foundByHand(func(g *onnx.Graph) []*patterns.Match {
		if g != match.Root.Graph {
			return nil
		}
		return []*patterns.Match{match}
	})
	r := apply(t, m, q)
	if len(r.Sites) != 1 {
		t.Fatalf("%d sites", len(r.Sites))
	}
	if s := r.Sites[0]; (s.Status == Fused) != r.Changed ||
		s.Status == Refused && string(before) != string(modelBytes(t, m)) {
		t.Errorf("%s, changed %v", s.Status, r.Changed)
	}
	return r.Sites[0]
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
			s := judgeOne(t, b.Model, &patterns.Match{Pattern: "P", Op: "RMSNorm", Inputs: []value{x, scale},
				Outputs: []value{y}, Attributes: c.attrs})
			if (s.Status == Fused) != (c.reason == "") || !strings.Contains(s.Reason, c.reason) {
				t.Errorf("%s: %s %+v, want a reason with %q", s.Status, s.Reason, s.Check, c.reason)
			}
			if strings.Contains(c.reason, "differs") &&
				(s.Check == nil || max(s.Check.MaxAbs, s.Check.Structural) == 0) {
				t.Errorf("no figures: %+v", s.Check)
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
		{"unknown op", nil, []any{"batch", 16}, "catalogue"},
	}
	for _, c := range tests {
		t.Run(c.name, func(t *testing.T) {
			b := rewritetest.New(t, 20, onnx.Float)
			gate, up := b.In("gate", "batch", 16), b.In("up", c.up...)
			y := b.Op("Mul", up, b.Op("Mul", b.Op("Sigmoid", gate), gate))
			b.Out(y, "batch", 16)
			match := &patterns.Match{Pattern: "P", Op: "GLU", Inputs: []value{gate, up},
				Outputs: []value{y}, Attributes: c.attrs}
			if c.attrs == nil {
				match.Op = "NoSuchOp"
			}
			s := judgeOne(t, b.Model, match)
			if (s.Status == Fused) != (c.reason == "") || !strings.Contains(s.Reason, c.reason) {
				t.Errorf("%s: %s, want a reason with %q", s.Status, s.Reason, c.reason)
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
	s := judgeOne(t, b.Model, &patterns.Match{Pattern: "P", Op: "GLU", Inputs: []value{x, x},
		Outputs:    []value{y},
		Attributes: rewritetest.GLUAttributes("silu", 1, 0, 0)})
	if s.Status != Refused || !strings.Contains(s.Reason, "differs") {
		t.Errorf("%s: %s", s.Status, s.Reason)
	}
}

func TestWhatOthersReadStays(t *testing.T) {
	b := rewritetest.New(t, 20, onnx.Float)
	gate, up := b.In("gate", 2, 16), b.In("up", 2, 16)
	sigmoid := b.Op("Sigmoid", gate)
	y := b.Op("Mul", b.Op("Mul", sigmoid, gate), up)
	b.Out(y, 2, 16)
	b.Out(b.Op("Neg", sigmoid), 2, 16)
	want := rewritetest.Evaluate(t, b.Model)
	s := judgeOne(t, b.Model, &patterns.Match{Pattern: "P", Op: "GLU", Inputs: []value{gate, up},
		Outputs:    []value{y},
		Attributes: rewritetest.GLUAttributes("silu", 1, 0, 0)})
	if ops := rewritetest.CountOps(b.Model); s.Status != Fused || ops["Sigmoid"] != 1 || ops["Mul"] != 0 {
		t.Errorf("%s: %s, %v", s.Status, s.Reason, ops)
	}
	got := rewritetest.Evaluate(t, b.Model)
	for name := range want {
		if d, _ := prove.Distance(want[name].F, got[name].F); d > 1e-6 {
			t.Errorf("%s differs by %g", name, d)
		}
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
		s := judgeOne(t, b.Model, &patterns.Match{Pattern: "P", Op: "AddRMSNorm", Outputs: []value{y, sum},
			Inputs: []value{x, residual, scale}, Attributes: normAttributes(1e-6, 0)})
		if (s.Status == Fused) == depends || depends && !strings.Contains(s.Reason, "depends on one of its outputs") {
			t.Errorf("%s: %s", s.Status, s.Reason)
		}
		rewritetest.CheckOrder(t, b.Model)
	}
}

func TestEqualSitesAreCheckedOnce(t *testing.T) {
	for verify, shared := range map[Verify]int{VerifyDistinct: 1, VerifyAll: 0} {
		r := apply(t, rewritetest.Block(t, 20, onnx.Float),
			Request{Verify: verify, KeepPattern: func(p string) bool { return p == "SwiGLU" }})
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
	for _, s := range apply(t, rewritetest.Block(t, 20, onnx.Float), Request{Verify: VerifyOff}).Sites {
		if s.Check != nil {
			t.Errorf("verify off, and %s has a check", s.Pattern)
		}
	}
}

// kernelOf imitates a kernel library: its kernel is right, or wrong by a factor.
func kernelOf(factor float64) KernelCheck {
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
		r := apply(t, rewritetest.Block(t, 20, onnx.Float),
			Request{KernelCheck: kernelOf(factor), KeepPattern: func(p string) bool { return p == "SwiGLU" }})
		for _, s := range r.Sites {
			if (s.Status == Fused) != (reason == "") || !strings.Contains(s.Reason, reason) {
				t.Errorf("factor %g: %s %s", factor, s.Status, s.Reason)
			}
			if reason == "" && (s.Check == nil || s.Check.Kernel == nil) {
				t.Errorf("no figures of the kernel: %+v", s.Check)
			}
		}
	}
}

func TestLargeStaticShapes(t *testing.T) {
	b := rewritetest.New(t, 20, onnx.Float)
	gate, up := b.In("gate", 1, 512, 4096), b.In("up", 1, 512, 4096)
	y := b.Op("Mul", b.Op("Mul", b.Op("Sigmoid", gate), gate), up)
	b.Out(y, 1, 512, 4096)
	s := judgeOne(t, b.Model, &patterns.Match{Pattern: "P", Op: "GLU", Inputs: []value{gate, up},
		Outputs:    []value{y},
		Attributes: rewritetest.GLUAttributes("silu", 1, 0, 0)})
	if s.Status != Fused {
		t.Errorf("%s: %s", s.Status, s.Reason)
	}
}
