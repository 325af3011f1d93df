package sites

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/mojo-patch/mojo-patch/fused"
	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/onnx/onnxtest"
	"github.com/mojo-patch/mojo-patch/patterns"
	"github.com/mojo-patch/mojo-patch/patterns/reason"
	"github.com/mojo-patch/mojo-patch/reference"
	"github.com/mojo-patch/mojo-patch/rewrite/prove"
	"github.com/mojo-patch/mojo-patch/rewrite/registry"
	"github.com/mojo-patch/mojo-patch/rewrite/rewritetest"
	"github.com/mojo-patch/mojo-patch/rewrite/target"
)

// TestCrowds: how many tokens go to an expert at once, and to how many experts in turn, follows from the numbers in the
// graph and from how long it takes.
func TestCrowds(t *testing.T) {
	turned := func(m *rewritetest.MoE, unless value) value {
		return m.Op("Where", unless, m.Weights, m.Op("Neg", m.Weights))
	}
	than := func(n int64) func(m *rewritetest.MoE) value {
		return func(m *rewritetest.MoE) value { return turned(m, m.Op("LessOrEqual", m.IDs, m.Ints(n))) }
	}
	beside := func(m *rewritetest.MoE) value {
		return turned(m, m.Op("Equal", m.Op("Mod", m.IDs, m.Ints(50)), m.IDs))
	}
	for _, c := range []struct {
		weights func(m *rewritetest.MoE) value
		each    int64 // products of a token
		want    string
	}{
		{nil, 2, "35 35 35"}, {nil, 1 << 26 / 35, "35 35 35"}, {nil, 1<<26/35 + 2, ""},
		{beside, 2, "52 52 52"}, {beside, 1 << 26 / 52, "52 52 52"}, {beside, 1<<26/52 + 2, "35 35 35"},
		{than(40), 1 << 28 / 42 / 3, "42 42 42"}, {than(40), 1<<28/42/3 + 2, "42 35 35"},
		{than(40), 1 << 28 / 35 / 3, "42 35 35"}, {than(40), 1<<28/35/3 + 2, "42"},
		{than(40), 1 << 33 / 42, "42"}, {than(40), 1<<33/42 + 2, "a node compares with 40"},
		{than(4096), 2, "4098 4098 4098"}, {than(4097), 2, "a node compares with 4097"},
	} {
		x := expertsOf(t, onnx.Float, 5, 2, c.weights)
		x.matrices = c.each / 2 * 5
		x.good = []trial{{size: x.sizes[3], kind: prove.Normal, hits: 3}, {size: x.sizes[0], hits: 2}}
		var got []string
		for trial, err := range x.trials(x.crowd) {
			tokens, on := strings.CutSuffix(trial.Name, " tokens on 2 of 5 experts")
			if !on {
				tokens = err.Error()
			}
			got = append(got, strings.TrimPrefix(tokens, "normal inputs of "))
		}
		if text := strings.Join(got, " "); !strings.Contains(text, c.want) || !strings.Contains(c.want, "node") &&
			text != c.want {
			t.Errorf("%d products of a token: %s, want %s", c.each, text, c.want)
		}
	}
}

// TestSmallKernels: the kernel of great experts runs on small matrices in the site's layouts, and on some as wide as in
// the site in one direction. A definition is not run.
func TestSmallKernels(t *testing.T) {
	for _, c := range []struct {
		device, packing, gateUp, down string
		width                         int64 // -1: unknown
		want                          string
	}{
		{"CPU", "halves", "out_in", "out_in", 6, "[5 72 52] [5 52 36] [5 72 8] [5 8 36] [5 12 52] [5 52 6]"},
		{"CPU", "halves", "in_out", "in_out", 6, "[5 52 72] [5 36 52] [5 8 72] [5 36 8] [5 52 12] [5 6 52]"},
		{"CPU", "none", "out_in", "in_out", -1, "[5 36 52] [5 36 52] [5 36 8] [5 36 8]"},
		{registry.DeviceREF, "halves", "out_in", "out_in", 6, ""}, {"", "halves", "out_in", "out_in", 6, ""},
	} {
		x := expertsOf(t, onnx.Float, 5, 2, nil)
		call := x.r.call
		for name, s := range map[string]string{fused.AttrPacking: c.packing, fused.AttrGateUpLayout: c.gateUp,
			fused.AttrDownLayout: c.down} {
			call.Node.SetAttr(onnx.StringAttr(name, s))
		}
		call.Site.Attributes, call.Site.Dims = call.Node.Attributes, make([][]int64, len(call.Site.Types))
		f, err := call.Op.Function(call.Site)
		if err != nil {
			t.Fatal(err)
		}
		call.Node.Overload, x.c.Functions = f.Overload, []*onnx.Function{f}
		if call.Site.Dims[fused.MoEDown] = []int64{5, 8, c.width}; c.down == "in_out" {
			call.Site.Dims[fused.MoEDown] = []int64{5, c.width, 8}
		}
		var got []string
		call.Kernel, x.run.HasKernel = &registry.Kernel{Device: c.device}, func(string) bool { return true }
		if c.device != "" {
			x.run.Kernel = rewritetest.Kernel(func(in, _ []*reference.Tensor) {
				got = append(got, fmt.Sprint(in[3].Shape), fmt.Sprint(in[4].Shape))
			})
		}
		if err := x.smallKernels(); err != nil || strings.Join(got, " ") != c.want {
			t.Errorf("%+v: %q, %v", c, got, err)
		}
	}
}

