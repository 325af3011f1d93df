package rewrite

import (
	"bytes"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/mojo-patch/mojo-patch/fused"
	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/onnx/onnxtest"
	"github.com/mojo-patch/mojo-patch/patterns"
	"github.com/mojo-patch/mojo-patch/rewrite/edit"
	"github.com/mojo-patch/mojo-patch/rewrite/prove"
	"github.com/mojo-patch/mojo-patch/rewrite/registry"
	"github.com/mojo-patch/mojo-patch/rewrite/rewritetest"
)

// onlyText returns a set of only the patterns in a text.
func onlyText(t *testing.T, text string) *patterns.Set {
	t.Helper()
	s := patterns.NewSet()
	if err := s.Add("f.pat", text); err != nil {
		t.Fatal(err)
	}
	return s
}

// gates is a model of two gated activations of x with nodes between them.
func gates(t *testing.T, opset int64, typ onnx.DataType) *onnx.Model {
	b := rewritetest.New(t, opset, typ)
	x := b.In("x", "batch", "seq", 16)
	for range 2 {
		x = b.Op("Mul", b.Op("Mul", x, b.Op("Sigmoid", x)), b.Op("Relu", x))
	}
	b.Out(x, "batch", "seq", 16)
	return b.Model
}

// same demands that change keeps a model's results, except for the last places.
func same(t *testing.T, m *onnx.Model, change func()) {
	t.Helper()
	want := rewritetest.Evaluate(t, m)
	change()
	for name, got := range rewritetest.Evaluate(t, m) {
		w := want[name]
		d, scale := prove.Distance(w.F, got.F)
		if d > 16*prove.Spacing(w.DataType, scale) || !slices.Equal(w.Shape, got.Shape) || w.DataType != got.DataType {
			t.Errorf("%s is %s%v and differs by %g from %s%v", name, got.DataType, got.Shape, d, w.DataType, w.Shape)
		}
	}
}

const gated = "pattern Gate(x) -> y {\n y = Mul(x, Sigmoid(x), Relu(x))\n} => "

// Nodes before and after a fused op are made for the model's opset, typed, named and declared.
func TestNodesAroundAFusedOp(t *testing.T) {
	const target = gated + `Squeeze(mojo.GLU(Unsqueeze(x; axes=[1]), Relu(Unsqueeze(x; axes=[1])); ` +
		`activation="silu", alpha=1.0, limit=0.0, up_offset=0.0); axes=[1])`
	for _, opset := range []int64{13, 20} {
		m := gates(t, opset, onnx.Float16)
		kernels := 0
		check := func(op string, _ []*onnx.Attribute, in []*onnx.Tensor) ([]*onnx.Tensor, error) {
			kernels++
			if op != "GLU" || len(in) != 2 || len(in[0].Dims) != 4 || in[0].Dims[1] != 1 ||
				in[1].DataType != onnx.Float16 {
				t.Errorf("the kernel of %s is run on %+v", op, in)
			}
			return []*onnx.Tensor{in[0]}, nil
		}
		r := apply(t, gates(t, opset, onnx.Float16), Request{Patterns: onlyText(t, target), KernelCheck: check})
		if kernels == 0 || r.Fused() != 0 || !strings.Contains(r.Sites[0].Reason, "kernel cpu_fused_swiglu differs") {
			t.Errorf("%d runs of a wrong kernel, %+v", kernels, r.Sites)
		}
		same(t, m, func() { r = apply(t, m, Request{Patterns: onlyText(t, target)}) })
		ops := rewritetest.CountOps(m)
		if r.Fused() != 2 || ops["GLU"] != 2 || ops["Unsqueeze"] != 2 || ops["Constant"] != 0 || ops["Sigmoid"] != 0 {
			t.Fatalf("%v %+v", ops, r.Sites)
		}
		names := map[string]bool{}
		for _, n := range m.Graph.Nodes {
			if n.Name == "" || names[n.Name] ||
				!slices.ContainsFunc(n.Metadata, func(e onnx.Entry) bool {
					return e.Key == edit.MetaRule && e.Value == "Gate"
				}) {
				t.Errorf("node %q has the metadata %v", n.Name, n.Metadata)
			}
			names[n.Name] = true
			if typ, ok := n.Outputs[0].Type(); !ok || typ.DataType != onnx.Float16 || !typ.HasShape ||
				typ.Dims[0].Param != "batch" {
				t.Errorf("%s makes %q of type %v", n.Name, n.Outputs[0].Name, typ)
			}
		}
		if n := len(m.Graph.Initializers()); n != 1 {
			t.Errorf("%d initializers; the axes are the same everywhere", n)
		}
		rewritetest.CheckOrder(t, m)
	}
}

