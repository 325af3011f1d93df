package convert

import (
	"fmt"

	"github.com/mojo-patch/mojo-patch/onnx"
)

// axesToInput turns the axes attribute of a reduction into its second input. A reduction with no axes, or with an empty
// list, reduces over all axes in both forms, because noop_with_empty_axes defaults to 0.
func axesToInput(s *scope, n *onnx.Node) (func(), error) {
	a := n.Attr("axes")
	if a == nil {
		return nil, nil
	}
	if a.Type == onnx.AttrInts && a.RefName == "" && len(a.Ints) == 0 {
		return func() { s.edit.RemoveAttr(n, "axes") }, nil
	}
	return s.toInput(n, a, onnx.AttrInts, 1)
}

// axisToInput turns the axis attribute of a DFT into its third input, even if it is absent: the default changed from 1
// to -2.
func axisToInput(s *scope, n *onnx.Node) (func(), error) {
	a := n.Attr("axis")
	if a == nil {
		a = onnx.IntAttr("axis", 1)
	}
	return s.toInput(n, a, onnx.AttrInt, 2)
}

// toInput turns an integer attribute of the given kind into input i of the node.
func (s *scope) toInput(n *onnx.Node, a *onnx.Attribute, kind onnx.AttributeType, i int) (func(), error) {
	if v := n.Input(i); v != nil {
		return nil, fmt.Errorf("it has both the attribute %q and the input %q for one parameter", a.Name, v.Name)
	}
	if err := s.given(a, kind); err != nil {
		return nil, err
	}
	return func() {
		v := s.constant(a)
		s.edit.RemoveAttr(n, a.Name)
		s.edit.SetInput(n, i, v)
	}, nil
}

// given checks that an attribute has the given kind. If it refers to an attribute of the function, every call must pass
// that one, because a Constant must have a value.
func (s *scope) given(a *onnx.Attribute, kind onnx.AttributeType) error {
	if a.Type != kind {
		return fmt.Errorf("its attribute %q has another type than in the standard", a.Name)
	}
	if a.RefName == "" {
		return nil
	}
	f := s.function
	if f == nil {
		return fmt.Errorf("its attribute %q refers to attribute %q of a function, but it is not in a function", a.Name,
			a.RefName)
	}
	for _, d := range f.Defaults {
		if d.Name == a.RefName {
			return nil
		}
	}
	for _, g := range s.model.Graphs() {
		for _, n := range g.Nodes {
			if s.model.Function(n.Domain, n.OpType, n.Overload) == f && n.Attr(a.RefName) == nil {
				return fmt.Errorf("its attribute %q is the function's %q, which has no default and is missing in the "+
					"call %q: an input needs a value", a.Name, a.RefName, n.Name)
			}
		}
	}
	return nil
}

// constant returns the integers of an attribute as a value visible in the whole scope. Equal attributes share one
// value. An INT becomes a scalar.
func (s *scope) constant(a *onnx.Attribute) *onnx.Value {
	key := fmt.Sprint(a.Type, a.RefName, a.Int, a.Ints)
	if s.integers[key] == nil {
		s.integers[key] = s.newConstant(a)
	}
	return s.integers[key]
}

func (s *scope) newConstant(a *onnx.Attribute) *onnx.Value {
	list := a.Type == onnx.AttrInts
	if s.function == nil {
		if list {
			return s.edit.AddInitializer(s.root, onnx.NewInt64s(a.Name, a.Ints))
		}
		t := onnx.NewInt64s(a.Name, []int64{a.Int})
		t.Dims = []int64{}
		return s.edit.AddInitializer(s.root, t)
	}
	value := onnx.IntAttr("value_int", a.Int) // functions have no initializers
	if list {
		value = onnx.IntsAttr("value_ints", a.Ints)
	}
	if a.RefName != "" {
		value = onnx.RefAttr(value.Name, value.Type, a.RefName)
	}
	v := s.root.NewValue(a.Name)
	n := s.edit.NewNode(s.root, "Constant", nil, []*onnx.Value{v}, value)
	n.Name = v.Name
	s.edit.SetNodes(s.root, append([]*onnx.Node{n}, s.root.Nodes...))
	return v
}
