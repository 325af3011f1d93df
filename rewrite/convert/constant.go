package convert

import (
	"fmt"

	"github.com/mojo-patch/mojo-patch/onnx"
)

// constant returns the integers of an attribute as a value that the whole scope sees: one for all attributes that are
// equal. An INT makes a scalar.
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
			return s.root.AddInitializer(onnx.NewInt64s(a.Name, a.Ints))
		}
		t := onnx.NewInt64s(a.Name, []int64{a.Int})
		t.Dims = []int64{}
		return s.root.AddInitializer(t)
	}
	value := onnx.IntAttr("value_int", a.Int) // functions have no initializers
	if list {
		value = onnx.IntsAttr("value_ints", a.Ints)
	}
	if a.RefName != "" {
		value = onnx.RefAttr(value.Name, value.Type, a.RefName)
	}
	n := s.root.NewNode("Constant", nil, value)
	v := s.root.NewValue(a.Name)
	n.Name = v.Name
	n.TakeOutput(0, v)
	s.root.Nodes = append([]*onnx.Node{n}, s.root.Nodes...)
	return v
}
