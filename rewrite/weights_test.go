package rewrite

import (
	"bytes"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/onnx/onnxtest"
	"github.com/mojo-patch/mojo-patch/patterns"
	"github.com/mojo-patch/mojo-patch/reference"
	"github.com/mojo-patch/mojo-patch/reference/infer"
	"github.com/mojo-patch/mojo-patch/rewrite/pass"
	"github.com/mojo-patch/mojo-patch/rewrite/rewritetest"
	"github.com/mojo-patch/mojo-patch/rewrite/sites"
)

// foundByHand finds handmade matches in every graph.
func foundByHand(make func(g *onnx.Graph) []*patterns.Match) finder {
	return func(g *onnx.Graph, _ *infer.Facts) ([]*patterns.Match, []*patterns.Miss) { return make(g), nil }
}

// finder finds matches instead of patterns.
type finder = func(*onnx.Graph, *infer.Facts) ([]*patterns.Match, []*patterns.Miss)

// hand writes replacements by hand.
type hand struct {
	onnxtest.Builder
	t *testing.T
	m *patterns.Match
}

func newHand(t *testing.T, outs ...value) *hand {
	h := &hand{t: t, m: &patterns.Match{Pattern: "hand", Root: outs[0].Producer, Outputs: outs,
		Replacement: onnx.NewFunction("", "", "", 18).Body}}
	h.Graph = h.m.Replacement
	return h
}

func (h *hand) in(v value) value {
	if i := slices.Index(h.m.Inputs, v); i >= 0 {
		return h.Graph.Inputs[i]
	}
	h.m.Inputs = append(h.m.Inputs, v)
	return h.Graph.AddInput("in", onnx.Type{})
}

// done returns the match, written by the outputs w.
func (h *hand) done(nodes []*onnx.Node, w ...value) *patterns.Match {
	for _, v := range w {
		h.Output(v)
	}
	h.m.Nodes = nodes
	for _, n := range h.Graph.Nodes {
		if h.m.Op == "" || n.Domain != "" {
			h.m.Op, h.m.Domain = n.OpType, n.Domain
		}
	}
	return h.m
}

// TestFold folds random nodes over constants and compares the results with the evaluator's.
func TestFold(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	folded := map[string]int{}
	for range 400 {
		b := rewritetest.New(t, 18, onnx.Float)
		x := b.In("x", 1)
		w := b.Weight("w", 2+r.IntN(3), 3+r.IntN(4), 4+r.IntN(100))
		y := b.Op("Add", x, w)
		b.Out(y)
		h := newHand(t, y)
		values := []value{h.in(w)}
		dims := w.Const.Dims
		for range 1 + r.IntN(4) {
			v := values[len(values)-1]
			axis := int64(r.IntN(3))
			var outs []value
			switch r.IntN(11) {
			case 0:
				outs = h.Ops(1, "Identity", v)
			case 1:
				v = h.Op("Unsqueeze", v, h.Ints(axis))
				outs = h.Ops(1, "Squeeze", v, h.Ints(axis))
			case 2:
				outs = h.Ops(1, "Reshape", v, h.Ints(-1, 1, dims[0]))
			case 3:
				perm := []int64{}
				for _, p := range r.Perm(3) {
					perm = append(perm, int64(p))
				}
				outs = h.Ops(1, "Transpose", v, onnx.IntsAttr("perm", perm))
			case 4:
				outs = h.Ops(1, "Transpose", v)
			case 5:
				outs = h.Ops(1, "Slice", v, h.Ints(int64(r.IntN(5)-2), -1), h.Ints(int64(r.IntN(200)-2), -1<<63),
					h.Ints(axis, (axis+1)%3-3), h.Ints(int64(1+r.IntN(2)), int64(-1-r.IntN(2))))
			case 6:
				outs = h.Ops(1, "Slice", v, h.Ints(0), h.Ints(2))
			case 7:
				outs = h.Ops(1, "Concat", v, values[0], onnx.IntAttr("axis", axis-3))
			case 8:
				outs = h.Ops(2, "Split", v, onnx.IntAttr("axis", axis), onnx.IntAttr("num_outputs", 2))
			case 9:
				outs = h.Ops(1, "Gather", v, h.Ints(1, 0, -1), onnx.IntAttr("axis", axis))
			case 10:
				outs = h.Ops(1, "Cast", v, onnx.IntAttr("to", int64(onnx.Float16)))
			}
			values = append(values, outs...)
		}
		match := h.done([]*onnx.Node{y.Producer}, h.Op("Add", h.in(x), values[len(values)-1]))
		facts := infer.Analyze(b.Model)
		c := &candidate{Site: &sites.Site{Match: match, Scope: &pass.Scope{Graph: b.Graph},
			Facts: facts.Within(match.Replacement, match.Inputs)}}
		constants := c.fold(18)
		env := map[value]*reference.Tensor{}
		env[h.in(w)], _ = reference.FromONNX(w.Const)
		for _, n := range h.Graph.Nodes[:len(h.Graph.Nodes)-1] {
			if err := reference.NewForOpset(18, nil, reference.Options{}).Eval([]*onnx.Node{n}, env); err != nil {
				break // the dimensions or the type do not fit
			}
			for _, v := range n.Outputs {
				k := constants[v]
				if k == nil {
					t.Fatalf("%s is not folded", n.OpType)
				}
				want, err := env[v].ToONNX("")
				if err != nil {
					t.Fatal(err)
				}
				wantBytes, _ := want.Bytes()
				got, err := k.tensor.Bytes()
				if err != nil || !bytes.Equal(got, wantBytes) || k.tensor.DataType != want.DataType ||
					!slices.Equal(k.tensor.Dims, want.Dims) {
					t.Fatalf("%s gives %s%v, want %s%v (%v)", n.OpType, k.tensor.DataType, k.tensor.Dims, want.DataType,
						want.Dims, err)
				}
				folded[n.OpType]++
			}
		}
	}
	for _, op := range []string{"Identity", "Unsqueeze", "Squeeze", "Reshape", "Transpose", "Slice", "Concat", "Split",
		"Gather", "Cast"} {
		if folded[op] < 10 {
			t.Errorf("%s was folded %d times", op, folded[op])
		}
	}
}

