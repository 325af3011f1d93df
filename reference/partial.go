package reference

import (
	"slices"

	"github.com/mojo-patch/mojo-patch/onnx"
)

// EvalFor evaluates nodes in the given order, for the values of keep alone: what the nodes make besides is released as
// soon as the last of them has read it. env holds the values that they read from elsewhere, and afterwards those of
// keep as well.
//
// overflow says that somewhere, in subgraphs and functions too, finite numbers went into a node and others came out:
// what the nodes give then means little.
func (e *Evaluator) EvalFor(nodes []*onnx.Node, env map[*onnx.Value]*Tensor, keep []*onnx.Value) (overflow bool,
	err error) {
	if len(nodes) == 0 {
		return false, nil
	}
	fr := e.frameOf(nodes[0])
	fr.meter.watch = true
	err = e.evalFor(nodes, &scope{values: env}, fr, keep)
	return err == nil && fr.meter.overflow, err
}

// evalFor evaluates nodes for the values of keep, and leaves besides these the ones that were in the scope before.
func (e *Evaluator) evalFor(nodes []*onnx.Node, sc *scope, fr *frame, keep []*onnx.Value) error {
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
		for _, v := range n.Outputs { // read by nobody
			if _, read := last[v]; v != nil && !read && !stays[v] {
				dead[i] = append(dead[i], v)
			}
		}
		for _, v := range dead[i] {
			fr.meter.release(sc.values[v])
			delete(sc.values, v)
		}
	}
	return nil
}

// look takes note of a node that makes infinities or NaN of finite numbers. Constants that hold them are meant.
func (m *meter) look(n *onnx.Node, in, out []*Tensor) {
	if m.overflow || n.Is("Constant") || n.Is("ConstantOfShape") || len(n.Subgraphs()) > 0 {
		return
	}
	m.overflow = slices.ContainsFunc(out, infinite) && !slices.ContainsFunc(in, infinite)
}

// infinite reports whether an element of t is an infinity or NaN. It looks at every element of every result, so the
// loop has no call.
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
