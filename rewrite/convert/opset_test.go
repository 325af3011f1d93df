package convert

import (
	"fmt"
	"strings"
	"testing"

	"github.com/mojo-patch/mojo-patch/onnx"
)

var vector = onnx.Type{DataType: onnx.Float, HasShape: true, Dims: []onnx.Dim{{Value: 4}}}

// model returns a model with one node that reads x, after a ReduceMax that the conversion would change.
func model(opset int64, op string, t onnx.Type, attrs ...*onnx.Attribute) *onnx.Model {
	m := onnx.New(8, opset)
	x := m.Graph.AddInput("x", t)
	y := m.Graph.NewValue("y")
	y.SetType(onnx.Type{DataType: t.DataType})
	n := m.Graph.AddNode(op, []*onnx.Value{x}, []*onnx.Value{y}, attrs...)
	n.Name = "the node"
	m.Graph.AddOutput(y)
	z := m.Graph.NewValue("z")
	m.Graph.AddNode("ReduceMax", []*onnx.Value{x}, []*onnx.Value{z}, onnx.IntsAttr("axes", []int64{0}))
	m.Graph.AddOutput(z)
	return m
}

// TestOpsetErrs: each error names the node that cannot be converted, and that the model stays unchanged.
func TestOpsetErrs(t *testing.T) {
	integers := onnx.Type{DataType: onnx.Int32, HasShape: true, Dims: vector.Dims}
	training := model(13, "BatchNormalization", vector)
	training.Graph.Nodes[0].TakeOutput(1, training.Graph.NewValue("mean"))
	calls := func(defaults ...*onnx.Attribute) *onnx.Model {
		m := model(17, "Peak", vector)
		m.Graph.Nodes[0].Domain = "local"
		m.ImportOpset("local", 1)
		f := onnx.NewFunction("local", "Peak", "", 17)
		f.Attributes = []string{"axes"}
		f.Defaults = defaults
		v := f.Body.NewValue("peak")
		x := f.Body.AddInput("x", onnx.Type{})
		f.Body.AddNode("ReduceMax", []*onnx.Value{x}, []*onnx.Value{v}, onnx.RefAttr("axes", onnx.AttrInts, "axes"))
		f.Body.AddOutput(v)
		m.Functions = append(m.Functions, f)
		return m
	}
	newer := calls(onnx.IntsAttr("axes", []int64{0}))
	newer.Functions[0].Opsets[0].Version = 24
	mode := calls(onnx.IntsAttr("axes", []int64{0}))
	mode.Functions[0].Body.Nodes[0].OpType = "GridSample"
	mode.Functions[0].Body.Nodes[0].Attributes = []*onnx.Attribute{onnx.RefAttr("mode", onnx.AttrString, "mode")}
	both := model(13, "ReduceMin", vector, onnx.IntsAttr("axes", []int64{0}))
	both.Graph.Nodes[0].SetInput(1, both.Graph.AddInitializer(onnx.NewInt64s("axes", []int64{0})))
	old := calls(onnx.IntsAttr("axes", []int64{0}))
	old.Functions[0].Opsets[0].Version = 10
	none := model(17, "Relu", vector)
	none.Opsets = nil
	empty := model(12, "Softmax", vector)
	empty.Graph.Nodes[0].SetInput(0, nil)
	unknown := onnx.Type{}
	norm := func(t onnx.Type, groups *onnx.Attribute) *onnx.Model {
		m := model(18, "GroupNormalization", t, groups)
		for i := range 3 {
			m.Graph.Nodes[0].SetInput(i, m.Graph.Inputs[0])
		}
		return m
	}
	for _, c := range []struct {
		name string
		m    *onnx.Model
		to   int64
		want []string
	}{
		{"older", model(17, "Relu", vector), 16, []string{"opset 17", "older opset 16"}},
		{"oldest", model(10, "Relu", vector), 16, []string{"opset 10", "11 and newer"}},
		{"newest", model(17, "Relu", vector), Newest() + 1, []string{"not known", "newest"}},
		{"unknown op", model(17, "Nonsense", vector), 23,
			[]string{`node "the node" (Nonsense), opset 17 to 23`, "not an op of the standard"}},
		{"deprecated op", model(17, "Upsample", vector), 23, []string{"(Upsample)", "deprecated"}},
		{"not yet an op", model(17, "Gelu", vector), 23, []string{"(Gelu)", "since opset 20"}},
		{"training", training, 23, []string{"(BatchNormalization)", `"mean"`}},
		{"integers", model(27, "ReduceLogSum", integers), 28, []string{"(ReduceLogSum)", "int32"}},
		{"unknown type", model(27, "ReduceLogSumExp", unknown), 28, []string{"(ReduceLogSumExp)"}},
		{"two axes", both, 23, []string{"(ReduceMin)", `attribute "axes"`, `input "axes"`}},
		{"axes of another kind", model(17, "ReduceMin", vector, onnx.IntAttr("axes", 0)), 23,
			[]string{"(ReduceMin)", `attribute "axes"`}},
		{"absent attribute", calls(), 23, []string{"function local.Peak", "no default", `"the node"`}},
		{"newer function", newer, 23, []string{"function local.Peak", "opset 24 to 23", "older"}},
		{"mode of a function", mode, 23, []string{"(GridSample)", `"mode"`}},
		{"half pixels", model(12, "Resize", vector, onnx.StringAttr("coordinate_transformation_mode",
			"tf_half_pixel_for_nn")), 13, []string{"(Resize)", "tf_half_pixel_for_nn"}},
		{"no opset", none, 23, []string{"does not import a standard opset"}},
		{"oldest function", old, 23, []string{"function local.Peak", "only opset 11 and newer"}},
		{"no input", empty, 13, []string{"(Softmax)", "it has no input"}},
		{"attribute of no function", model(17, "ReduceMin", vector, onnx.RefAttr("axes", onnx.AttrInts, "axes")), 23,
			[]string{"(ReduceMin)", "it is not in a function"}},
		{"group norm of a type", norm(unknown, onnx.IntAttr("num_groups", 2)), 23, []string{"the type of its input"}},
		{"groups of another kind", norm(vector, onnx.FloatAttr("num_groups", 2)), 23, []string{`"num_groups"`}},
		{"group norm", model(18, "GroupNormalization", vector), 23, []string{"(GroupNormalization)", "num_groups"}},
	} {
		before := text(c.m)
		err := Opset(c.m, c.to)
		if err == nil {
			t.Errorf("%s: no error", c.name)
			continue
		}
		for _, w := range c.want {
			if !strings.Contains(err.Error(), w) {
				t.Errorf("%s: the error lacks %q: %v", c.name, w, err)
			}
		}
		if after := text(c.m); after != before {
			t.Errorf("%s: the model changed:\n%s\nbefore:\n%s", c.name, after, before)
		}
	}
}

