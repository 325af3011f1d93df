package rewrite

import (
	"slices"

	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/reference"
	"github.com/mojo-patch/mojo-patch/reference/infer"
)

// maxFolded limits the bytes of computed constants, such as weights in another type, and of moved constants except
// floats, which have no limit.
const maxFolded = 1 << 20

// computed lists the folded ops besides those that move elements: exact, or rounded once.
var computed = []string{"Add", "Sub", "Mul", "Div", "Neg"}

// folder folds a node with constant inputs.
type folder struct {
	n      *onnx.Node
	facts  *infer.Facts
	opset  int64
	inputs []*constant // nil for omitted ones
}

// fold evaluates the node and returns its outputs, or nil if the node is not folded or the outputs are too large.
// Floats that are only moved are not read: the evaluator tracks their position.
func (f *folder) fold() []*constant {
	moves := f.n.MovesElements()
	if !moves && !slices.Contains(computed, f.n.OpType) {
		return nil
	}
	in := make([]*reference.Tensor, len(f.inputs))
	for i, k := range f.inputs {
		if k == nil {
			continue
		}
		if in[i] = k.read(); in[i] == nil || !isSmall(k.tensor.DataType, k.tensor.Dims) && !(moves && in[i].IsLazy()) {
			return nil
		}
	}
	for _, v := range f.n.Outputs {
		dims, known := f.facts.Shape(v, 0)
		if (!moves || f.n.Is("Expand")) && !(known && isSmall(f.facts.DataType(v), dims)) {
			return nil
		}
	}
	out, err := reference.NewForOpset(f.opset, nil, reference.Options{}).Op(f.n, in)
	if err != nil || len(out) != len(f.n.Outputs) {
		return nil
	}
	list := make([]*constant, len(out))
	for i, t := range out {
		list[i] = &constant{elements: t}
		if list[i].tensor, err = t.Stored(f.n.Outputs[i].Name); err != nil && t.Len() <= maxFolded {
			list[i].tensor, err = t.ToONNX(f.n.Outputs[i].Name)
		}
		if err != nil {
			return nil
		}
	}
	return list
}

// read returns the constant for the evaluator, or nil if it is not folded.
func (k *constant) read() *reference.Tensor {
	if k.elements == nil {
		if k.tensor.DataType.IsFloat() {
			k.elements, _ = reference.Deferred(k.tensor)
		} else if isSmall(k.tensor.DataType, k.tensor.Dims) {
			k.elements, _ = reference.FromONNX(k.tensor)
		}
	}
	return k.elements
}

// isSmall reports whether a tensor is within maxFolded.
func isSmall(t onnx.DataType, dims []int64) bool {
	n := int64(t.Bits()+7) / 8
	for _, d := range dims {
		if d < 0 || d > maxFolded || n*d > maxFolded {
			return false
		}
		n *= d
	}
	return t.Bits() > 0
}
