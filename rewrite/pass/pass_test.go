package pass

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/mojo-patch/mojo-patch/fused"
	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/onnx/onnxtest"
	"github.com/mojo-patch/mojo-patch/reference"
	"github.com/mojo-patch/mojo-patch/reference/infer"
	"github.com/mojo-patch/mojo-patch/rewrite/edit"
	"github.com/mojo-patch/mojo-patch/rewrite/prove"
	"github.com/mojo-patch/mojo-patch/rewrite/rewritetest"
)

// TestScopes: outer graphs come before inner ones, and the path of each, which is part of the ids of sites, is unique.
func TestScopes(t *testing.T) {
	b := onnxtest.New(18)
	inside := func(n *onnx.Node, attribute string) *onnx.Node {
		s := n.Graph.NewSubgraph("body")
		s.AddNode("Abs", nil, []*onnx.Value{s.NewValue("a")})
		n.SetAttr(onnx.GraphAttr(attribute, s))
		inner := s.AddNode("Loop", nil, []*onnx.Value{s.NewValue("y")})
		inner.Name = "loop"
		return inner
	}
	choice := b.Op("If").Producer
	choice.Name = "choice"
	inside(inside(choice, "then_branch"), "body")
	inside(choice, "else_branch")
	for _, overload := range []string{"", "wide", "skipped"} {
		b.Model.Functions = append(b.Model.Functions, onnx.NewFunction("local", "f", overload, 18))
	}
	r := Run{Editor: edit.Editor{Model: b.Model}, Skips: func(f *onnx.Function) bool { return f.Overload == "skipped" }}
	var places []string
	for _, s := range r.Scopes() {
		places = append(places, s.Place)
		if (s.Function != nil) != strings.HasPrefix(s.Place, "local") {
			t.Errorf("%q is in function %v", s.Place, s.Function)
		}
		for i, n := range s.Graph.Nodes {
			if at, ok := s.Positions()[n]; !ok || at != i || len(s.Positions()) != len(s.Graph.Nodes) {
				t.Errorf("%q: node %q is at %d, want %d", s.Place, n.Label(), at, i)
			}
		}
	}
	want := []string{"", "choice.then_branch/", "choice.then_branch/loop.body/", "choice.else_branch/", "local.f/",
		"local.f.wide/"}
	if !slices.Equal(places, want) {
		t.Errorf("places %q, want %q", places, want)
	}
	if id := SiteID("GLU", "f/", []*onnx.Value{nil, {Name: "y"}, {Name: "z"}}); id != "GLU:f/y" {
		t.Errorf("the id is %q", id)
	}
}

// TestProvers: provers have the settings of the run, which lists their assumptions.
func TestProvers(t *testing.T) {
	r := Run{Off: true, Unverified: true}
	for _, p := range []*prove.Prover{r.NewProver(), r.NewWeightProver()} {
		p.Assume("it")
		if other := r.NewProver(); !p.Off || p.Every || other.Unverified {
			t.Errorf("%+v, %+v", p, other)
		}
	}
	if got := r.Assumed(); !slices.Equal(got, []string{"it", "it"}) || !r.NewWeightProver().Unverified {
		t.Errorf("assumed %q", got)
	}
	if p := (&Run{Every: true}).NewProver(); !p.Every || p.Off {
		t.Errorf("%+v", p)
	}
}

// TestFusedSite: sizes that are not known are -1, and a tensor of unknown rank has none.
func TestFusedSite(t *testing.T) {
	b := onnxtest.New(18)
	unknown := b.Graph.AddInput("u", onnx.Type{DataType: onnx.Float16})
	n := b.Op("Any", b.Input("x", onnx.Float, "batch", 8), nil, unknown, onnx.IntAttr("axis", 1)).Producer
	s := FusedSite(b.Model, infer.Analyze(b.Model), n)
	if !slices.Equal(s.Types, []onnx.DataType{onnx.Float, onnx.Undefined, onnx.Float16}) || s.Opset != 18 ||
		!slices.Equal(s.Dims[0], []int64{-1, 8}) || s.Dims[1] != nil || s.Dims[2] != nil || s.Attr("axis").Int != 1 {
		t.Errorf("%+v", s)
	}
}

// TestCompareKernel accepts the kernel that computes the definition, and refuses others.
func TestCompareKernel(t *testing.T) {
	x := reference.NewFloats(onnx.Float, []int{2}, []float64{1, 3})
	run := &prove.KernelRun{Op: fused.Lookup("GLU"), Site: gated, In: []*reference.Tensor{x, x}}
	returns := func(by float64) Kernel {
		return rewritetest.Kernel(func(in, out []*reference.Tensor) { out[0].F[1] *= by })
	}
	var err error
	if run.Want, err = returns(1).Run(run.Op, gated.Attributes, run.In); err != nil || run.Want[0].F[0] == 0 {
		t.Fatalf("%v, %v", run.Want, err)
	}
	broken := Kernel(func(_ string, _ []*onnx.Attribute, in []*onnx.Tensor) ([]*onnx.Tensor, error) {
		if in[0].Name != run.Op.Inputs[0].Name || in[0] == in[1] {
			t.Errorf("inputs %v", in)
		}
		return in, errors.New("broken")
	})
	for name, c := range map[string]struct {
		kernel   Kernel
		has      string
		ran, err bool
	}{
		"no kernel":  {nil, "GLU", false, false},
		"another op": {returns(2), "MoE", false, false},
		"right":      {returns(1), "GLU", true, false},
		"wrong":      {returns(2), "GLU", true, true},
		"broken":     {broken, "GLU", false, true},
	} {
		r := Run{Kernel: c.kernel, HasKernel: func(op string) bool { return op == c.has }}
		var report prove.CheckReport
		got, err := r.CompareKernel(run, &report)
		if (got != nil) != c.ran || (report.Kernel != nil) != c.ran || (err != nil) != c.err {
			t.Errorf("%s: %v, %v, %v", name, got, report.Kernel, err)
		}
	}
}

