package convert

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/mojo-patch/mojo-patch/onnx"
)

func float(dims ...any) onnx.Type {
	t := onnx.Type{DataType: onnx.Float, HasShape: true}
	for _, d := range dims {
		switch d := d.(type) {
		case int:
			t.Dims = append(t.Dims, onnx.Dim{Value: int64(d)})
		case string:
			t.Dims = append(t.Dims, onnx.Dim{Value: -1, Param: d})
		}
	}
	return t
}

// attention builds the shape arithmetic of typical models: rows of a cache and of x are concatenated and reshaped to
// the result of Shape.
func attention() *onnx.Model {
	m := onnx.New(8, 17)
	g := m.Graph
	x := g.AddInput("x", float("batch", "seq", 8))
	past := g.AddInput("past", float("batch", "past", 8))
	mask := g.AddInput("mask", float("batch", "past + seq"))
	joined, shape, batch, rows := g.NewValue("joined"), g.NewValue("shape"), g.NewValue("sizes"), g.NewValue("rows")
	total, flat, y := g.NewValue("total"), g.NewValue("flat"), g.NewValue("y")
	joined.SetType(float("batch", "past + seq", 8))
	g.AddNode("Concat", []*onnx.Value{past, x}, []*onnx.Value{joined}, onnx.IntAttr("axis", 1))
	g.AddNode("Shape", []*onnx.Value{joined}, []*onnx.Value{shape})
	first := g.AddInitializer(onnx.NewInt64s("first", []int64{0}))
	g.AddNode("Gather", []*onnx.Value{shape, first}, []*onnx.Value{batch})
	rest := g.AddInitializer(onnx.NewInt64s("rest", []int64{-1}))
	g.AddNode("Concat", []*onnx.Value{batch, rest}, []*onnx.Value{rows}, onnx.IntAttr("axis", 0))
	g.AddNode("Reshape", []*onnx.Value{joined, rows}, []*onnx.Value{flat})
	g.AddNode("ReduceSum", []*onnx.Value{mask, rest}, []*onnx.Value{total})
	g.AddNode("Add", []*onnx.Value{flat, total}, []*onnx.Value{y})
	y.SetType(float("batch", "out"))
	g.AddOutput(y)
	return m
}

func types(m *onnx.Model) string {
	s := ""
	eachValue(m, func(v *onnx.Value) {
		t, _ := v.Type()
		s += v.Name + " " + t.String() + "\n"
	})
	return s
}

func ops(m *onnx.Model) string {
	var list []string
	for _, n := range m.Graph.Nodes {
		list = append(list, n.OpType)
	}
	return strings.Join(list, " ")
}

func ones(name string, dims ...int64) *onnx.Tensor {
	n := int64(1)
	for _, d := range dims {
		n *= d
	}
	v := make([]float32, n)
	for i := range v {
		v[i] = float32(i%5) - 1
	}
	return onnx.NewFloat32s(name, dims, v)
}

