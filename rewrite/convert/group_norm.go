package convert

import (
	"errors"
	"fmt"

	"github.com/mojo-patch/mojo-patch/onnx"
)

// channelScale repeats the scale and the bias of a GroupNormalization, one for each group, for every channel of the
// group:
//
//	Reshape(Expand(Unsqueeze(scale, [1]), Concat([1], channels / groups)), [-1])
//
// Its first stage was computed in the input's type, which stash_type says where it is not the default, float32.
func channelScale(s *scope, n *onnx.Node) (func(), error) {
	x, scale, bias, groups := n.Input(0), n.Input(1), n.Input(2), n.Attr("num_groups")
	if x == nil || scale == nil || bias == nil || groups == nil {
		return nil, errors.New("it lacks an input or num_groups")
	}
	if err := s.given(groups, onnx.AttrInt); err != nil {
		return nil, err
	}
	t := s.dataType(x)
	if t == onnx.Undefined {
		return nil, fmt.Errorf("the type of its input %q, which stash_type has to be, is unknown", x.Name)
	}
	return func() {
		w := &inserted{graph: n.Graph, name: n.Name}
		one := s.constant(onnx.IntsAttr("one", []int64{1}))
		channels := w.node("Shape", []*onnx.Value{x}, onnx.IntAttr("start", 1), onnx.IntAttr("end", 2))
		each := w.node("Div", []*onnx.Value{channels, s.constant(groups)})
		shape := w.node("Concat", []*onnx.Value{one, each}, onnx.IntAttr("axis", 0))
		flat := s.constant(onnx.IntsAttr("flat", []int64{-1}))
		for i, v := range []*onnx.Value{scale, bias} {
			v = w.node("Unsqueeze", []*onnx.Value{v, one})
			v = w.node("Expand", []*onnx.Value{v, shape})
			n.SetInput(i+1, w.node("Reshape", []*onnx.Value{v, flat}))
		}
		if t != onnx.Float {
			n.SetAttr(onnx.IntAttr("stash_type", int64(t)))
		}
		n.Graph.InsertAt(map[*onnx.Node][]*onnx.Node{n: w.nodes})
	}, nil
}

// inserted are nodes that are to stand before another one.
type inserted struct {
	graph *onnx.Graph
	name  string // of the node they are made for
	nodes []*onnx.Node
}

func (w *inserted) node(op string, inputs []*onnx.Value, attrs ...*onnx.Attribute) *onnx.Value {
	n := w.graph.NewNode(op, inputs, attrs...)
	v := w.graph.NewValue(w.name + "_" + op)
	n.Name = v.Name
	n.TakeOutput(0, v)
	w.nodes = append(w.nodes, n)
	return v
}
