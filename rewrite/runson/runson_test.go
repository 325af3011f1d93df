package runson

import (
	"fmt"
	"strings"
	"testing"

	"github.com/mojo-patch/mojo-patch/golden"
	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/onnx/onnxtest"
	"github.com/mojo-patch/mojo-patch/ort"
	"github.com/mojo-patch/mojo-patch/ort/orttest"
	"github.com/mojo-patch/mojo-patch/reference"
	"github.com/mojo-patch/mojo-patch/rewrite/edit"
	"github.com/mojo-patch/mojo-patch/rewrite/pass"
)

func place(t *testing.T, text string) *Place {
	t.Helper()
	p, err := ParsePlace(text, "")
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// lowered lowers a model for a place.
func lowered(m *onnx.Model, p *Place) (*Report, error) {
	run := &pass.Run{Editor: edit.Editor{Model: m, Version: "test"}, Skips: func(*onnx.Function) bool { return false }}
	r, err := Prepare(run, p)
	if err != nil {
		return nil, err
	}
	if err = Apply(run, p, r); err == nil && len(run.Assumed()) > 0 {
		err = fmt.Errorf("assumed and not proven: %q", run.Assumed())
	}
	return r, err
}

func evaluated(t *testing.T, m *onnx.Model, inputs []*onnx.Tensor) []*onnx.Tensor {
	t.Helper()
	e, err := reference.New(m, reference.Options{})
	if err != nil {
		t.Fatal(err)
	}
	out, err := e.RunTensors(inputs)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

type made struct {
	name   string
	opset  int64
	ops    string // of the new nodes, for 1.29
	report string // report of lowered nodes there
	build  func(b *onnxtest.Builder)
}

// models have nodes without a kernel in the CPU provider of 1.29.
var models = []made{
	{"Swish", 25, "Mul Mul Sigmoid", "Swish body", func(b *onnxtest.Builder) {
		b.Output(b.Op("Swish", b.Input("x", onnx.Float, "n", 4), onnx.FloatAttr("alpha", 1.7)))
	}},
	{"Swish of float64", 25, "Mul Mul Sigmoid", "Swish body", func(b *onnxtest.Builder) {
		b.Output(b.Op("Swish", b.Input("x", onnx.Double, "n", 4), onnx.FloatAttr("alpha", 1.7)))
	}},
	{"Swish of bfloat16", 26, "Cast Cast Mul Sigmoid", "Swish body", func(b *onnxtest.Builder) {
		b.Output(b.Op("Swish", b.Input("x", onnx.BFloat16, "n", 4)))
	}},
	{"Swish before opset 25 runs on its body", 24, "Swish", "", func(b *onnxtest.Builder) {
		b.Output(b.Op("Swish", b.Input("x", onnx.Float, "n", 4)))
	}},
	{"SwiGLU", 28, "Mul Mul Sigmoid", "SwiGLU body", func(b *onnxtest.Builder) {
		b.Output(b.Op("SwiGLU", b.Input("a", onnx.Float, "n", 4), b.Input("b", onnx.Float, "n", 4)))
	}},
	{"SwiGLU of float16", 28, "Cast Cast Cast Mul Mul Sigmoid", "SwiGLU body", func(b *onnxtest.Builder) {
		b.Output(b.Op("SwiGLU", b.Input("a", onnx.Float16, "n", 4), b.Input("b", onnx.Float16, "n", 4)))
	}},
	{"an opset that is too new", 28, "Attention Cast Relu", "", func(b *onnxtest.Builder) {
		x := b.Input("x", onnx.Float, "n", 2, 3, 8)
		y := b.Op("Attention", x, x, x, onnx.IntAttr("left_window_size", -1))
		b.Output(b.Op("Cast", b.Op("Relu", y), onnx.IntAttr("to", int64(onnx.Float16)),
			onnx.StringAttr("round_mode", "up")))
	}},
	{"a kernel of an older version alone", 23, "RoiAlign", "", func(b *onnxtest.Builder) {
		b.Output(b.Op("RoiAlign", b.Input("x", onnx.Float, 1, 1, 4, 4), b.Floats([]int64{1, 4}, 0, 0, 2, 2), b.Ints(0)))
	}},
	{"bfloat16", 20, "Cast Cast Cast Cast Cast Cast Cast Cast Cast Cast Clip MatMul TopK",
		"MatMul float32, Clip float32, TopK float32",
		func(b *onnxtest.Builder) {
			w := b.Op("Cast", b.Floats([]int64{4, 4}, 1, 2, 3, 4, 5, 6, 7, 8, 8, 7, 6, 5, 4, 3, 2, 1),
				onnx.IntAttr("to", int64(onnx.BFloat16)))
			y := b.Op("MatMul", b.Input("x", onnx.BFloat16, "n", 4), w)
			y = b.Op("Clip", y, nil, b.Op("Cast", 20.0, onnx.IntAttr("to", int64(onnx.BFloat16))))
			top := b.Ops(2, "TopK", y, b.Ints(2))
			b.Output(top[0])
			b.Output(top[1])
		}},
	{"booleans", 21, "Cast Cast Cast Not Where", "Where uint8", func(b *onnxtest.Builder) {
		p, q := b.Input("p", onnx.Bool, "n", 4), b.Input("q", onnx.Bool, "n", 4)
		b.Output(b.Op("Where", b.Op("Not", p), p, q))
	}},
	{"scales of bfloat16", 21, "Cast Cast Cast DequantizeLinear", "DequantizeLinear float32",
		func(b *onnxtest.Builder) {
			scale := b.Op("Cast", 0.1, onnx.IntAttr("to", int64(onnx.BFloat16)))
			b.Output(b.Op("DequantizeLinear", b.Input("x", onnx.Int8, "n", 4), scale))
		}},
	{"sizes in floats", 21, "Cast Cast Resize", "Resize float32", func(b *onnxtest.Builder) {
		x := b.Input("x", onnx.BFloat16, 1, 1, 4, 4)
		b.Output(b.Op("Resize", x, nil, b.Floats([]int64{4}, 1, 1, 2, 0.5), onnx.StringAttr("mode", "linear")))
	}},
	{"reductions of half types", 18, "Cast Cast Cast Cast Cast Cast ScatterElements ScatterND Slice",
		"ScatterElements float32, ScatterND float32", func(b *onnxtest.Builder) {
			x, y := b.Input("x", onnx.Float16, 4, 2), b.Input("y", onnx.BFloat16, 4, 2)
			add, at := onnx.StringAttr("reduction", "add"), onnx.NewInt64s("at", []int64{0, 3, 3, 1})
			at.Dims = []int64{2, 2}
			b.Output(b.Op("ScatterElements", x, b.Constant(at), b.Op("Slice", x, b.Ints(0), b.Ints(2)), add))
			b.Output(b.Op("ScatterND", y, b.Ints(1), b.Input("u", onnx.BFloat16, 2), add))
		}},
	{"float16 is onnxruntime's to cast", 21, "Sigmoid", "", func(b *onnxtest.Builder) {
		b.Output(b.Op("Sigmoid", b.Input("x", onnx.Float16, "n", 4)))
	}},
	{"a branch", 21, "Cast If ReduceMax Greater Cast Mul Cast Cast Add Cast", "", func(b *onnxtest.Builder) {
		x := b.Input("x", onnx.BFloat16, "n", 4)
		branch := func(name, op string) *onnx.Attribute {
			g := &onnxtest.Builder{Model: b.Model, Graph: b.Graph.NewSubgraph(name)}
			g.Output(g.Op(op, x, x))
			return onnx.GraphAttr(name, g.Graph)
		}
		most := b.Op("ReduceMax", b.Op("Cast", x, onnx.IntAttr("to", int64(onnx.Float))), onnx.IntAttr("keepdims", 0))
		b.Output(b.Op("If", b.Op("Greater", most, 0.5), branch("then_branch", "Mul"), branch("else_branch", "Add")))
	}},
}

// TestLowered lowers models for every known version. Then every node has a kernel, and the results match the
// original's.
func TestLowered(t *testing.T) {
	for _, c := range models {
		t.Run(c.name, func(t *testing.T) {
			for _, version := range []string{"cpu@1.29", "cpu@1.30", "cpu@1.31", "cpu@1.32"} {
				b := onnxtest.New(c.opset)
				c.build(b)
				m, p := b.Model, place(t, version)
				inputs, err := golden.RandomInputs(m, 1, nil)
				if err != nil {
					t.Fatal(err)
				}
				var want []*onnx.Tensor
				if evaluates := c.ops != "RoiAlign"; evaluates {
					want = evaluated(t, m, inputs)
				}
				r, err := lowered(m, p)
				if err != nil {
					t.Fatal(err)
				}
				var ops, ways []string
				m.Graph.Walk(func(g *onnx.Graph) {
					for _, n := range g.Nodes {
						ops = append(ops, n.OpType)
					}
				})
				for _, l := range r.Lowered {
					ways = append(ways, l.Op+" "+l.Way)
				}
				if version == "cpu@1.29" && (!sameWords(strings.Join(ops, " "), c.ops) ||
					c.report != "" && strings.Join(ways, ", ") != c.report) {
					t.Errorf("%q, lowered %q", strings.Join(ops, " "), strings.Join(ways, ", "))
				}
				if m.Opset("") > p.Version.Opset {
					t.Errorf("%s: opset %d", version, m.Opset(""))
				}
				left := newLowering(&pass.Run{Editor: edit.Editor{Model: m}}, p, r)
				if ways, refused := left.ways(left.opset); len(ways) > 0 || refused != nil {
					t.Errorf("%s: %d nodes have no kernel, %v", version, len(ways), refused)
				}
				if want != nil {
					stats, err := golden.CompareAll(evaluated(t, m, inputs), want, golden.Tolerances{})
					if err != nil || !golden.Passed(stats) {
						t.Errorf("%s: %v, %+v", version, err, stats)
					}
				}
				if version == "cpu@1.32" {
					opens(t, m)
				}
			}
		})
	}
}

func sameWords(a, b string) bool {
	count := map[string]int{}
	for _, w := range strings.Fields(a) {
		count[w]++
	}
	for _, w := range strings.Fields(b) {
		count[w]--
	}
	for _, n := range count {
		if n != 0 {
			return false
		}
	}
	return true
}

// opens opens a model in the installed onnxruntime.
func opens(t *testing.T, m *onnx.Model) {
	t.Helper()
	lib := orttest.Library(t)
	b, err := onnx.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	s, err := ort.OpenBytes(b, "", ort.WithLibrary(lib))
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}

// TestRefused: the error names the nodes that cannot be lowered, and nothing is changed.
func TestRefused(t *testing.T) {
	for _, c := range []struct {
		place, reason string
		opset         int64
		build         func(b *onnxtest.Builder)
	}{
		{"cpu@1.29", `(CausalConvWithState): CausalConvWithState is an op of opset 27`, 27, func(b *onnxtest.Builder) {
			b.Output(b.Ops(2, "CausalConvWithState", b.Input("x", onnx.Float, 1, 4, 8),
				b.Floats([]int64{4, 1, 1}, 1, 2, 3, 4))[0])
		}},
		{"cpu@1.31", "left_window_size is new in opset 25", 28, func(b *onnxtest.Builder) {
			x := b.Input("x", onnx.Float, 1, 2, 3, 8)
			b.Output(b.Op("Attention", x, x, x, onnx.IntAttr("left_window_size", 2)))
		}},
		{"cpu@1.32", "has no kernel for Unheard", 21, func(b *onnxtest.Builder) {
			b.Output(b.Op("com.microsoft:Unheard", b.Input("x", onnx.Float, 4)))
		}},
		{"cuda", "not bfloat16", 21, func(b *onnxtest.Builder) {
			b.Output(b.Op("com.microsoft:BiasSoftmax", b.Input("x", onnx.BFloat16, 4, 4),
				b.Input("b", onnx.BFloat16, 4)))
		}},
	} {
		b := onnxtest.New(c.opset)
		b.Model.ImportOpset("com.microsoft", 1)
		c.build(b)
		_, err := lowered(b.Model, place(t, c.place))
		if err == nil || !strings.Contains(err.Error(), c.reason) || !strings.Contains(err.Error(), "cannot run on") {
			t.Errorf("%s: %v, expected %q", c.place, err, c.reason)
		}
		if b.Model.Opset("") != c.opset || len(b.Graph.Nodes) != 1 {
			t.Errorf("%s: opset %d, %d nodes", c.place, b.Model.Opset(""), len(b.Graph.Nodes))
		}
	}
}

// TestParsePlace chooses versions.
func TestParsePlace(t *testing.T) {
	for text, want := range map[string]string{
		"cpu": "CPU in onnxruntime 1.31.1", "CPU@1.29": "CPU in onnxruntime 1.29.0",
		"cuda@1.31.1": "CUDA in onnxruntime 1.31.1",
		"cpu@1.30.7":  "CPU in onnxruntime 1.30.0",
	} {
		if p, err := ParsePlace(text, "1.31.2"); err != nil || p.String() != want {
			t.Errorf("%q: %v, %v", text, p, err)
		}
	}
	if p, err := ParsePlace("cpu", "2.7.1"); err != nil || p.Version.Name != "1.32.0" {
		t.Errorf("newer than what is known: %v, %v", p, err)
	}
	for _, text := range []string{"qnn", "cpu@1.2", "cpu@9.9", "", "cpu@"} {
		if p, err := ParsePlace(text, ""); err == nil {
			t.Errorf("%q: %v", text, p)
		}
	}
	if p, err := ParsePlace("cpu", "1.15.0"); err == nil {
		t.Errorf("an old runtime at hand: %v", p)
	}
}
