package shard

import (
	"fmt"
	"slices"
	"strings"

	"github.com/mojo-patch/mojo-patch/fused"
	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/rewrite/edit"
)

// Form selects the ops of the models of ranks.
type Form string

// Mojo has fused ops and collective operations of this toolkit. TensorRT has DistCollective of TensorRT 11, and the
// bodies of fused ops instead of the ops.
const (
	Mojo     Form = "mojo"
	TensorRT Form = "tensorrt"
)

// distCollective is TensorRT's collective operation, an op of the default domain. It joins parts along the first axis.
// TensorRT's operator reference lists its attributes, and Polygraphy 0.53.6 (multi-device shard) writes their values in
// the same way: a group_size of 0 and no groups stand for all ranks, and a root of -1 for operations without one.
const distCollective = "DistCollective"

// attrOperation is the attribute with the operation of a DistCollective.
const (
	attrOperation = "collective_operation"
	allReduce     = "all_reduce"
	allGather     = "all_gather"
)

// distAttributes are the attributes of a DistCollective of all ranks.
func distAttributes(operation string, ranks int64) []*onnx.Attribute {
	reduce := "none"
	if operation == allReduce {
		reduce = "sum"
	}
	return []*onnx.Attribute{onnx.StringAttr(attrOperation, operation), onnx.StringAttr("reduce_op", reduce),
		onnx.IntAttr("root", -1), onnx.IntAttr("nb_rank", ranks), onnx.IntAttr("group_size", 0),
		onnx.IntsAttr("groups", nil)}
}

// collective writes a DistCollective that joins local to value: by a sum, or along an axis. Other axes than the first
// are exchanged with it for the operation.
func (w *builder) collective(value, local *onnx.Value, gather bool, axis, rank int) {
	if !gather {
		w.SetAttr(w.add(distCollective, value, local), distAttributes(allReduce, w.ranks)...)
		return
	}
	if axis == 0 {
		w.SetAttr(w.add(distCollective, value, local), distAttributes(allGather, w.ranks)...)
		return
	}
	perm := make([]int64, rank)
	for i := range perm {
		perm[i] = int64(i)
	}
	perm[0], perm[axis] = int64(axis), 0
	first, joined := w.graph.NewValue(local.Name+"_first"), w.graph.NewValue(local.Name+"_joined")
	w.SetAttr(w.add("Transpose", first, local), onnx.IntsAttr("perm", perm))
	w.SetAttr(w.add(distCollective, joined, first), distAttributes(allGather, w.ranks)...)
	w.SetAttr(w.add("Transpose", value, joined), onnx.IntsAttr("perm", perm))
}

// standardize replaces fused ops by their bodies. It errs for ops that TensorRT cannot know.
func standardize(m *onnx.Model) error {
	var c edit.Change
	if _, err := c.InlineFunctions(m, nil); err != nil {
		return err
	}
	for _, g := range m.Graphs() {
		for _, n := range g.Nodes {
			if n.Domain == fused.Domain || strings.HasPrefix(n.Domain, "com.microsoft") {
				return fmt.Errorf("TensorRT has no %s, and node %q has no body to write instead: patch the exported "+
					"model with --target onnx, and divide the result", onnx.OpName(n.Domain, n.OpType), n.Label())
			}
		}
	}
	c.DropImport(m, fused.Domain)
	return c.Finish()
}

// isCollective reports whether a node is a collective operation of either form.
func isCollective(n *onnx.Node) bool {
	return n.Is(distCollective) || n.Domain == fused.Domain && slices.Contains(collectives, n.OpType)
}