// text describes everything that Opset may change.
func text(m *onnx.Model) string {
	s := m.Graph.Text()
	for _, f := range m.Functions {
		s += f.Body.Text()
	}
	return s + fmt.Sprint(m.Opsets, m.IRVersion)
}

// TestOpsetJoinsErrors: the error names every node that cannot be converted.
func TestOpsetJoinsErrors(t *testing.T) {
	m := model(17, "Nonsense", vector)
	m.Graph.Nodes[1].OpType = "Upsample"
	err := Opset(m, 23)
	if err == nil || !strings.Contains(err.Error(), "Nonsense") || !strings.Contains(err.Error(), "Upsample") {
		t.Error(err)
	}
}

// TestOpsetLeavesTheRest: other domains, calls of functions under a standard name, and a model that already has the
// opset stay unchanged.
func TestOpsetLeavesTheRest(t *testing.T) {
	m := model(17, "FusedMatMul", vector)
	m.Graph.Nodes[0].Domain = "com.microsoft"
	m.ImportOpset("com.microsoft", 1)
	if err := Opset(m, 23); err != nil || m.Opset("com.microsoft") != 1 || m.Opset("") != 23 {
		t.Error(err, m.Opsets)
	}
	if m.IRVersion != 11 {
		t.Errorf("IR version %d", m.IRVersion)
	}
	before := text(m)
	if err := Opset(m, 23); err != nil || text(m) != before {
		t.Errorf("%v\n%s", err, text(m))
	}
	own := model(17, "Relu", vector)
	f := onnx.NewFunction("ai.onnx", "Relu", "", 17)
	v := f.Body.NewValue("v")
	f.Body.AddNode("Abs", []*onnx.Value{f.Body.AddInput("x", onnx.Type{})}, []*onnx.Value{v})
	f.Body.AddOutput(v)
	own.Functions = append(own.Functions, f)
	own.Graph.Nodes[0].OpType, f.Name = "ItsOwn", "ItsOwn"
	if err := Opset(own, 23); err != nil || f.Opset("") != 23 {
		t.Error(err, f.Opsets)
	}
}

// TestEmptyAxes: a reduction over no axes reduces over all axes, in the old form and in the new one.
func TestEmptyAxes(t *testing.T) {
	m := model(13, "ReduceMin", vector, onnx.IntsAttr("axes", nil), onnx.IntAttr("keepdims", 0))
	x := onnx.NewFloat32s("x", []int64{4}, []float32{3, 1, 2, 5})
	want, err := evaluated(m, []*onnx.Tensor{x})
	if err != nil {
		t.Fatal(err)
	}
	if err := Opset(m, 23); err != nil {
		t.Fatal(err)
	}
	if n := m.Graph.Nodes[0]; len(n.Inputs) != 1 || n.Attr("axes") != nil {
		t.Errorf("%s", n.Text())
	}
	got, err := evaluated(m, []*onnx.Tensor{x})
	if err == nil {
		err = equal(got, want)
	}
	if err != nil || len(got[0].Dims) != 0 {
		t.Error(err, got)
	}
}

// TestAxesAreShared: nodes with equal axes read one constant, in subgraphs too.
func TestAxesAreShared(t *testing.T) {
	m := model(17, "ReduceMin", vector, onnx.IntsAttr("axes", []int64{0}))
	if err := Opset(m, 23); err != nil {
		t.Fatal(err)
	}
	a, b := m.Graph.Nodes[0].Input(1), m.Graph.Nodes[1].Input(1)
	if a == nil || a != b || len(m.Graph.Initializers()) != 1 {
		t.Errorf("%s", m.Graph.Text())
	}
}
