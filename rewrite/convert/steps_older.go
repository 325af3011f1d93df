package convert

import (
	"errors"
	"fmt"
	"slices"

	"github.com/mojo-patch/mojo-patch/onnx"
)

// withoutRatio takes the ratio from a Dropout: before opset 12 the op was one of inference alone, as it is since
// without its input training_mode, and gives what it is given whatever the ratio. onnxruntime's mask of it was false
// everywhere; since opset 12 it is true, and is negated.
func withoutRatio(s *scope, n *onnx.Node) (func(), error) {
	mask := n.OutputValue(1)
	read := mask != nil && len(mask.Uses())+mask.OutputUses() > 0
	if n.Attr("ratio") == nil && !read {
		return nil, nil
	}
	return func() {
		s.edit.RemoveAttr(n, "ratio")
		if !read {
			return
		}
		g, kept := n.Graph, n.Graph.NewValue(n.Name+"_kept")
		not := s.edit.NewNode(g, "Not", []*onnx.Value{kept}, []*onnx.Value{mask})
		not.Name = n.Name + "_Not"
		s.edit.TakeOutput(n, 1, kept)
		s.edit.SetNodes(g, slices.Insert(slices.Clone(g.Nodes), slices.Index(g.Nodes, n)+1, not))
	}, nil
}

// sizesToInput makes the sizes of a Split its second input.
func sizesToInput(s *scope, n *onnx.Node) (func(), error) {
	a := n.Attr("split")
	if a == nil {
		return nil, nil
	}
	return s.toInput(n, a, onnx.AttrInts, 1)
}

// noHalfPixelForNN refuses the one mode of Resize that opset 13 took away.
func noHalfPixelForNN(_ *scope, n *onnx.Node) (func(), error) {
	const name = "coordinate_transformation_mode"
	switch a := n.Attr(name); {
	case a == nil:
	case a.RefName != "":
		return nil, fmt.Errorf("its %s is the function's attribute %q, which may be one that opset 13 took away", name,
			a.RefName)
	case a.String == "tf_half_pixel_for_nn":
		return nil, fmt.Errorf("its %s is %q, which opset 13 took away", name, a.String)
	}
	return nil, nil
}

// oneAxis writes a Softmax, LogSoftmax or Hardmax over all dimensions from its axis on, which is what the op was before
// opset 13, as one over an axis:
//
//	Reshape(Softmax(Flatten(x, axis), axis=-1), Shape(x))
//
// Over the last axis, which is known from the rank, it is the op of opset 13 itself.
func oneAxis(s *scope, n *onnx.Node) (func(), error) {
	x, axis := n.Input(0), n.Attr("axis")
	if x == nil {
		return nil, errors.New("it has no input")
	}
	if axis == nil {
		axis = onnx.IntAttr("axis", 1)
	}
	last := onnx.IntAttr("axis", -1)
	if axis.RefName == "" {
		rank, known := s.rank(x)
		if axis.Int == -1 || known && axis.Int == int64(rank-1) {
			return func() { s.edit.SetAttr(n, last) }, nil
		}
	}
	return func() {
		w := &inserted{edit: &s.edit, before: n}
		flat := *axis
		shape := w.node("Shape", []*onnx.Value{x})
		y := w.node("Flatten", []*onnx.Value{x}, &flat)
		y = w.node(n.OpType, []*onnx.Value{y}, last)
		s.edit.RemoveAttr(n, "axis")
		s.edit.Become(n, "Reshape", n.Attributes...)
		s.edit.SetInputs(n, y, shape)
	}, nil
}
