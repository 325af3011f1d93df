package collective

import (
	"errors"
	"reflect"
	"strings"
	"testing"

	"github.com/mojo-patch/mojo-patch/fused/internal/optest"
	"github.com/mojo-patch/mojo-patch/fused/op"
	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/reference"
)

var types = []onnx.DataType{onnx.Float16}

func TestSupports(t *testing.T) {
	optest.RunSupports(t, []optest.SupportsCase{
		{"one rank", allReduce, AllReduce{Ranks: 1}.Attributes(), types, [][]int64{{2, 3}}, ""},
		{"last of two", allReduce, AllReduce{Rank: 1, Ranks: 2, Plan: "a"}.Attributes(), types, [][]int64{{2, 3}}, ""},
		{"no such rank", allReduce, AllReduce{Rank: 2, Ranks: 2}.Attributes(), types, [][]int64{{2}}, "less than"},
		{"no ranks", allReduce, AllReduce{}.Attributes(), types, nil, "ranks is 0"},
		{"a long plan", allReduce, AllReduce{Ranks: 1, Plan: strings.Repeat("x", 128)}.Attributes(), types, nil,
			"128 characters"},
		{"integers", allReduce, AllReduce{Ranks: 1}.Attributes(), []onnx.DataType{onnx.Int64}, nil, "not int64"},
		{"first of four", allGather, AllGather{Axis: -4, Ranks: 2}.Attributes(), types, [][]int64{{1, 2, 3, 4}}, ""},
		{"no such axis", allGather, AllGather{Axis: -3, Ranks: 2}.Attributes(), types, [][]int64{{3, 4}}, "of shape"},
		{"from the front", allGather, AllGather{Axis: 0, Ranks: 2}.Attributes(), types, [][]int64{{3, 4}}, "axis is 0"},
		{"odd parts", reduceScatter, ReduceScatter{Axis: -2, Ranks: 2}.Attributes(), types, [][]int64{{3, 4}},
			"that the ranks divide"},
		{"even parts", allToAll, AllToAll{Axis: -1, Ranks: 2}.Attributes(), types, [][]int64{{3, 4}}, ""},
	})
}

// TestShapes checks the shapes of outputs on two ranks along each axis.
func TestShapes(t *testing.T) {
	x := []int64{2, 4, 6, 8}
	for o, want := range map[*op.Op]func(int64) int64{
		allGather:     func(d int64) int64 { return 2 * d },
		reduceScatter: func(d int64) int64 { return d / 2 },
		allToAll:      func(d int64) int64 { return d },
	} {
		for axis := range x {
			attrs := AllGather{Axis: int64(axis - len(x)), Ranks: 2}.Attributes()
			s := op.Site{Attributes: attrs, Types: types, Dims: [][]int64{x}, Opset: 20}
			wanted := append([]int64(nil), x...)
			wanted[axis] = want(x[axis])
			if got := o.OutputShapes(s, func(a, _ int64) int64 { return a }); !reflect.DeepEqual(got[0], wanted) {
				t.Errorf("%s along axis %d: %v, want %v", o.Name, axis, got[0], wanted)
			}
		}
	}
}

// TestNoBody checks that no process computes the node of several ranks by itself: not by a body, and not in the
// evaluator.
func TestNoBody(t *testing.T) {
	for _, o := range Ops {
		for ranks := int64(1); ranks <= 2; ranks++ {
			attrs := AllGather{Axis: -1, Ranks: ranks}.Attributes()
			s := op.Site{Attributes: attrs, Types: types, Dims: [][]int64{{2, 2}}, Opset: 20}
			switch o {
			case allReduce:
				s.Attributes = attrs[1:]
			case allReduceAddRMSNorm:
				s.Attributes = AllReduceAddRMSNorm{Axis: -1, Ranks: ranks}.Attributes()
				s.Types, s.Dims = []onnx.DataType{types[0], types[0], types[0]}, [][]int64{{2, 2}, {2, 2}, {2}}
			}
			if _, err := o.Function(s); errors.Is(err, op.ErrNoBody) != (ranks > 1) {
				t.Errorf("%s of %d ranks: %v", o.Name, ranks, err)
			}
		}
	}
	m := onnx.New(10, 20)
	x, y := m.Graph.NewValue("x"), m.Graph.NewValue("y")
	n := m.Graph.AddNode(AllReduceName, []*onnx.Value{x}, []*onnx.Value{y}, AllReduce{Ranks: 2}.Attributes()...)
	n.Domain = op.Domain
	one := reference.NewFloats(onnx.Float, nil, []float64{1})
	_, err := reference.NewForOpset(20, nil, reference.Options{}).Op(n, []*reference.Tensor{one})
	if err == nil || !strings.Contains(err.Error(), "combines the values of 2 ranks") {
		t.Errorf("the evaluator: %v", err)
	}
}
