package audit

import (
	"testing"

	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/ort"
	"github.com/mojo-patch/mojo-patch/reference/infer"
)

// TestCopies counts the tensors that cross between two providers: x -> A on the NPU -> b -> B, which was removed -> c
// -> C on the CPU -> d. D and E on the NPU read d, and C also reads A's output.
func TestCopies(t *testing.T) {
	m := onnx.New(10, 20)
	x := m.Graph.AddInput("x", onnx.Type{DataType: onnx.Float16, HasShape: true,
		Dims: []onnx.Dim{{Value: 3}, {Value: -1, Param: "rows"}, {Value: 5}}})
	add := func(name, op string, in ...*onnx.Value) *onnx.Value {
		y := m.Graph.NewValue(name)
		m.Graph.AddNode(op, in, []*onnx.Value{y}).Name = name
		return y
	}
	a := add("A", "Neg", x)
	b := add("B", "Identity", a)
	c := add("C", "Add", b, a)
	m.Graph.AddOutput(add("D", "Neg", c))
	m.Graph.AddOutput(add("E", "Abs", c))
	f := &options{}
	f.backend.Provider = "NPU"
	count := func(rows onnx.Dim) (*Report, copies) {
		typ, _ := x.Type()
		typ.Dims[1] = rows
		x.SetType(typ)
		facts, r := infer.Analyze(m), &Report{Placed: map[string]int{}}
		p := f.placeSession(r, &loneNodes{flags: f, model: m, facts: &infer.Facts{}}, []ort.PlacedNode{
			{Provider: "NPUExecutionProvider", Op: "Neg", Name: "A"},
			{Provider: "CPUExecutionProvider", Op: "Add", Name: "C"},
			{Provider: "NPUExecutionProvider", Op: "Neg", Name: "D"},
			{Provider: "NPUExecutionProvider", Op: "Abs", Name: "E"},
			{Provider: "CPUExecutionProvider", Op: "FusedMatMul", Name: "made"},
		})
		return r, countCopies(m, facts, p)
	}
	r, got := count(onnx.Dim{Value: 7})
	if want := (copies{Tensors: 3, Bytes: 3 * 3 * 7 * 5 * 2}); got != want {
		t.Errorf("copies are %+v, want %+v", got, want)
	}
	if r.left() != 2 || r.Placed["NPU"] != 3 || r.Placed["CPU"] != 2 || len(r.Elsewhere) != 2 {
		t.Errorf("placed %v, elsewhere %+v", r.Placed, r.Elsewhere)
	}
	if _, got = count(onnx.Dim{Value: -1, Param: "rows"}); got != (copies{Tensors: 3, Unknown: 3}) {
		t.Errorf("copies of unknown size are %+v", got)
	}
}
