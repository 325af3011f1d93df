package golden_test

import (
	"slices"
	"testing"

	"github.com/mojo-patch/mojo-patch/golden"
	"github.com/mojo-patch/mojo-patch/onnx"
)

// TestBegun checks the two cases that inputs with a past become.
func TestBegun(t *testing.T) {
	m := decoder(spec{"input_ids", onnx.Int64, "b s"}, spec{"attention_mask", onnx.Int64, "b t"},
		spec{"past_k", onnx.Float, "b =4 p =2"})
	present := m.Graph.NewValue("present_k")
	present.SetType(onnx.Type{DataType: onnx.Float, HasShape: true, Dims: []onnx.Dim{{Value: -1, Param: "b"},
		{Value: 4}, {Value: -1, Param: "t"}, {Value: 2}}})
	m.Graph.AddNode("Identity", []*onnx.Value{m.Graph.Value("past_k")}, []*onnx.Value{present})
	m.Graph.AddOutput(present)
	h, err := golden.Plain(m, 1, map[string]int64{"s": 3, "p": 5})
	if err != nil {
		t.Fatal(err)
	}
	before, behind, err := h.Begun(m)
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string][]int64{"input_ids": {2, 5}, "attention_mask": {2, 5}, "past_k": {2, 4, 0, 2}} {
		x := (golden.Case{Inputs: before.Inputs}).Input(name)
		if x == nil || !slices.Equal(x.Dims, want) {
			t.Errorf("before: %s is %v, want %v", name, x, want)
		}
	}
	for name, want := range map[string][]int64{"input_ids": {2, 3}, "attention_mask": {2, 8}} {
		if x := behind.Input(name); x == nil || !slices.Equal(x.Dims, want) {
			t.Errorf("behind: %s is %v, want %v", name, x, want)
		}
	}
	if len(behind.Inputs) != 2 || len(behind.Follows) != 1 ||
		behind.Follows[0] != (golden.Follow{Input: "past_k", Output: "present_k", Tokens: 5}) {
		t.Errorf("%d inputs, follows %v", len(behind.Inputs), behind.Follows)
	}
	if h, err = golden.Plain(m, 1, map[string]int64{"past": 0}); err != nil {
		t.Fatal(err)
	}
	if before, behind, err = h.Begun(m); before != nil || len(behind.Inputs) != 3 || err != nil {
		t.Errorf("without a past: before %v, %d inputs, error %v", before, len(behind.Inputs), err)
	}
}