// TestKernelTensors passes a kernel the inputs that the node has, under the names of the op's, and refuses tensors that
// cannot be passed on.
func TestKernelTensors(t *testing.T) {
	x := reference.NewFloats(onnx.Float, []int{2}, []float64{1, 3})
	broken := &reference.Tensor{DataType: onnx.Float, Shape: []int{2}}
	op := fused.Lookup("NormQuantize")
	for name, c := range map[string]struct {
		in  []*reference.Tensor
		out []*onnx.Tensor
		err bool
	}{
		"one left out": {[]*reference.Tensor{x, nil, x}, []*onnx.Tensor{onnx.NewFloat32s("y", []int64{1},
			[]float32{7})}, false},
		"a broken input":  {[]*reference.Tensor{nil, broken}, nil, true},
		"a broken result": {[]*reference.Tensor{x}, []*onnx.Tensor{{DataType: onnx.Float, Dims: []int64{-1}}}, true},
	} {
		var given []*onnx.Tensor
		got, err := Kernel(func(_ string, _ []*onnx.Attribute, in []*onnx.Tensor) ([]*onnx.Tensor, error) {
			given = in
			return c.out, nil
		}).Run(op, nil, c.in)
		if c.err {
			if !errors.As(err, new(*prove.EvalError)) {
				t.Errorf("%s: %v, %v", name, got, err)
			}
			continue
		}
		if err != nil || got[0].F[0] != 7 {
			t.Errorf("%s: %v, %v", name, got, err)
		}
		for i, in := range given {
			if (in == nil) != (c.in[i] == nil) || in != nil && in.Name != op.Inputs[i].Name {
				t.Errorf("%s: input %d is %v", name, i, in)
			}
		}
	}
}

// gated describes a GLU.
var gated = fused.Site{Opset: 18, Attributes: fused.GLU{Activation: "silu", Alpha: 1}.Attributes(),
	Types: []onnx.DataType{onnx.Float, onnx.Float}, Dims: [][]int64{{2}, {2}}}

// TestCheckDomain refuses functions that have the name of a fused op and another definition, which its kernel would
// hide.
func TestCheckDomain(t *testing.T) {
	negated := func(f *onnx.Function) { f.Body.Nodes[0].OpType = "Neg" }
	untyped := func(n *onnx.Node) { n.Inputs[1].SetType(onnx.Type{}) }
	for name, c := range map[string]struct {
		change  func(f *onnx.Function, n *onnx.Node)
		calls   []int // number of inputs of each
		refused bool
	}{
		"the definition":    {nil, []int{2}, false},
		"another body":      {func(f *onnx.Function, _ *onnx.Node) { negated(f) }, []int{2}, true},
		"another signature": {func(f *onnx.Function, _ *onnx.Node) { f.Attributes = f.Attributes[1:] }, []int{2}, true},
		"other inputs, untyped": {func(f *onnx.Function, n *onnx.Node) {
			f.Body.Inputs[0].Name = "other"
			untyped(n)
		}, []int{2}, true},
		"other attributes, untyped": {func(f *onnx.Function, n *onnx.Node) {
			f.Attributes = f.Attributes[1:]
			untyped(n)
		}, []int{2}, true},
		"another body, untyped": {func(f *onnx.Function, n *onnx.Node) { negated(f); untyped(n) }, []int{2}, false},
		"another domain": {func(f *onnx.Function, n *onnx.Node) {
			negated(f)
			f.Domain, n.Domain = "local", "local"
		}, []int{2}, false},
		"another name":       {func(f *onnx.Function, n *onnx.Node) { f.Name, n.OpType = "One", "One" }, []int{2}, false},
		"a call without up":  {nil, []int{1}, true},
		"that and a correct": {nil, []int{1, 2}, false},
		"written by us": {func(f *onnx.Function, n *onnx.Node) {
			negated(f)
			n.Metadata = edit.Origin("", "GLU")
		}, []int{2}, false},
		"written by others": {func(f *onnx.Function, n *onnx.Node) {
			negated(f)
			n.Metadata = []onnx.Entry{{Key: "other"}}
		}, []int{2}, true},
		"another opset": {func(f *onnx.Function, _ *onnx.Node) { f.Opsets[0].Version = 20 }, []int{2}, false},
	} {
		b := onnxtest.New(18)
		f, err := fused.Lookup("GLU").Function(gated)
		if err != nil {
			t.Fatal(err)
		}
		b.Model.Functions = append(b.Model.Functions, f)
		x := []*onnx.Value{b.Input("gate", onnx.Float, 2), b.Input("up", onnx.Float, 2)}
		b.Op("Abs", x[0])
		for _, inputs := range c.calls {
			n := b.Op(fused.Domain+":GLU", x[:inputs], gated.Attributes).Producer
			if n.Overload = f.Overload; c.change != nil {
				c.change(f, n)
			}
		}
		if err := CheckDomain(b.Model); (err != nil) != c.refused ||
			err != nil && !strings.Contains(err.Error(), "calls the function mojo.GLU of the model") {
			t.Errorf("%s: %v", name, err)
		}
	}
}
