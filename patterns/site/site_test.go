package site

import (
	"slices"
	"testing"

	"github.com/mojo-patch/mojo-patch/fused"
	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/onnx/onnxtest"
	"github.com/mojo-patch/mojo-patch/patterns/match"
	"github.com/mojo-patch/mojo-patch/reference"
	"github.com/mojo-patch/mojo-patch/reference/infer"
)

type list = []*onnx.Value

// newSite returns a site at the last node of a model.
func newSite(b *onnxtest.Builder, op string) *Site {
	nodes := b.Graph.Nodes
	return New(match.New(b.Graph, infer.Analyze(b.Model), nil), op, nodes[len(nodes)-1])
}

// TestReplacement builds the nodes of a site, and computes them.
func TestReplacement(t *testing.T) {
	b := onnxtest.New(17)
	x, y := b.Input("x", onnx.Float16, 2, 3), b.Input("y", onnx.Float, 3, 2)
	out := b.Op("Add", x, x)
	s := newSite(b, fused.GLUName)
	gate, up := s.Input(fused.RoleTokens, "gate", x), s.Input(fused.NoRole, "up", y)
	if again := s.Input(fused.RoleBias, "again", x); again != gate || s.Roles[x] != fused.RoleTokens ||
		len(s.Roles) != 1 || !slices.Equal(s.Inputs, list{x, y}) || len(s.Replacement.Inputs) != 2 {
		t.Errorf("inputs %q with the roles %v", onnx.Names(s.Inputs), s.Roles)
	}
	if gate.Type != onnx.Float16 || up.Type != onnx.Float || gate.Value() != s.Replacement.Inputs[0] {
		t.Errorf("the operands are of type %s and %s", gate.Type, up.Type)
	}
	if up.Cast(onnx.Float) != up || up.Transpose("same") != up {
		t.Error("an adapter that changes nothing adds a node")
	}
	wide := gate.Cast(onnx.Float)
	if wide.Type != onnx.Float || wide.Value().Name != "gate_cast" {
		t.Errorf("%q is of type %s", wide.Value().Name, wide.Type)
	}
	turned := up.Transpose("turned", 1, 0)
	shifted := turned.Then("Sub", "shifted", []*Operand{s.Number(0.5, onnx.Float)})
	flat := shifted.With("Reshape", "flat", "shape", 3, 2).With("Reshape", "rows", "shape", 2, 3)
	if turned.Type != onnx.Float || flat.Type != onnx.Float || flat.Value().Name != "rows" {
		t.Errorf("%s, %s after adapters of float32", turned.Type, flat.Type)
	}
	glu := fused.GLU{Activation: "gelu", Alpha: 1}
	made := s.Compute(glu, []string{"made"}, wide, flat)
	s.Output(out, made[0])
	n := made[0].Value().Producer
	if s.Op != "GLU" || s.Domain != fused.Domain || n.Domain != fused.Domain || n.OpType != "GLU" ||
		!slices.Equal(n.Inputs, list{wide.Value(), flat.Value()}) || !slices.Equal(s.Outputs, list{out}) ||
		!slices.Equal(s.Replacement.Outputs, n.Outputs) || s.Root != out.Producer || s.Problem != nil {
		t.Errorf("%s.%s of %q in %s.%s", n.Domain, n.OpType, onnx.Names(n.Inputs), s.Domain, s.Op)
	}
	if len(s.Attributes) == 0 || n.AttrString("activation", "") != "gelu" {
		t.Errorf("attributes %v", s.Attributes)
	}
	in := map[*onnx.Value]*reference.Tensor{
		s.Replacement.Inputs[0]: reference.NewFloats(onnx.Float16, []int{2, 3}, []float64{1, -1, 2, 3, 0, 1}),
		s.Replacement.Inputs[1]: reference.NewFloats(onnx.Float, []int{3, 2}, []float64{1, 2, 3, 4, 5, 6})}
	nodes := slices.DeleteFunc(slices.Clone(s.Replacement.Nodes), func(m *onnx.Node) bool { return m == n })
	if err := reference.NewForOpset(17, nil, reference.Options{}).Eval(nodes, in); err != nil {
		t.Fatal(err)
	}
	if got := in[n.Inputs[0]]; got.DataType != onnx.Float || !slices.Equal(got.F, []float64{1, -1, 2, 3, 0, 1}) {
		t.Errorf("the gate is %v", got)
	}
	if got := in[n.Inputs[1]]; !slices.Equal(got.Shape, []int{2, 3}) ||
		!slices.Equal(got.F, []float64{0.5, 2.5, 4.5, 1.5, 3.5, 5.5}) {
		t.Errorf("up is %v of %v, want the transposed input less 0.5", got.Shape, got.F)
	}
}