// TestInRuntime: a runtime refuses nodes of a target if it fails on them and reproduces the original ones, with their
// known and repeated values.
func TestInRuntime(t *testing.T) {
	branch := func(n *onnx.Node) { n.SetAttr(onnx.GraphAttr("body", n.Graph.NewSubgraph("body"))) }
	for name, c := range map[string]struct {
		change func(p *proof)
		fails  string  // "new", "old" or both
		factor float64 // of the results, instead of an error
		runs   int
		want   string
	}{
		"right":           {nil, "", 0, 1, ""},
		"not run":         {nil, "new", 0, 2, "target any: its nodes do not run on some inputs: no kernel"},
		"neither run":     {nil, "new old", 0, 2, ""},
		"differ":          {nil, "new", 1.01, 2, "target any: its nodes return other results on some inputs: "},
		"both differ":     {nil, "new old", 1.01, 2, ""},
		"nearly the same": {nil, "new", 1.0001, 1, ""},
		"another world":   {func(p *proof) { p.w.n = -1 }, "new old", 0, 1, "no kernel"},
		"no target":       {func(p *proof) { p.Target = nil }, "new", 0, 0, ""},
		"without any":     {func(p *proof) { p.Runtime = nil }, "new", 0, 0, ""},
		"with a fused op": {func(p *proof) {
			p.c.Match.Replacement.Nodes[0].Domain = fused.Domain
		}, "new", 0, 0, ""},
		"with a branch": {func(p *proof) {
			branch(p.c.Match.Replacement.Nodes[0])
		}, "new", 0, 0, ""},
		"from a branch": {func(p *proof) {
			branch(p.c.slice.nodes[0])
		}, "new old", 0, 1, "no kernel"},
	} {
		b := onnxtest.New(20)
		x := b.Input("x", onnx.Float, "n", 4)
		e, again := b.Op("Exp", x), b.Op("Exp", x)
		size := b.Op("Cast", b.Op("Gather", b.Op("Shape", x), 0), onnx.IntAttr("to", int64(onnx.Float)))
		y := b.Op("Add", b.Op("Mul", e, again), size)
		k := checkerOf(b.Model)
		r := &onnxtest.Builder{Model: b.Model, Graph: onnx.NewFunction("", "", "", 20).Body}
		in := r.Graph.AddInput("in", onnx.Type{})
		r.Graph.AddOutput(r.Op("Add", r.Op("Mul", in, in), 2.0))
		s := &Site{Match: &patterns.Match{Inputs: []value{e}, Outputs: []value{y}, Replacement: r.Graph}}
		var err error
		if s.slice, err = cut(s.Match, b.Graph, k.run.Facts); err != nil {
			t.Fatal(err)
		}
		given := []*reference.Tensor{reference.NewFloats(onnx.Float, []int{2, 4}, []float64{1, 2, 3, 4, 5, 6, 7, 8})}
		w := world{k.run.Facts, 0}
		want, err := k.original(s, w, given, false)
		if err != nil {
			t.Fatal(err)
		}
		runs := 0
		k.Target = &target.Target{Name: "any"}
		k.Runtime = func(m *onnx.Model, feeds []*onnx.Tensor) ([]*onnx.Tensor, error) {
			factor := 1.0
			if strings.Contains(c.fails, []string{"new", "old"}[runs]) {
				factor = c.factor
			}
			if runs++; factor == 0 {
				return nil, errors.New("no kernel")
			}
			v, err := reference.New(m, reference.Options{})
			if err != nil {
				t.Fatal(err)
			}
			out, err := v.RunTensors(feeds)
			if err != nil {
				t.Fatal(err)
			}
			z, _ := reference.FromONNX(out[0])
			for i := range z.F {
				z.F[i] *= factor
			}
			out[0], err = z.ToONNX("y")
			return out, err
		}
		p := &proof{Checker: k, c: s, w: w}
		if c.change != nil {
			c.change(p)
		}
		err = p.claim(nil, nil).Also(prove.Trial{Name: "some inputs", Inputs: given}, want, nil, nil)
		if runs != c.runs || (err == nil) != (c.want == "") || err != nil && (!strings.Contains(err.Error(), c.want) ||
			reason.As(err).Code != reason.Target) {
			t.Errorf("%s: %v after %d runs, want %q after %d", name, err, runs, c.want, c.runs)
		}
	}
}

// TestLower: a target's ops replace a fused op, unless the nodes are these ops already or the target has none.
func TestLower(t *testing.T) {
	ort, err := target.Lookup("ort")
	if err != nil {
		t.Fatal(err)
	}
	without := *ort
	without.Rules = nil
	var made []*onnx.Node
	for _, to := range []*target.Target{ort, &without} {
		for i, want := range []string{"[QuickGelu, Mul] [Mul com.microsoft.QuickGelu] 0",
			"target ort: it is Mul, com.microsoft.QuickGelu already"} {
			if to.Rules == nil {
				want = "GLU"
			}
			k, s := gatedSite(t, "n", 4)
			if s.Match.Nodes = made; i == 0 {
				s.Match.Nodes = s.Nodes()
			}
			emits, err := s.Lower(to, &target.Products{}, k.run.Facts)
			got := fmt.Sprint(emits, OpNames(s.Match.Replacement.Nodes), len(s.Functions), err)
			if made = s.Match.Replacement.Nodes; !strings.Contains(got, want) {
				t.Errorf("lowered to %s, want %s", got, want)
			}
		}
	}
}
