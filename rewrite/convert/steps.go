package convert

import (
	"errors"
	"fmt"
	"slices"

	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/rewrite/edit"
)

// step finds the change that one version of its op needs at a node, without making it. It may return nil. It returns an
// error if the new version cannot express the old behavior.
type step func(s *scope, n *onnx.Node) (change func(), err error)

// nothing is the step of a version in which old nodes keep their meaning: the version only adds an attribute whose
// default is the old behavior or an optional input, or renames an input.
var nothing step

// steps has a step for every version in versions.txt that is not marked as the same. (Some versions only document what
// runtimes already did, such as AveragePool and MaxPool windows that would start in the padding. They change nothing.)
var steps = map[string]map[int64]step{
	"ArgMax":             {12: nothing},
	"ArgMin":             {12: nothing},
	"Attention":          {24: nothing, 25: nothing},
	"AveragePool":        {19: nothing},
	"BatchNormalization": {14: noTraining},
	"Cast":               {19: nothing, 24: nothing},
	"CastLike":           {19: nothing, 24: nothing},
	"Constant":           {12: nothing},
	"DFT":                {20: axisToInput},
	"DequantizeLinear":   {13: nothing, 21: nothing, 23: nothing},
	"Dropout":            {12: withoutRatio},
	"Erf":                {13: nothing},
	"GRU":                {14: nothing},
	"GatherND":           {12: nothing},
	"GridSample":         {20: renameModes},
	"GroupNormalization": {21: channelScale},
	"Hardmax":            {13: oneAxis},
	"LSTM":               {14: nothing},
	"LogSoftmax":         {13: oneAxis},
	"LpPool":             {18: nothing},
	"OptionalHasElement": {18: nothing},
	"Pad":                {18: nothing},
	"QuantizeLinear":     {13: nothing, 19: nothing, 21: nothing, 23: nothing},
	"RNN":                {14: nothing},
	"Range":              {27: nothing},
	"ReduceL1":           {18: axesToInput},
	"ReduceL2":           {18: axesToInput},
	"ReduceLogSum":       {18: axesToInput, 28: floatsOnly},
	"ReduceLogSumExp":    {18: axesToInput, 28: floatsOnly},
	"ReduceMax":          {18: axesToInput},
	"ReduceMean":         {18: axesToInput},
	"ReduceMin":          {18: axesToInput},
	"ReduceProd":         {18: axesToInput},
	"ReduceSum":          {13: axesToInput},
	"ReduceSumSquare":    {18: axesToInput},
	"Reshape":            {14: nothing},
	"Resize":             {13: noHalfPixelForNN, 18: nothing},
	"RoiAlign":           {16: noPixelShift},
	"ScatterElements":    {16: nothing},
	"ScatterND":          {16: nothing},
	"Shape":              {15: nothing},
	"Softmax":            {13: oneAxis},
	"SpaceToDepth":       {28: nothing},
	"Split":              {13: sizesToInput, 18: countOutputs},
	"Squeeze":            {13: axesToInput},
	"Unsqueeze":          {13: axesToInput},
}

// noTraining refuses BatchNormalization in training mode, which additional outputs indicated.
func noTraining(_ *scope, n *onnx.Node) (func(), error) {
	for i := 1; i < len(n.Outputs); i++ {
		if n.Outputs[i] != nil {
			return nil, fmt.Errorf("it has the training output %q, which has another form in opset 14",
				n.Outputs[i].Name)
		}
	}
	return nil, nil
}

// renameModes renames the modes of GridSample to the names for any number of dimensions.
func renameModes(s *scope, n *onnx.Node) (func(), error) {
	a := n.Attr("mode")
	if a == nil {
		return nil, nil
	}
	if a.RefName != "" {
		return nil, fmt.Errorf("its mode is the function's attribute %q, and opset 20 renames the modes",
			a.RefName)
	}
	name, ok := map[string]string{"bilinear": "linear", "bicubic": "cubic"}[a.String]
	if !ok {
		return nil, nil
	}
	return func() { s.edit.SetAttr(n, onnx.StringAttr("mode", name)) }, nil
}

// noPixelShift sets the attribute for the behavior that RoiAlign had before it had the attribute.
func noPixelShift(s *scope, n *onnx.Node) (func(), error) {
	return func() {
		s.edit.SetAttr(n, onnx.StringAttr("coordinate_transformation_mode", "output_half_pixel"))
	}, nil
}

// countOutputs sets num_outputs of a Split without sizes.
func countOutputs(s *scope, n *onnx.Node) (func(), error) {
	if n.Input(1) != nil || n.Attr("split") != nil { // becomes the input
		return nil, nil
	}
	return func() { s.edit.SetAttr(n, onnx.IntAttr("num_outputs", int64(len(n.Outputs)))) }, nil
}

