package fused

import "github.com/mojo-patch/mojo-patch/onnx"

// CachedOp describes the inputs of a fused op with caches. The outputs after the first are the presents, in the order
// of Pasts.
type CachedOp struct {
	Name   string
	Pasts  []int
	Valid  int // the input that marks which keys exist
	Length int // the input with the number of tokens in the buffers
}

// CachedOps lists the ops with caches.
var CachedOps = []*CachedOp{
	{AttentionName, []int{AttentionPastKey, AttentionPastValue}, AttentionKeyValid,
		AttentionPastLength},
	{LatentAttentionName, []int{LatentAttentionPast}, LatentAttentionKeyValid, LatentAttentionPastLength},
}

// Input returns the name of input i.
func (op *CachedOp) Input(i int) string { return Lookup(op.Name).Inputs[i].Name }

// CachedOpOf returns the op of a node with a cache, or nil if the node has none.
func CachedOpOf(n *onnx.Node) *CachedOp {
	for _, op := range CachedOps {
		if n.Domain == Domain && n.OpType == op.Name && n.Input(op.Pasts[0]) != nil {
			return op
		}
	}
	return nil
}

// ExpertLayout returns the name of MoE's attribute for the layout of an input's matrices, or "" if the input has none.
func ExpertLayout(input int) string {
	return map[int]string{MoEGateUp: AttrGateUpLayout, MoEDown: AttrDownLayout}[input]
}
