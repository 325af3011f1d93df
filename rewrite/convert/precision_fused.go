package convert

import (
	"slices"

	"github.com/mojo-patch/mojo-patch/fused"
	"github.com/mojo-patch/mojo-patch/onnx"
)

// fromCastLike is the first opset in which the definition of a fused op does not depend on its types.
const fromCastLike = 15

// fusedOp returns the op of a node of the domain mojo, or nil.
func fusedOp(n *onnx.Node) *fused.Op {
	if n == nil || n.Domain != fused.Domain {
		return nil
	}
	return fused.Lookup(n.OpType)
}

// takesTypes reports whether a fused op of a model can compute in other types: it has a definition, which casts.
func takesTypes(m *onnx.Model, n *onnx.Node) bool {
	return fusedOp(n) != nil && m.Opset("") >= fromCastLike && m.Function(n.Domain, n.OpType, n.Overload) != nil
}

// onlyFused reports whether only fused ops read a value. They take the half types of their constants as they are.
func onlyFused(v *onnx.Value) bool {
	return len(v.Uses()) > 0 && !slices.ContainsFunc(v.Uses(), func(u onnx.Use) bool { return fusedOp(u.Node) == nil })
}

// combination returns the types in which a fused op computes in the half type, or nil if it computes in float32. The
// scales of quantized weights, the weights of experts and the correction of a router stay in float32.
func (p *precision) combination(n *onnx.Node) (best *fused.Combination) {
	o := fusedOp(n)
	if o == nil || p.wide[n] || p.to == onnx.BFloat16 && slices.Contains(p.providers, "cpu") {
		return nil
	}
	if c, ok := p.combinations[n]; ok {
		return c
	}
	least := 0
	for i := range o.Types {
		c := &o.Types[i]
		if c.Types["T"] != p.to || c.Attribute != "" && n.AttrInt(c.Attribute, 0) != c.Value {
			continue
		}
		cost, fits := 0, true
		for j, v := range n.Inputs {
			if v == nil {
				continue
			}
			is, t := p.dataType(v), o.TypeOf(o.Inputs[j], *c)
			fits = fits && (is == t || is == onnx.Float && t == p.to)
			name := o.Inputs[j].Type
			stays := name != "T" && (o.Family.Stored || name == "W" || name == "B")
			if is == onnx.Float && stays == (t == p.to) {
				cost++
			}
		}
		if fits && (best == nil || cost < least) {
			best, least = c, cost
		}
	}
	p.combinations[n] = best
	return best
}