// floatsOnly refuses integers, which opset 28 removed from the logarithms.
func floatsOnly(s *scope, n *onnx.Node) (func(), error) {
	v := n.Input(0)
	if v == nil {
		return nil, errors.New("it has no input")
	}
	if t := s.dataType(v); !t.IsFloat() {
		return nil, fmt.Errorf("its input %q is of type %s, but opset 28 takes only real floating-point types: "+
			"put a Cast before it", v.Name, t)
	}
	return nil, nil
}

// channelScale repeats the scale and the bias of a GroupNormalization, which have one element per group, for every
// channel of the group:
//
//	Reshape(Expand(Unsqueeze(scale, [1]), Concat([1], channels / groups)), [-1])
//
// The old version computed its first stage in the input's type. stash_type records that type if it is not float32, the
// default.
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
		return nil, fmt.Errorf("the type of its input %q is unknown, but stash_type needs it", x.Name)
	}
	return func() {
		w := &inserted{edit: &s.edit, before: n}
		one := s.constant(onnx.IntsAttr("one", []int64{1}))
		channels := w.node("Shape", []*onnx.Value{x}, onnx.IntAttr("start", 1), onnx.IntAttr("end", 2))
		each := w.node("Div", []*onnx.Value{channels, s.constant(groups)})
		shape := w.node("Concat", []*onnx.Value{one, each}, onnx.IntAttr("axis", 0))
		flat := s.constant(onnx.IntsAttr("flat", []int64{-1}))
		for i, v := range []*onnx.Value{scale, bias} {
			v = w.node("Unsqueeze", []*onnx.Value{v, one})
			v = w.node("Expand", []*onnx.Value{v, shape})
			s.edit.SetInput(n, i+1, w.node("Reshape", []*onnx.Value{v, flat}))
		}
		if t != onnx.Float {
			s.edit.SetAttr(n, onnx.IntAttr("stash_type", int64(t)))
		}
	}, nil
}

// inserted inserts nodes before another node.
type inserted struct {
	edit   *edit.Change
	before *onnx.Node
}

func (w *inserted) node(op string, inputs []*onnx.Value, attrs ...*onnx.Attribute) *onnx.Value {
	g := w.before.Graph
	v := g.NewValue(w.before.Name + "_" + op)
	n := w.edit.NewNode(g, op, inputs, []*onnx.Value{v}, attrs...)
	n.Name = v.Name
	w.edit.Insert(w.before, n)
	return v
}

// withoutRatio removes the ratio from a Dropout. Before opset 12 the op was only for inference, as it still is without
// its input training_mode, and returned its input whatever the ratio. onnxruntime's mask was false everywhere; since
// opset 12 it is true, so the mask is negated.
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
		g, kept := n.Graph, n.Graph.NewValue(n.Label()+"_kept")
		not := s.edit.NewNode(g, "Not", []*onnx.Value{kept}, []*onnx.Value{mask})
		not.Name = n.Label() + "_Not"
		s.edit.TakeOutput(n, 1, kept)
		s.edit.SetNodes(g, slices.Insert(slices.Clone(g.Nodes), slices.Index(g.Nodes, n)+1, not))
	}, nil
}

// sizesToInput turns the split attribute of a Split into its second input.
func sizesToInput(s *scope, n *onnx.Node) (func(), error) {
	a := n.Attr("split")
	if a == nil {
		return nil, nil
	}
	return s.toInput(n, a, onnx.AttrInts, 1)
}

// noHalfPixelForNN refuses the one mode of Resize that opset 13 removed.
func noHalfPixelForNN(_ *scope, n *onnx.Node) (func(), error) {
	const name = "coordinate_transformation_mode"
	switch a := n.Attr(name); {
	case a == nil:
	case a.RefName != "":
		return nil, fmt.Errorf("its %s is the function's attribute %q, which may be a value that opset 13 "+
			"removed", name,
			a.RefName)
	case a.String == "tf_half_pixel_for_nn":
		return nil, fmt.Errorf("its %s is %q, which opset 13 removed", name, a.String)
	}
	return nil, nil
}

// oneAxis rewrites a Softmax, LogSoftmax or Hardmax over all dimensions starting at its axis, the meaning before opset
// 13, as one over a single axis:
//
//	Reshape(Softmax(Flatten(x, axis), axis=-1), Shape(x))
//
// If the rank shows that the axis is the last one, the op of opset 13 has the same meaning.
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