// TestFixedSizes fixes the same sizes by inputs and by names, and expects the same result.
func TestFixedSizes(t *testing.T) {
	inputs := []*onnx.Tensor{ones("x", 2, 3, 8), ones("past", 2, 4, 8), ones("mask", 2, 7)}
	want, err := evaluated(attention(), inputs)
	if err != nil {
		t.Fatal(err)
	}
	for name, fix := range map[string]func(*onnx.Model) error{
		"Shapes": func(m *onnx.Model) error { return Shapes(m, map[string][]int64{"x": {2, 3, 8}, "past": {2, 4, 8}}) },
		"Dims":   func(m *onnx.Model) error { return Dims(m, map[string]int64{"batch": 2, "seq": 3, "past": 4}) },
		"one by one": func(m *onnx.Model) error {
			for _, s := range []map[string]int64{{"past": 4}, {"batch": 2}, {"seq": 3}} {
				if err := Dims(m, s); err != nil {
					return err
				}
			}
			return nil
		},
	} {
		m := attention()
		if err := fix(m); err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if left := Dynamic(m); left != nil {
			t.Errorf("%s: %v", name, left)
		}
		if got := ops(m); name != "one by one" && got != "Concat Reshape ReduceSum Add" {
			t.Errorf("%s: %s", name, got)
		}
		for _, line := range []string{"mask float32[2, 7]", "joined float32[2, 7, 8]", "flat float32[2, 56]",
			"y float32[2, 56]"} {
			if !strings.Contains(types(m), line+"\n") {
				t.Errorf("%s: lacks %s:\n%s", name, line, types(m))
			}
		}
		if err := gives(m, inputs, want); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestSomeSizes: other dimensions stay symbolic and that the model runs for any size of them.
func TestSomeSizes(t *testing.T) {
	m := attention()
	if err := Dims(m, map[string]int64{"batch": 2}); err != nil {
		t.Fatal(err)
	}
	for _, line := range []string{"x float32[2, seq, 8]", "joined float32[2, past + seq, 8]"} {
		if got := types(m); !strings.Contains(got, line+"\n") {
			t.Errorf("lacks %s:\n%s", line, got)
		}
	}
	if got := ops(m); got != "Concat Reshape ReduceSum Add" { // Shape was only asked for the batch
		t.Error(got)
	}
	if left := Dynamic(m); !slices.Contains(left, "joined") || slices.Contains(left, "total") {
		t.Error(left)
	}
	for _, seq := range []int64{1, 6} {
		inputs := []*onnx.Tensor{ones("x", 2, seq, 8), ones("past", 2, 4, 8), ones("mask", 2, 4+seq)}
		want, err := evaluated(attention(), inputs)
		if err != nil {
			t.Fatal(err)
		}
		if err := gives(m, inputs, want); err != nil {
			t.Error(err)
		}
	}
}

// TestFixErrs: each error names its cause, and that the model stays unchanged.
func TestFixErrs(t *testing.T) {
	for want, fix := range map[string]func(*onnx.Model) error{
		`input "n" is not a tensor`: func(m *onnx.Model) error {
			return Shapes(m, map[string][]int64{"n": {1}})
		},
		`no input "z"`: func(m *onnx.Model) error { return Shapes(m, map[string][]int64{"z": {1}}) },
		`input "x" is float32[batch, seq, 8], of rank 3: [2 3] has 2 dimensions`: func(m *onnx.Model) error {
			return Shapes(m, map[string][]int64{"x": {2, 3}})
		},
		`dimension 2 of input "x" is 8: it cannot be 9`: func(m *onnx.Model) error {
			return Shapes(m, map[string][]int64{"x": {2, 3, 9}})
		},
		`dimension 0 of input "x", "batch", cannot be 3: it is 2 in input "past"`: func(m *onnx.Model) error {
			return Shapes(m, map[string][]int64{"x": {3, 3, 8}, "past": {2, 3, 8}})
		},
		`dimension 1 of input "mask", "past + seq", is 7: it cannot be 8`: func(m *onnx.Model) error {
			return Shapes(m, map[string][]int64{"x": {2, 3, 8}, "past": {2, 4, 8}, "mask": {2, 8}})
		},
		`cannot have the shape [2 -1 8]`: func(m *onnx.Model) error {
			return Shapes(m, map[string][]int64{"x": {2, -1, 8}})
		},
		`no input has a dimension "out"; the names are ["batch" "past" "past + seq" "seq"]`: func(
			m *onnx.Model) error {
			return Dims(m, map[string]int64{"out": 3, "batch": 2})
		},
		`dimension "batch" cannot be of size -2`: func(m *onnx.Model) error {
			return Dims(m, map[string]int64{"batch": -2})
		},
	} {
		m := attention()
		m.Graph.AddInput("n", onnx.Type{})
		before := text(m) + types(m)
		if err := fix(m); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
		if after := text(m) + types(m); after != before {
			t.Errorf("%s: the model changed:\n%s", want, after)
		}
	}
}

// TestBranchOfKnownShape: an If on a known size is replaced by the taken branch.
func TestBranchOfKnownShape(t *testing.T) {
	m := onnx.New(8, 17)
	g := m.Graph
	x := g.AddInput("x", float("batch", 4))
	shape, first, long, y := g.NewValue("shape"), g.NewValue("first"), g.NewValue("long"), g.NewValue("y")
	g.AddNode("Shape", []*onnx.Value{x}, []*onnx.Value{shape}, onnx.IntAttr("end", 1))
	g.AddNode("Squeeze", []*onnx.Value{shape}, []*onnx.Value{first})
	limit := g.AddInitializer(onnx.NewInt64s("limit", []int64{3}))
	g.AddNode("Greater", []*onnx.Value{first, limit}, []*onnx.Value{long})
	branch := func(op string) *onnx.Graph {
		s := g.NewSubgraph(op)
		v := s.NewValue(op)
		s.AddNode(op, []*onnx.Value{x}, []*onnx.Value{v})
		s.AddOutput(v)
		return s
	}
	g.AddNode("If", []*onnx.Value{long}, []*onnx.Value{y},
		onnx.GraphAttr("then_branch", branch("Neg")), onnx.GraphAttr("else_branch", branch("Abs")))
	y.SetType(float("batch", 4))
	g.AddOutput(y)
	if err := Dims(m, map[string]int64{"batch": 5}); err != nil {
		t.Fatal(err)
	}
	if got := ops(m); got != "Neg" || len(g.Initializers()) != 0 {
		t.Errorf("%s\n%s", got, g.Text())
	}
}

// TestLeftToData: data-dependent shapes stay and are listed. Numbers that no shape is computed from stay too.
func TestLeftToData(t *testing.T) {
	m := onnx.New(8, 17)
	g := m.Graph
	x := g.AddInput("x", float("n"))
	where, shape, size, y := g.NewValue("where"), g.NewValue("shape"), g.NewValue("size"), g.NewValue("y")
	g.AddNode("NonZero", []*onnx.Value{x}, []*onnx.Value{where})
	g.AddNode("Shape", []*onnx.Value{x}, []*onnx.Value{shape})
	g.AddNode("Cast", []*onnx.Value{shape}, []*onnx.Value{size}, onnx.IntAttr("to", int64(onnx.Float)))
	g.AddNode("Div", []*onnx.Value{x, size}, []*onnx.Value{y})
	g.AddOutput(where)
	g.AddOutput(y)
	if err := Shapes(m, map[string][]int64{"x": {6}}); err != nil {
		t.Fatal(err)
	}
	if left := Dynamic(m); fmt.Sprint(left) != "[where]" {
		t.Error(left)
	}
	if got := ops(m); got != "NonZero Cast Div" {
		t.Error(got)
	}
}