// productsOf is a model that multiplies x by three weights and concatenates the results, at two places; one weight has
// another reader. The matches multiply by the concatenated weights.
func productsOf(t *testing.T) (*onnx.Model, finder) {
	b := rewritetest.New(t, 18, onnx.Float)
	x := b.In("x", "batch", 16)
	var weights []value
	for i := range 3 {
		weights = append(weights, b.Weight("w", 16, 40+8*i))
	}
	for range 2 {
		var parts []any
		for _, w := range weights {
			parts = append(parts, b.Op("MatMul", x, w))
		}
		b.Out(b.Op("Concat", append(parts, onnx.IntAttr("axis", -1))...), "batch", 144)
	}
	b.Out(b.Op("MatMul", x, weights[1]), "batch", 48)
	return b.Model, foundByHand(func(g *onnx.Graph) []*patterns.Match { return concatenated(t, g) })
}

// concatenated matches the products that are concatenated.
func concatenated(t *testing.T, g *onnx.Graph) (matches []*patterns.Match) {
	for _, n := range g.Nodes {
		if n.OpType != "Concat" {
			continue
		}
		h := newHand(t, n.Outputs[0])
		x := h.in(n.Inputs[0].Producer.Inputs[0])
		var list []value
		var nodes []*onnx.Node
		for _, v := range n.Inputs {
			list = append(list, h.in(v.Producer.Inputs[1]))
			nodes = append(nodes, v.Producer)
		}
		w := h.Ops(1, "Concat", list, onnx.IntAttr("axis", 1))
		matches = append(matches, h.done(append(nodes, n), h.Op("MatMul", x, w)))
	}
	return matches
}

// TestBranchesShareWeights packs weights of the main graph for sites in both branches of an If.
func TestBranchesShareWeights(t *testing.T) {
	b := rewritetest.New(t, 18, onnx.Float)
	x, outer := b.In("x", "batch", 16), b.Graph
	flag := outer.AddInput("flag", onnxtest.Type(onnx.Bool))
	u, w := b.Weight("w", 16, 40), b.Weight("w", 16, 48)
	var attrs []*onnx.Attribute
	for _, name := range []string{"then_branch", "else_branch"} {
		b.Graph = outer.NewSubgraph(name)
		y := b.Op("Concat", b.Op("MatMul", x, u), b.Op("MatMul", x, w), onnx.IntAttr("axis", -1))
		// in the branch: only the weights are shared
		axis := b.Graph.AddInitializer(onnx.NewInt64s("axis", []int64{-1}))
		b.Output(b.Op("ReduceSum", y, axis, onnx.IntAttr("keepdims", 0)))
		attrs = append(attrs, onnx.GraphAttr(name, b.Graph))
	}
	b.Graph = outer
	b.Out(b.Op("If", flag, attrs[0], attrs[1]), "batch")
	m := b.Model
	want := rewritetest.Evaluate(t, m)
	r, err := Apply(m, Request{Kernels: "onnx_layernorm",
		find: foundByHand(func(g *onnx.Graph) []*patterns.Match { return concatenated(t, g) })})
	if err != nil || r.Fused() != 2 {
		t.Fatalf("fused %d: %v %+v", r.Fused(), err, r.Sites)
	}
	var names []string
	for _, v := range m.Graph.Initializers() {
		names = append(names, v.Name)
	}
	if len(names) != 1 {
		t.Errorf("initializers of the main graph: %q", names)
	}
	path := filepath.Join(t.TempDir(), "out.onnx")
	if err := onnx.Write(path, m); err != nil {
		t.Fatal(err)
	}
	if m, err = onnx.Read(path); err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	for name, got := range rewritetest.Evaluate(t, m) {
		if !slices.Equal(got.F, want[name].F) {
			t.Errorf("output %s changed", name)
		}
	}
}

