package reference

import (
	"slices"

	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/reference/internal/op"
)

// EvalFor evaluates nodes in the given order, only for the values of keep. It releases other values after their last
// reader. env contains the values that the nodes read from elsewhere, and afterwards also the values of keep.
//
// overflow reports that somewhere, also in subgraphs and functions, a node turned finite numbers into infinities or
// NaN: then the results mean little.
func (e *Evaluator) EvalFor(nodes []*onnx.Node, env map[*onnx.Value]*Tensor, keep []*onnx.Value) (overflow bool,
	err error) {
	if len(nodes) == 0 {
		return false, nil
	}
	fr := e.frameOf(nodes[0])
	fr.Meter.Watch = true
	err = e.evalFor(nodes, &scope{values: env}, fr, keep)
	return err == nil && fr.Meter.Overflow, err
}

// evalFor evaluates nodes for the values of keep, and keeps only these and the values that were in the scope before.
func (e *Evaluator) evalFor(nodes []*onnx.Node, sc *scope, fr *op.Frame, keep []*onnx.Value) error {
	stays := make(map[*onnx.Value]bool, len(sc.values)+len(keep))
	for v := range sc.values {
		stays[v] = true
	}
	for _, v := range keep {
		stays[v] = true
	}
	last := readers(nodes)
	dead := make([][]*onnx.Value, len(nodes))
	for v, i := range last {
		if !stays[v] {
			dead[i] = append(dead[i], v)
		}
	}
	for i, n := range nodes {
		if err := e.evalNode(n, sc, fr); err != nil {
			return err
		}
		for _, v := range n.Outputs { // unread
			if _, read := last[v]; v != nil && !read && !stays[v] {
				dead[i] = append(dead[i], v)
			}
		}
		for _, v := range dead[i] {
			fr.Meter.Release(sc.values[v])
			delete(sc.values, v)
		}
	}
	return nil
}

// look records a node that computes infinities or NaN from finite numbers. Constants with them are intended.
func look(m *op.Meter, n *onnx.Node, in, out []*Tensor) {
	if m.Overflow || n.Is("Constant") || n.Is("ConstantOfShape") || len(n.Subgraphs()) > 0 {
		return
	}
	m.Overflow = slices.ContainsFunc(out, infinite) && !slices.ContainsFunc(in, infinite)
}

// infinite reports whether an element of t is an infinity or NaN. It reads every element of every result, so the loop
// has no call.
func infinite(t *Tensor) bool {
	if t == nil {
		return false
	}
	for _, x := range t.F {
		if x-x != 0 {
			return true
		}
	}
	return false
}