// Sites that need the same node before their op share it.
func TestSharedNodes(t *testing.T) {
	b := rewritetest.New(t, 20, onnx.Float)
	x, up := b.In("x", 2, 16), b.In("up", 2, 16)
	relu := b.Op("Relu", up)
	first := b.Op("Mul", b.Op("Mul", x, b.Op("Sigmoid", x)), relu)
	b.Out(b.Op("Mul", b.Op("Mul", first, b.Op("Sigmoid", first)), relu), 2, 16)
	const text = "pattern Gate(x, u) -> y {\n y = Mul(x, Sigmoid(x), Relu(u))\n} => " +
		`mojo.GLU(x, Max(u, 0); activation="silu", alpha=1.0, limit=0.0, up_offset=0.0)`
	same(t, b.Model, func() { apply(t, b.Model, Request{Patterns: onlyText(t, text)}) })
	if ops := rewritetest.CountOps(b.Model); ops["GLU"] != 2 || ops["Max"] != 1 || len(b.Graph.Nodes) != 3 {
		t.Errorf("%v", ops)
	}
}

func TestTargetsOutsideTheCatalogue(t *testing.T) {
	tests := []struct {
		name   string
		opset  int64
		text   string
		kernel string // or the reason to refuse
	}{
		{"standard", 24, gated + "Mul(Swish(x), Relu(x))", byStandard},
		{"too old", 20, gated + "Mul(Swish(x), Relu(x))", "Swish is a standard op since opset 24"},
		{"onnxruntime's", 20, gated + "Mul(com.microsoft.QuickGelu(x; alpha=1), Relu(x))", byOnnxruntime},
		{"function", 20, "function my.Gate(v) -> w {\n w = Mul(v, Sigmoid(v), )\n}\n", byFunction},
		{"function at opset 13", 13,
			"function my.Gate(v) -> w {\n s = Div(1, Add(1, Exp(Neg(v))))\n g = Mul(v, s)\n}\n", byFunction},
		{"another function", 20, "function my.Gate(v) -> w {\n w = Mul(v, Tanh(v))\n}\n" + gated + "my.Gate(x)",
			"differs from the matched nodes"},
		{"no definition", 20, gated + "my.Gate(x)", "the pattern rewrites to my.Gate, which no pattern file defines"},
		{"no such op", 20, gated + "mojo.Gate(x)", "not in the catalogue"},
	}
	tests[3].text = "function my.Gate(v) -> w {\n g = Mul(v, Sigmoid(v))\n w = Mul(g, Relu(v))\n}\n" + gated +
		"my.Gate(x)"
	tests[4].text = "function my.Gate(v) -> w {\n g = Div(v, Add(1, Exp(Neg(v))))\n w = Mul(g, Relu(v))\n}\n" + gated +
		"my.Gate(x)"
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			m := gates(t, tt.opset, onnx.BFloat16)
			var r *Report
			same(t, m, func() { r = apply(t, m, Request{Patterns: onlyText(t, tt.text)}) })
			for _, s := range r.Sites {
				if s.Status == Fused && s.Kernel != tt.kernel ||
					s.Status == Refused && !strings.Contains(s.Reason, tt.kernel) {
					t.Errorf("%+v", s)
				}
			}
			if n := r.Fused(); n != 0 && n != 2 || len(r.Sites) != 2 {
				t.Errorf("%d of %d fused", n, len(r.Sites))
			}
			if tt.kernel == byOnnxruntime && m.Opset(onnx.Microsoft) != 1 ||
				tt.kernel == byFunction && (m.Opset("my") != 1 || len(m.Functions) != 1) {
				t.Errorf("opsets %v, %d functions", m.Opsets, len(m.Functions))
			}
			var text bytes.Buffer
			if err := r.WriteText(&text); err != nil ||
				r.Fused() > 0 && !strings.Contains(text.String(), tt.kernel+" ") {
				t.Errorf("%v\n%s", err, &text)
			}
			if again := apply(t, m, Request{Patterns: onlyText(t, tt.text)}); again.Fused() > 0 {
				t.Errorf("a second pass fused %+v", again.Sites)
			}
		})
	}
}

// A user's pattern needs no kernel, and is excluded like the others.
func TestOwnPatternsAndInclude(t *testing.T) {
	own := onlyText(t, "function my.Gate(v) -> w {\n g = Mul(v, Sigmoid(v))\n w = Mul(g, Relu(v))\n}\n"+gated+
		"my.Gate(x)")
	for include, want := range map[string]int{Auto: 2, "onnx_layernorm": 2, None: 0} {
		r, err := Apply(gates(t, 20, onnx.Float), Request{Kernels: include, Patterns: own, AssumeAvailable: true})
		if err != nil || r.Fused() != want {
			t.Errorf("%s: %v, %+v", include, err, r)
		}
	}
}

