package rotary

import (
	"slices"

	"github.com/mojo-patch/mojo-patch/fused"
	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/patterns/match"
)

// Views are the built-in views that follow channels, so that spellings do not matter. Rotation(x, cos, sin) is a rotary
// position embedding of x in any layout of pairs, with the attributes of mojo.RotaryEmbedding. OppositeRotation rotates
// by the negatives of the angles: mojo.RotaryEmbedding then reads the negative of sin.
var Views = map[string]*match.BuiltinView{
	"Rotation": {Args: 3, Roots: rotationRoots, Find: func(g *match.View, v *onnx.Value) (*match.ViewMatch,
		*match.ViewMiss) {
		return rotationView(g, v, false)
	}},
	"OppositeRotation": {Args: 3, Roots: rotationRoots, Find: func(g *match.View, v *onnx.Value) (*match.ViewMatch,
		*match.ViewMiss) {
		return rotationView(g, v, true)
	}},
}

func rotationView(g *match.View, v *onnx.Value, opposite bool) (*match.ViewMatch, *match.ViewMiss) {
	r, t, at, why := rotationOf(g, v, opposite)
	if r == nil {
		return nil, &match.ViewMiss{At: at, Why: why, Nodes: t.nodesFrom(v, nil)}
	}
	interleaved := int64(0)
	if r.interleaved {
		interleaved = 1
	}
	operands := []match.Block{r.x, r.cos, r.sin}
	return &match.ViewMatch{Operands: operands, Nodes: t.nodesFrom(v, operands), Attributes: map[string]any{
		fused.AttrInterleaved: interleaved, fused.AttrRotaryDim: int64(r.rotaryDim),
		fused.AttrRotatedSide:  r.rotatedSide,
		fused.AttrOutputLayout: r.outputLayout,
	}}, nil
}

// nodesFrom lists the nodes that compute v from the operands, as far as channels were followed.
func (t *tracer) nodesFrom(v *onnx.Value, operands []match.Block) []*onnx.Node {
	var nodes []*onnx.Node
	seen := map[*onnx.Value]bool{}
	for _, b := range operands {
		seen[b.Value] = true
	}
	var visit func(v *onnx.Value)
	visit = func(v *onnx.Value) {
		v = t.g.Resolve(v)
		if v == nil || seen[v] || !t.reached(v) || v.Producer == nil {
			return
		}
		seen[v] = true
		if slices.Contains(nodes, v.Producer) {
			return
		}
		nodes = append(nodes, v.Producer)
		list, inputs := sequenceOf(v.Producer)
		if list != nil {
			nodes = append(nodes, list)
		}
		for _, in := range inputs {
			visit(in)
		}
	}
	visit(v)
	return nodes
}