func TestWeightsArePacked(t *testing.T) {
	for _, external := range []bool{false, true} {
		m, found := productsOf(t)
		want := rewritetest.Evaluate(t, m)
		dir := t.TempDir()
		path := filepath.Join(dir, "in.onnx")
		var options []onnx.WriteOption
		if external {
			options = append(options, onnx.ExternalDataOver(1000))
		}
		if err := onnx.Write(path, m, options...); err != nil {
			t.Fatal(err)
		}
		m, err := onnx.Read(path)
		if err != nil {
			t.Fatal(err)
		}
		defer m.Close()
		if _, err := Apply(m, Request{Kernels: None, find: found}); err != nil {
			t.Fatal(err)
		}
		r, err := Apply(m, Request{Kernels: "onnx_layernorm", find: found})
		if err != nil || r.Fused() != 2 {
			t.Fatalf("fused %d: %v %+v", r.Fused(), err, r.Sites)
		}
		if n := rewritetest.CountOps(m); n["MatMul"] != 3 || n["Concat"] != 0 {
			t.Errorf("nodes: %v", n)
		}
		var names []string
		for _, v := range m.Graph.Initializers() {
			names = append(names, v.Name)
		}
		if len(names) != 2 || names[0] != "w_1" { // the one read elsewhere, and the one that both sites share
			t.Errorf("initializers: %q", names)
		}
		out := filepath.Join(dir, "out.onnx")
		if err := onnx.Write(out, m); err != nil {
			t.Fatal(err)
		}
		if _, err := os.Stat(out + ".data"); (err == nil) != external {
			t.Errorf("external %v: %v", external, err)
		}
		again, err := onnx.Read(out)
		if err != nil {
			t.Fatal(err)
		}
		defer again.Close()
		for name, got := range rewritetest.Evaluate(t, again) {
			if !slices.Equal(got.F, want[name].F) {
				t.Errorf("output %s changed", name)
			}
		}
	}
}

// TestWeightsWithoutData keeps weights whose files are missing.
func TestWeightsWithoutData(t *testing.T) {
	m, found := productsOf(t)
	path := filepath.Join(t.TempDir(), "in.onnx")
	if err := onnx.Write(path, m, onnx.ExternalDataOver(1000)); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(path + ".data"); err != nil {
		t.Fatal(err)
	}
	m, err := onnx.Read(path, onnx.AllowMissingData())
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	r, err := Apply(m, Request{Kernels: "onnx_layernorm", find: found, Verify: VerifyOff})
	if err != nil || r.Fused() != 2 {
		t.Fatalf("fused %d: %v", r.Fused(), err)
	}
	if n := rewritetest.CountOps(m); n["Concat"] != 1 {
		t.Errorf("nodes: %v", n)
	}
	if err := onnx.Write(filepath.Join(filepath.Dir(path), "out.onnx"), m); err != nil {
		t.Error(err)
	}
}

// TestConstantOfTheModel replaces nodes by nodes with a tensor of the model, which keeps its name.
func TestConstantOfTheModel(t *testing.T) {
	b := onnxtest.New(18)
	c := b.Floats([]int64{2}, 1, 2)
	was := c.Name
	w := &writer{scope: &pass.Scope{Graph: b.Graph}, constants: map[string]*onnx.Value{}}
	k := &constant{tensor: c.Const, key: onnx.TensorKey(c.Const)}
	made := w.initializerOf(nil, onnx.NewFunction("", "", "", 18).Body.NewValue("axes"), k)
	if c.Const.Name != was || made.Const.Name != made.Name || made.Name == was {
		t.Errorf("initializer %s has the tensor %s, and %s has %s", was, c.Const.Name, made.Name, made.Const.Name)
	}
}
