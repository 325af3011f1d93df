package patterns

import (
	"slices"

	"github.com/mojo-patch/mojo-patch/onnx"
)

// maxDetour is the number of nodes within which a value may come back to what it was.
const maxDetour = 8

// resolve goes back over nodes that hand their input on unchanged: one that changes nothing, or several of which the last
// undo what the first did, such as Unsqueeze and Squeeze, or a cast to a wider type and back.
func (g *graphView) resolve(v *onnx.Value) *onnx.Value {
	if v == nil || v.Producer == nil {
		return v
	}
	if w, ok := g.through[v]; ok {
		return w
	}
	w := v
	for next := g.origin(w); next != nil; next = g.origin(w) {
		w = next
	}
	g.through[v] = w
	return w
}

// origin gives an earlier value that holds the same elements in the same shape and type as v, nil when there is none. On the
// way there the elements keep their order, and every type holds all numbers of v's.
func (g *graphView) origin(v *onnx.Value) *onnx.Value {
	t := g.facts.DataType(v)
	reshaped, cast := false, false
	w := v
	for range maxDetour {
		n := w.Producer
		if n == nil || !g.keepsElements(n, w) {
			return nil
		}
		w = n.Inputs[0]
		switch n.OpType {
		case "Cast", "CastLike":
			cast = true
		case "Reshape", "Flatten", "Squeeze", "Unsqueeze":
			reshaped = true
		}
		u := g.facts.DataType(w)
		if cast && (t == onnx.Undefined || t != u && !widens(t, u)) {
			return nil
		}
		if (!cast || t == u) && (!reshaped || g.facts.SameShape(v, w)) {
			return w
		}
	}
	return nil
}

// keepsElements says whether out holds the elements of the node's first input in the same order, but perhaps in another
// shape or type.
func (g *graphView) keepsElements(n *onnx.Node, out *onnx.Value) bool {
	in := n.Input(0)
	if in == nil || out.Output != 0 || !onnx.IsStandardDomain(n.Domain) {
		return false
	}
	switch n.OpType {
	case "Identity", "Cast", "CastLike", "Reshape", "Flatten", "Squeeze", "Unsqueeze":
		return true
	case "Expand":
		return g.facts.SameShape(in, out)
	case "Transpose":
		perm := n.AttrInts("perm")
		return perm != nil && slices.IsSorted(perm)
	case "Dropout": // without training_mode it is the identity
		return n.Input(2) == nil && len(n.Outputs) == 1 && n.AttrInt("is_test", 1) == 1
	}
	return false
}

// widens says whether every number of type t is one of type u.
func widens(t, u onnx.DataType) bool {
	switch t {
	case onnx.Float16, onnx.BFloat16:
		return u == onnx.Float || u == onnx.Double
	case onnx.Float:
		return u == onnx.Double
	}
	return false
}
