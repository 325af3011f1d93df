package staticcache

import (
	"fmt"
	"slices"

	"github.com/mojo-patch/mojo-patch/fused"
	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/rewrite/prove"
)

// joining returns the node that appends new rows to an input of the model and writes an output, as for a cache, or nil.
func (c *cacheChange) joining(v *onnx.Value) *onnx.Node {
	if rank, ok := c.facts.Rank(v); !ok || rank < 3 || !c.facts.DataType(v).IsFloat() {
		return nil
	}
	for _, u := range v.Uses() {
		if n := u.Node; n.Is("Concat") && u.Index == 0 && n.Outputs[0].IsOutput() {
			return n
		}
	}
	return nil
}

// unfused returns an error that says why no attention writes the cache to which a node of the model appends rows.
func (c *cacheChange) unfused(v *onnx.Value, join *onnx.Node) error {
	rank, known := c.patched.Rank(v)
	axis := join.AttrInt("axis", 0)
	if axis < 0 {
		axis += int64(rank)
	}
	if known && (rank != 4 || axis != prove.CacheAxis) {
		return fmt.Errorf("node %q (Concat) joins the cache %q and new rows along axis %d of %d: expected a cache "+
			"[batch, heads, tokens, width]", join.Label(), v.Name, axis, rank)
	}
	for w := range onnx.Downstream(func(w *onnx.Value) bool { return w.Producer != nil && w.Producer.IsProduct() },
		join.Outputs[0]) {
		n := w.Producer
		if n == nil || n.Domain != fused.Domain || n.OpType != fused.AttentionName {
			continue
		}
		bias := n.Input(fused.AttentionBias)
		if bias != nil && slices.Contains(slices.Collect(onnx.Upstream(isConstant, bias)), join.Outputs[0]) {
			return fmt.Errorf("node %q (Attention) cannot write the cache %q: its bias %q is computed "+
				"from the length of %q, which node %q (Concat) has to join before", n.Label(), v.Name, bias.Name,
				join.Outputs[0].Name, join.Label())
		}
		if err := c.otherType(n, v); err != nil {
			return err
		}
		return fmt.Errorf("node %q (Attention) reads %q, which node %q (Concat) joins from new rows and the "+
			"cache %q, instead of the cache itself", n.Label(), join.Outputs[0].Name, join.Label(), v.Name)
	}
	fusedNode := func(w *onnx.Value) bool { return w.Producer != nil && w.Producer.Domain == fused.Domain }
	for w := range onnx.Downstream(fusedNode, join.Outputs[0]) {
		for _, u := range w.Uses() {
			if n := u.Node; n.Domain == fused.Domain && n.OpType == fused.AttentionName && u.Index > fused.AttentionQ &&
				u.Index < fused.AttentionKeyValid {
				return fmt.Errorf("node %q (Attention) reads keys and values that are computed from all rows of the "+
					"cache %q, which node %q (Concat) joins with new ones: if these are latents, add --mla-cache",
					n.Label(), v.Name, join.Label())
			}
		}
	}
	return fmt.Errorf("no fused attention reads the cache %q, which node %q (Concat) joins with new rows (inspect "+
		"--why shows why)", v.Name, join.Label())
}

// otherType returns an error if attention and cache have different types.
func (c *cacheChange) otherType(n *onnx.Node, cache *onnx.Value) error {
	of, t := c.patched.DataType(n.Input(0)), c.patched.DataType(cache)
	if of == t {
		return nil
	}
	return fmt.Errorf("node %q (Attention) computes in %s and cannot write the cache %q in %s: convert the model with "+
		"--dtype float16, or only for CUDA (--backend +CUDA)", n.Label(), of, cache.Name, t)
}

// notAnInput returns an error that names the node between an input and the past of attention.
func (c *cacheChange) notAnInput(n *onnx.Node, past *onnx.Value) error {
	for v := range onnx.Upstream(isConstant, past) {
		if !v.IsInput || v.Const != nil || !c.facts.DataType(v).IsFloat() {
			continue
		}
		if err := c.otherType(n, v); err != nil {
			return err
		}
		return fmt.Errorf("node %q (%s) computes the past of node %q from the cache %q, which must be [batch, heads, "+
			"tokens, width] without it", past.Producer.Label(), past.Producer.OpType, n.Label(), v.Name)
	}
	return fmt.Errorf("%q, the past of node %q, is not an input of the model", past.Name, n.Label())
}

func isConstant(v *onnx.Value) bool { return v.IsConstant() }