func layerNorm(b *rewritetest.Builder, x value, bias bool) value {
	mean := func(v value) value {
		return b.Op("ReduceMean", v, onnx.IntsAttr("axes", []int64{-1}), onnx.IntAttr("keepdims", 1))
	}
	xf, f := x, onnx.Float
	if b.Type != f {
		xf = b.Op("Cast", x, onnx.IntAttr("to", int64(f)))
	}
	c := b.Op("Sub", xf, mean(xf))
	n := b.Op("Div", c, b.Op("Sqrt", b.Op("Add", mean(b.Op("Pow", c, b.Scalar(f, 2))), b.Scalar(f, 1e-5))))
	scale := b.Weight("scale", 16)
	if b.Type != f {
		scale = b.Op("Cast", scale, onnx.IntAttr("to", int64(f)))
	}
	y := b.Op("Mul", scale, n)
	if b.Type != f {
		y = b.Op("Cast", y, onnx.IntAttr("to", int64(b.Type)))
	}
	if bias {
		y = b.Op("Add", y, b.Weight("bias", 16))
	}
	return y
}

func TestLayerNorm(t *testing.T) {
	for _, typ := range []onnx.DataType{onnx.Float, onnx.Float16, onnx.BFloat16} {
		for _, opset := range []int64{12, 16, 17, 18} { // the first two are raised to the op's
			b := rewritetest.New(t, opset, typ)
			b.Out(layerNorm(b, layerNorm(b, b.In("x", "n", 16), true), false), "n", 16)
			var r *Report
			same(t, b.Model, func() { r = apply(t, b.Model) })
			if p := r.pattern("LayerNorm"); p.Found != 2 || p.Fused != 2 || len(b.Graph.Nodes) != 2 ||
				b.Model.Opset("") != max(opset, 17) || (r.Opset != nil) != (opset < 17) {
				t.Errorf("%s at opset %d: %+v %+v %+v", typ, opset, p, r.Opset, r.Sites)
			}
			for _, s := range r.Sites {
				if s.Kernel != "onnx_layernorm" || s.Device != registry.DeviceAny {
					t.Errorf("%+v", s)
				}
			}
		}
	}
}

// The kernel takes over the standard's RMSNormalization.
func TestStandardRMSNormalization(t *testing.T) {
	for _, typ := range []onnx.DataType{onnx.Float, onnx.Float16} {
		b := rewritetest.New(t, 23, typ)
		norm := func(x value) value {
			return b.Op("RMSNormalization", x, b.Weight("scale", 16), onnx.FloatAttr("epsilon", 1e-6))
		}
		x := b.In("x", "n", 16)
		h := b.Op("Add", x, norm(x))
		b.Out(b.Op("Add", h, norm(h)), "n", 16)
		var r *Report
		same(t, b.Model, func() { r = apply(t, b.Model) })
		if ops := rewritetest.CountOps(b.Model); ops["RMSNorm"] != 1 || ops["AddRMSNorm"] != 1 {
			t.Errorf("%s: %v %+v", typ, ops, r.Sites)
		}
		for _, n := range b.Graph.Nodes {
			if n.Domain == fused.Domain && (n.AttrInt("scale_after_cast", 0) != 1 ||
				math.Abs(float64(n.AttrFloat("epsilon", 0))-1e-6) > 1e-12) {
				t.Errorf("%s", n.Text())
			}
		}
	}
}

// Integers among the inputs and outputs are checked, too.
func TestIntegerSites(t *testing.T) {
	for target, want := range map[string]string{
		"Gather(cos, Add(at, 1); axis=0)": Fused,
		"Gather(cos, Mul(at, 1); axis=0)": Refused,
		"Gather(cos, at; axis=0)":         Refused,
	} {
		b := rewritetest.New(t, 20, onnx.Float)
		at := b.Input("at", onnx.Int64, "n")
		next := b.Op("Add", at, b.Ints(1))
		b.Out(b.Op("Relu", b.Op("Gather", b.Weight("cos", 3, 8), next)), "n", 8)
		r := apply(t, b.Model, Request{Patterns: onlyText(t,
			"pattern P(cos, at) -> y {\n y = Relu(Gather(cos, Add(at, 1)))\n} => Relu("+target+")")})
		if len(r.Sites) != 1 || r.Sites[0].Status != want {
			t.Errorf("%s: %+v", target, r.Sites)
		}
	}
	for target, want := range map[string]string{"Add(at, at)": Fused, "Mul(at, 3)": Refused, "Mul(at, 2)": Fused} {
		b := rewritetest.New(t, 20, onnx.Float)
		at := b.Input("at", onnx.Int64, "n")
		y := b.Op("Mul", at, b.Ints(2))
		y.SetType(onnxtest.Type(onnx.Int64, "n"))
		b.Graph.AddOutput(y)
		r := apply(t, b.Model, Request{Patterns: onlyText(t, "pattern P(at) -> y {\n y = Mul(at, 2)\n} => "+target)})
		if len(r.Sites) != 1 || r.Sites[0].Status != want {
			t.Errorf("%s: %+v", target, r.Sites)
		}
	}
}
