package rewrite

import (
	"crypto/sha256"
	"fmt"
	"slices"

	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/reference"
)

// constant is a value of a replacement that is the same at every run: an initializer, or what nodes of the replacement
// make of constants alone. Weights are stacked that way: the pattern writes Unsqueeze and Concat, the model gets one
// initializer whose elements are put together when it is written.
type constant struct {
	tensor *onnx.Tensor
	// elements are the tensor as the evaluator has it; nil until they are asked for.
	elements *reference.Tensor
	// value is the initializer that holds it, nil as long as there is none.
	value *onnx.Value
	key   string // what it is made of: equal ones are one initializer
	// sources are the tensors whose elements it holds.
	sources []*onnx.Tensor
	folded  bool // made of others
}

// Tensor is the constant itself.
func (k *constant) Tensor() *onnx.Tensor { return k.tensor }

// Initializer is the initializer that holds it, nil as long as there is none.
func (k *constant) Initializer() *onnx.Value { return k.value }

// fold finds the constants of a candidate's replacement. The body of a function can hold no initializers: there nothing
// is folded.
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

// read gathers the inputs; false when one of them is no constant.
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

// key writes how output i is made.
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

// sources are the tensors of the inputs' elements: all but the shapes, axes and bounds.
func (f *folder) sources() []*onnx.Tensor {
	var list []*onnx.Tensor
	for i, k := range f.inputs {
		if k != nil && (i == 0 || f.n.Is("Concat")) {
			list = append(list, k.sources...)
		}
	}
	return list
}

// initializerOf returns the initializer that holds a constant, made when the first node reads it. Folded ones stand in
// the main graph, where all sites can share them, others beside the site.
func (w *writer) initializerOf(c *candidate, v *onnx.Value, k *constant) *onnx.Value {
	if k.value != nil {
		return k.value
	}
	made, g, name := w.constants, w.scope.Graph, v.Name
	if k.folded {
		made, g, name = w.packed, w.run.Model.Graph, c.Match.Outputs[0].Name+"_"+v.Name
	}
	if k.value = made[k.key]; k.value == nil {
		k.tensor.Name = name
		k.value = w.edit.AddInitializer(g, k.tensor)
		made[k.key] = k.value
	}
	return k.value
}
