package rewrite

import (
	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/reference"
	"github.com/mojo-patch/mojo-patch/reference/infer"
)

// maxFoldedBytes bounds constants that are computed, such as weights in another type. Elements that only move have no
// bound.
const maxFoldedBytes = 1 << 20

// folder makes what a node computes for constant inputs.
type folder struct {
	n      *onnx.Node
	facts  *infer.Facts
	opset  int64
	inputs []*constant // nil for omitted ones
}

// fold returns the outputs of the node, nil when it is none that is folded. Ops that move elements give tensors that
// are put together when they are written.
func (f *folder) fold() []*onnx.Tensor {
	var outs []*onnx.Tensor
	var err error
	one := func(t *onnx.Tensor, e error) { outs, err = []*onnx.Tensor{t}, e }
	switch f.n.OpType {
	case "Identity":
		one(f.data(), nil)
	case "Unsqueeze", "Squeeze", "Reshape", "Flatten":
		one(f.reshape())
	case "Transpose":
		one(f.transpose())
	case "Slice":
		one(f.slice())
	case "Gather":
		one(f.gather())
	case "Concat":
		one(f.concat())
	case "Split":
		outs, err = f.split()
	case "Cast", "Add", "Sub", "Mul", "Div", "Neg", "Expand": // exact, or rounded once
		outs, err = f.compute()
	}
	if err != nil || len(outs) != len(f.n.Outputs) {
		return nil
	}
	for _, t := range outs {
		if t == nil {
			return nil
		}
	}
	return outs
}

func (f *folder) data() *onnx.Tensor { return f.inputs[0].tensor }

// name is what a tensor is called until it is an initializer.
func (f *folder) name() string { return f.n.Outputs[0].Name }

// dims returns the shape of an output, nil when it is unknown.
func (f *folder) dims(output int) []int64 {
	dims, ok := f.facts.Shape(f.n.Outputs[output], 0)
	if !ok {
		return nil
	}
	return append([]int64{}, dims...)
}

// axis returns an attribute that names an axis of the data.
func (f *folder) axis() (axis int, ok bool) {
	axis = int(f.n.AttrInt("axis", 0))
	rank := len(f.data().Dims)
	if axis < 0 {
		axis += rank
	}
	return axis, axis >= 0 && axis < rank
}

// integers returns the elements of an integer input; ok is false when it is omitted or holds something else.
func (f *folder) integers(i int) (list []int64, ok bool) {
	if i >= len(f.inputs) || f.inputs[i] == nil || f.inputs[i].tensor.Size() > maxFoldedBytes {
		return nil, false
	}
	t, err := reference.FromONNX(f.inputs[i].tensor)
	if err != nil || t.F != nil || t.S != nil {
		return nil, false
	}
	return t.I, true
}

// compute evaluates the node on small constants.
func (f *folder) compute() ([]*onnx.Tensor, error) {
	env := map[*onnx.Value]*reference.Tensor{}
	var read int64
	for i, k := range f.inputs {
		if k == nil {
			continue
		}
		if read += k.tensor.Size(); k.tensor.Size() < 0 || read > maxFoldedBytes {
			return nil, nil
		}
		t, err := reference.FromONNX(k.tensor)
		if err != nil {
			return nil, err
		}
		env[f.n.Inputs[i]] = t
	}
	for i, v := range f.n.Outputs {
		n := int64(f.facts.DataType(v).Bits()+7) / 8
		for _, d := range f.dims(i) {
			if d > maxFoldedBytes {
				return nil, nil
			}
			if n *= d; n > maxFoldedBytes {
				return nil, nil
			}
		}
		if f.dims(i) == nil {
			return nil, nil
		}
	}
	e := reference.NewForOpset(f.opset, nil, reference.Options{})
	if err := e.Eval([]*onnx.Node{f.n}, env); err != nil {
		return nil, err
	}
	var outs []*onnx.Tensor
	for _, v := range f.n.Outputs {
		t, err := env[v].ToONNX(v.Name)
		if err != nil {
			return nil, err
		}
		outs = append(outs, t)
	}
	return outs, nil
}
