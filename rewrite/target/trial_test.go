package target

import (
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/mojo-patch/mojo-patch/fused"
	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/reference"
)

// trial is a fused op at a site, which a target is to write.
type trial struct {
	name  string
	op    string
	attrs []*onnx.Attribute
	types []onnx.DataType
	dims  [][]int64
	// unknown are the shapes that the target is told, where they are not dims.
	unknown [][]int64
}

const trialOpset = 23

// model makes a model of the fused op alone, with its definition.
func (c trial) model(t *testing.T) (*onnx.Model, *Call) {
	t.Helper()
	op := fused.Lookup(c.op)
	s := fused.Site{Attributes: c.attrs, Types: c.types, Dims: c.dims, Opset: trialOpset}
	f, err := op.Function(s)
	if err != nil {
		t.Fatal(err)
	}
	m := onnx.New(10, trialOpset)
	m.ImportOpset(fused.Domain, fused.Version)
	m.Functions = append(m.Functions, f)
	var inputs, outputs []*onnx.Value
	for i, typ := range c.types {
		if typ == onnx.Undefined {
			inputs = append(inputs, nil)
			continue
		}
		inputs = append(inputs, m.Graph.AddInput(op.Inputs[i].Name, tensorType(typ, c.dims[i])))
	}
	for _, p := range op.Outputs {
		outputs = append(outputs, m.Graph.NewValue(p.Name))
	}
	n := m.Graph.AddNode(c.op, inputs, outputs, c.attrs...)
	n.Domain, n.Overload = f.Domain, f.Overload
	for _, v := range outputs {
		m.Graph.AddOutput(v)
	}
	if c.unknown != nil {
		s.Dims = c.unknown
	}
	return m, NewCall(n, s)
}

// same has the target write the op, and compares what the nodes give with the definition, in the types of the site. It gives the
// ops that were written.
func (c trial) same(t *testing.T, target *Target, tolerance float64) []string {
	t.Helper()
	m, call := c.model(t)
	inputs := c.inputs(m)
	want := evaluate(t, m, inputs)
	if _, err := target.Write(call); err != nil {
		t.Fatal(err)
	}
	var ops []string
	for _, n := range m.Graph.Nodes {
		if n.Domain == fused.Domain {
			t.Fatalf("mojo.%s is still there", n.OpType)
		}
		if n.OpType != "Constant" {
			ops = append(ops, n.OpType)
		}
	}
	for name, got := range evaluate(t, m, inputs) {
		w := want[name]
		if got.DataType != w.DataType || fmt.Sprint(got.Shape) != fmt.Sprint(w.Shape) {
			t.Errorf("%s is %s, the definition gives %s", name, got, w)
			continue
		}
		if d := distance(got.F, w.F); !(d <= tolerance) {
			t.Errorf("%s differs from the definition by %.2g of its greatest magnitude", name, d)
		}
	}
	return ops
}

// open has the target refuse the op, with a reason that holds why, and leave the graph as it was.
func (c trial) open(t *testing.T, target *Target, why string) {
	t.Helper()
	m, call := c.model(t)
	_, err := target.Write(call)
	if err == nil || !strings.Contains(err.Error(), why) {
		t.Errorf("got %v, want an error with %q", err, why)
	}
	if len(m.Graph.Nodes) != 1 || m.Graph.Nodes[0] != call.Node {
		t.Errorf("the graph has %d nodes, and should be as it was", len(m.Graph.Nodes))
	}
	for _, v := range call.Node.Inputs {
		if v != nil && len(v.Uses()) != 1 {
			t.Errorf("%s is read %d times, and should be as it was", v.Name, len(v.Uses()))
		}
	}
}

// inputs draws the inputs: numbers of experts are from 0 to 3.
func (c trial) inputs(m *onnx.Model) map[string]*reference.Tensor {
	r := rand.New(rand.NewPCG(1, 2))
	inputs := map[string]*reference.Tensor{}
	for _, v := range m.Graph.Inputs {
		typ, _ := v.Type()
		n, shape := 1, []int{}
		for _, d := range typ.Dims {
			shape = append(shape, int(d.Value))
			n *= int(d.Value)
		}
		if !typ.DataType.IsFloat() {
			ids := make([]int64, n)
			for i := range ids {
				ids[i] = r.Int64N(4)
			}
			inputs[v.Name] = reference.NewInts(typ.DataType, shape, ids)
			continue
		}
		f := make([]float64, n)
		for i := range f {
			f[i] = float64(r.IntN(512)-256) / 128 // exact in every type
		}
		inputs[v.Name] = reference.NewFloats(typ.DataType, shape, f)
	}
	return inputs
}

func evaluate(t *testing.T, m *onnx.Model, inputs map[string]*reference.Tensor) map[string]*reference.Tensor {
	t.Helper()
	e, err := reference.New(m, reference.Options{})
	if err != nil {
		t.Fatal(err)
	}
	out, err := e.Run(inputs)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// distance is the greatest difference, in units of the greatest magnitude of want.
func distance(got, want []float64) float64 {
	var most, magnitude float64
	for i := range want {
		magnitude = max(magnitude, math.Abs(want[i]))
		most = max(most, math.Abs(got[i]-want[i]))
	}
	return most / magnitude
}

func tensorType(t onnx.DataType, dims []int64) onnx.Type {
	typ := onnx.Type{DataType: t, HasShape: true}
	for _, d := range dims {
		typ.Dims = append(typ.Dims, onnx.Dim{Value: d})
	}
	return typ
}

func normAttributes(axis, after int64) []*onnx.Attribute {
	return []*onnx.Attribute{onnx.IntAttr("axis", axis), onnx.FloatAttr("epsilon", 1e-3), onnx.IntAttr("scale_after_cast", after)}
}

func rotaryAttributes(interleaved, dim int64, side, layout string) []*onnx.Attribute {
	return []*onnx.Attribute{onnx.IntAttr("interleaved", interleaved), onnx.IntAttr("rotary_dim", dim),
		onnx.StringAttr("rotated_side", side), onnx.StringAttr("output_layout", layout)}
}

func gluAttributes(activation string, alpha, limit, offset float32) []*onnx.Attribute {
	return []*onnx.Attribute{onnx.StringAttr("activation", activation), onnx.FloatAttr("alpha", alpha),
		onnx.FloatAttr("limit", limit), onnx.FloatAttr("up_offset", offset)}
}

// all gives n times the type.
func all(t onnx.DataType, n int) []onnx.DataType {
	types := make([]onnx.DataType, n)
	for i := range types {
		types[i] = t
	}
	return types
}
