package fused

import "github.com/mojo-patch/mojo-patch/onnx"

// CachedOp is a fused op with caches. It says which inputs they are; the presents are the outputs after the first, in
// the order of the pasts.
type CachedOp struct {
	Name   string
	Pasts  []int
	Valid  int // which keys exist
	Length int // how many tokens are in buffers
}

// CachedOps lists the ops with caches.
var CachedOps = []*CachedOp{
	{AttentionName, []int{AttentionPastKey, AttentionPastValue}, AttentionKeyValid,
		AttentionPastLength},
	{LatentAttentionName, []int{LatentAttentionPast}, LatentAttentionKeyValid, LatentAttentionPastLength},
}

// Input is the name of an input.
func (op *CachedOp) Input(i int) string { return Lookup(op.Name).Inputs[i].Name }

// CachedOpOf returns the op of a node that has a cache, nil for another node.
func CachedOpOf(n *onnx.Node) *CachedOp {
	for _, op := range CachedOps {
		if n.Domain == Domain && n.OpType == op.Name && n.Input(op.Pasts[0]) != nil {
			return op
		}
	}
	return nil
}