// TestOmitted: inputs at the end that are left out are not written, others keep their place. So do outputs.
func TestOmitted(t *testing.T) {
	b := onnxtest.New(17)
	x := b.Input("x", onnx.Float, 2)
	b.Op("Abs", x)
	s := newSite(b, "Clip")
	in, most := s.Input(fused.NoRole, "in", x), s.Number(1, onnx.Float)
	var none *Operand
	full := s.ComputeAs([]*onnx.Attribute{onnx.IntAttr("a", 3)}, []string{"", "full"}, in, nil, most, none, none)
	n := full[1].Value().Producer
	if !slices.Equal(n.Inputs, list{in.Value(), nil, most.Value()}) || n.Domain != "" || s.Domain != "" ||
		full[0] != nil || n.OutputValue(0) != nil || n.OutputValue(1).Name != "full" || n.AttrInt("a", 0) != 3 ||
		len(s.Attributes) != 1 || n.OpType != "Clip" {
		t.Errorf("%s of %d inputs", n.Text(), len(n.Inputs))
	}
	one := s.ComputeAs(nil, []string{"one"}, in, none)
	no := s.ComputeAs(nil, []string{"no"}, none)
	if n, m := one[0].Value().Producer, no[0].Value().Producer; len(n.Inputs) != 1 || len(m.Inputs) != 0 ||
		len(s.Attributes) != 0 {
		t.Errorf("%d and %d inputs, want 1 and none", len(n.Inputs), len(m.Inputs))
	}
	other := s.Fused(fused.GLU{Activation: "silu"}, []string{"other"}, in, in)
	if n := other[0].Value().Producer; n.Domain != fused.Domain || n.OpType != "GLU" || len(s.Attributes) != 0 ||
		n.AttrString("activation", "") != "silu" {
		t.Errorf("another op: %s, and the site has %d attributes", n.Text(), len(s.Attributes))
	}
	if none.Value() != nil {
		t.Error("an omitted operand has a value")
	}
}

// TestConstants: a constant that the site's graph sees is an input; one in the body of a loop or branch is copied.
func TestConstants(t *testing.T) {
	b := onnxtest.New(17)
	x := b.Input("x", onnx.Float, 2)
	outer := b.Floats([]int64{2}, 1, 2)
	branch := b.Graph.NewSubgraph("branch")
	within := branch.AddInitializer(onnx.NewFloat32s("within", []int64{2}, []float32{3, 4}))
	branch.AddOutput((&onnxtest.Builder{Model: b.Model, Graph: branch}).Op("Add", outer, within))
	b.Op("If", b.Input("c", onnx.Bool), onnx.GraphAttr("then_branch", branch))
	b.Op("Neg", x)
	facts := infer.Analyze(b.Model)
	for name, c := range map[string]struct {
		g      *onnx.Graph
		v      *onnx.Value
		copied bool
	}{
		"of the graph":           {b.Graph, outer, false},
		"of a branch":            {b.Graph, within, true},
		"of the branch's own":    {branch, within, false},
		"of the graph around it": {branch, outer, false},
		"a value around it":      {branch, x, false},
	} {
		s := New(match.New(c.g, facts, nil), "Add", c.g.Nodes[0])
		o := s.Input(fused.RoleMatrix, "w", c.v)
		if again := s.Input(fused.RoleMatrix, "w", c.v); again != o || o.Type != onnx.Float {
			t.Errorf("%s: read again, or of type %s", name, o.Type)
		}
		n := o.Value().Producer
		if c.copied != (len(s.Inputs) == 0) || c.copied != (len(s.Roles) == 0) || c.copied != (n != nil) {
			t.Errorf("%s: inputs %q, roles %v", name, onnx.Names(s.Inputs), s.Roles)
		}
		if c.copied && (!n.Is("Constant") || n.Attr("value").Tensor != c.v.Constant()) {
			t.Errorf("%s: copied as %s", name, n.Text())
		}
	}
}

// TestNumbers: numbers are tensors of the wanted type and rank; one that the type cannot hold is a problem.
func TestNumbers(t *testing.T) {
	b := onnxtest.New(17)
	b.Op("Abs", b.Input("x", onnx.Float, 2))
	s := newSite(b, "Abs")
	for name, c := range map[string]struct {
		o    *Operand
		typ  onnx.DataType
		dims []int64
		want float64
	}{
		"a vector":        {s.Integers("v", 7, 8), onnx.Int64, []int64{2}, 7},
		"an integer":      {s.Integer("i", -3), onnx.Int64, []int64{}, -3},
		"a half":          {s.Number(0.25, onnx.Float16), onnx.Float16, []int64{}, 0.25},
		"a whole number":  {s.Number(-4, onnx.Int32), onnx.Int32, []int64{}, -4},
		"a float of 2^24": {s.Number(1<<24, onnx.Float), onnx.Float, []int64{}, 1 << 24},
	} {
		x := c.o.Value().Producer.Attr("value").Tensor
		r, err := reference.FromONNX(x)
		if err != nil {
			t.Fatal(err)
		}
		got := append(append([]float64{}, r.F...), toFloats(r.I)...)
		if x.DataType != c.typ || !slices.Equal(x.Dims, c.dims) || got[0] != c.want || len(got) != int(x.Len()) {
			t.Errorf("%s: %s%v %v", name, x.DataType, x.Dims, got)
		}
	}
	if n := s.Number(2, onnx.Float16); n.Type != onnx.Float16 || s.Problem != nil {
		t.Errorf("of type %s, %v", n.Type, s.Problem)
	}
	for _, typ := range []onnx.DataType{onnx.Int64, onnx.String} {
		s.Problem = nil
		if o := s.Number(2.5, typ); o.Value() != nil || s.Problem == nil {
			t.Errorf("2.5 as %s: %v", typ, o.Value())
		}
	}
	if _, err := Scalar(2, onnx.String); err == nil {
		t.Error("2 is a string")
	}
}

func toFloats(ints []int64) (made []float64) {
	for _, x := range ints {
		made = append(made, float64(x))
	}
	return made
}

// TestRoles: the first role of an input stays.
func TestRoles(t *testing.T) {
	var r Roles
	v, w := new(onnx.Value), new(onnx.Value)
	r.Set(v, fused.RoleIDs)
	r.Set(v, fused.RoleTokens)
	r.Set(w, fused.NoRole)
	r.Set(w, fused.RoleTokens)
	if r[v] != fused.RoleIDs || r[w] != fused.RoleTokens {
		t.Errorf("%v", r)
	}
}
