package rewrite

import (
	"crypto/sha256"
	"fmt"
	"slices"

	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/reference"
)

// constant is a value of a replacement that does not change between runs: an initializer, or the result of the
// replacement's nodes on constants. This stacks weights: the pattern writes Unsqueeze and Concat, and the model gets
// one initializer whose elements are joined when it is written.
type constant struct {
	tensor *onnx.Tensor
	// elements is the tensor for the evaluator; nil until requested.
	elements *reference.Tensor
	// value is the initializer that holds it, or nil.
	value *onnx.Value
	key   string // how it is computed: equal keys share an initializer
	// sources are the tensors whose elements it holds.
	sources []*onnx.Tensor
	folded  bool // computed from others
}

// Tensor returns the constant's tensor.
func (k *constant) Tensor() *onnx.Tensor { return k.tensor }

// Initializer returns the initializer that holds the constant, or nil if it has not been made.
func (k *constant) Initializer() *onnx.Value { return k.value }

// fold finds the constants of a candidate's replacement. It folds nothing in a function body, which cannot hold
// initializers.
func (c *candidate) fold(opset int64) map[*onnx.Value]*constant {
	if c.Scope.Function != nil {
		return nil
	}
	constants := map[*onnx.Value]*constant{}
	replacement := c.Match.Replacement
	for i, v := range replacement.Inputs {
		in := c.Match.Inputs[i]
		if t := in.Constant(); t != nil && t.IsReadable() {
			constants[v] = &constant{tensor: t, value: in, key: fmt.Sprintf("%p", in), sources: []*onnx.Tensor{t}}
		}
	}
	for _, n := range replacement.Nodes {
		if slices.ContainsFunc(n.Outputs, func(v *onnx.Value) bool {
			return v == nil || slices.Contains(replacement.Outputs, v)
		}) {
			continue
		}
		if n.Is("Constant") {
			if t := n.Outputs[0].Constant(); t != nil {
				constants[n.Outputs[0]] = &constant{tensor: t, key: onnx.TensorKey(t), sources: []*onnx.Tensor{t}}
			}
			continue
		}
		f := &folder{n: n, facts: c.Facts, opset: opset}
		if !f.read(constants) {
			continue
		}
		if n.Is("Identity") {
			constants[n.Outputs[0]] = f.inputs[0]
			continue
		}
		for i, k := range f.fold() {
			k.key, k.sources, k.folded = f.key(i), f.sources(), true
			constants[n.Outputs[i]] = k
		}
	}
	return constants
}

// read collects the inputs, and returns false if one of them is not constant.
func (f *folder) read(constants map[*onnx.Value]*constant) bool {
	if !onnx.IsStandardDomain(f.n.Domain) || len(f.n.Inputs) == 0 || f.n.Inputs[0] == nil {
		return false
	}
	for _, v := range f.n.Inputs {
		k := constants[v]
		if v != nil && k == nil {
			return false
		}
		f.inputs = append(f.inputs, k)
	}
	return true
}

// key encodes how output i is computed.
func (f *folder) key(i int) string {
	h := sha256.New()
	fmt.Fprintf(h, "%s %s %d/%d", f.n.OpType, onnx.AttributesKey(f.n.Attributes), i, len(f.n.Outputs))
	for _, k := range f.inputs {
		if k != nil {
			fmt.Fprintf(h, " %s", k.key)
		} else {
			fmt.Fprint(h, " -")
		}
	}
	return fmt.Sprintf("%s %x", f.n.OpType, h.Sum(nil)[:16])
}

// sources returns the tensors of the inputs' elements, without shapes, axes and bounds.
func (f *folder) sources() []*onnx.Tensor {
	var list []*onnx.Tensor
	for i, k := range f.inputs {
		if k != nil && (i == 0 || f.n.Is("Concat")) {
			list = append(list, k.sources...)
		}
	}
	return list
}

// initializerOf returns the initializer of a constant, and makes it for the first reader. Folded ones are in the main
// graph, where all sites can share them, others in the site's graph.
func (w *writer) initializerOf(c *candidate, v *onnx.Value, k *constant) *onnx.Value {
	if k.value != nil {
		return k.value
	}
	made, g, name := w.constants, w.scope.Graph, v.Name
	if k.folded {
		made, g, name = w.packed, w.run.Model.Graph, c.Match.Outputs[0].Name+"_"+v.Name
	}
	if k.value = made[k.key]; k.value == nil {
		k.tensor = k.tensor.Tied(name) // a node that is copied may share its tensor with an initializer of the model
		k.value = w.edit.AddInitializer(g, k.tensor)
		made[k.key] = k.value
	}
	return k.value
}
