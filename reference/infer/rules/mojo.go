package rules

import (
	"github.com/mojo-patch/mojo-patch/fused"
	"github.com/mojo-patch/mojo-patch/onnx"
)

// mojoRules: the fused ops of this toolkit, whose catalog has their types and shapes.
var mojoRules = fusedRules()

func fusedRules() map[string]Rule {
	rules := map[string]Rule{}
	for _, op := range fused.Ops() {
		rules[op.Name] = func(c *Call) { c.fused(op) }
	}
	return rules
}

// fused sets an op's outputs by the catalog.
func (c *Call) fused(op *fused.Op) {
	s := fused.Site{Types: make([]onnx.DataType, len(c.In)), Dims: make([][]int64, len(c.In))}
	for i := range c.In {
		s.Types[i], s.Dims[i] = c.dtype(i), c.shape(i)
	}
	for _, spec := range op.Attributes {
		if a := c.attr(spec.Name); a != nil && a.Type == spec.Type {
			named := *a
			named.Name = spec.Name // a reference leads to an attribute of another name
			s.Attributes = append(s.Attributes, &named)
		}
	}
	types := op.OutputTypes(s)
	for i, shape := range op.OutputShapes(s, c.must) {
		c.set(i, types[i], shape)
	}
}
