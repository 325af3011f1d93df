package reference

import (
	"strings"
	"testing"

	"github.com/mojo-patch/mojo-patch/onnx"
)

// TestLimits lowers the limits and reaches each: a tensor, all tensors together, and the number of nodes.
func TestLimits(t *testing.T) {
	double := func(n int, last bool) *onnx.Model { // x, twice x, four times x, …; all are outputs, or only the last
		m := onnx.New(10, 20)
		v := m.Graph.AddInput("x", onnx.Type{DataType: onnx.Float})
		for range n {
			w := m.Graph.NewValue("v")
			m.Graph.AddNode("Concat", []*onnx.Value{v, v}, []*onnx.Value{w}, onnx.IntAttr("axis", 0))
			if v = w; !last {
				m.Graph.AddOutput(v)
			}
		}
		if last {
			m.Graph.AddOutput(v)
		}
		return m
	}
	for _, test := range []struct {
		model           *onnx.Model
		elements, steps int
		want            string
	}{
		{double(10, true), 1 << 10, 100, ""},
		{double(11, true), 1 << 10, 100, "more than 1024 elements"},
		{double(10, false), 1 << 10, 100, ""},
		{double(12, false), 1 << 12, 100, ""},
		{double(10, true), 1 << 10, 9, "more than 9 nodes"},
	} {
		setLimits(t, test.elements, test.steps)
		e, err := New(test.model, Options{})
		if err != nil {
			t.Fatal(err)
		}
		_, err = e.Run(map[string]*Tensor{"x": NewFloats(onnx.Float, []int{1}, []float64{1})})
		if test.want == "" && err != nil ||
			test.want != "" && (err == nil || !strings.Contains(err.Error(), test.want)) {
			t.Errorf("want %q, got %v", test.want, err)
		}
	}
	setLimits(t, 1<<10, 100)
	m := onnx.New(10, 20) // ten tensors of 1024 elements, needed at the end
	x := m.Graph.AddInput("x", onnx.Type{DataType: onnx.Float})
	for range 10 {
		w := m.Graph.NewValue("v")
		m.Graph.AddNode("Neg", []*onnx.Value{x}, []*onnx.Value{w})
		m.Graph.AddOutput(w)
	}
	e, err := New(m, Options{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err = e.Run(map[string]*Tensor{"x": NewFloats(onnx.Float, []int{1024}, make([]float64, 1024))}); err == nil ||
		!strings.Contains(err.Error(), "at the same time") {
		t.Errorf("got %v", err)
	}
}
