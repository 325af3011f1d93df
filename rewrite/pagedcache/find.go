package pagedcache

import (
	"errors"
	"fmt"
	"slices"

	"github.com/mojo-patch/mojo-patch/fused"
	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/onnx/roles"
	"github.com/mojo-patch/mojo-patch/reference/infer"
)

// find finds attention on buffers, and the sizes of batches and sequences.
func (c *Change) find() error {
	for _, n := range c.Model.Graph.Nodes {
		op := fused.CachedOpOf(n)
		if op == nil {
			continue
		}
		switch {
		case op.Name != fused.AttentionName:
			return fmt.Errorf("node %q (%s) keeps latents, and only the caches of %s can be paged: use --cache "+
				"static, or an export that caches keys and values", n.Label(), op.Name, fused.AttentionName)
		case n.Input(fused.AttentionBias) != nil:
			return fmt.Errorf("node %q adds %q to the scores, which is not known to be right for packed sequences",
				n.Label(), n.Input(fused.AttentionBias).Name)
		}
		s := &site{node: n}
		for k := range s.past {
			s.past[k], s.present[k] = n.Input(fused.AttentionPastKey+k), n.OutputValue(1+k)
		}
		c.length = n.Input(fused.AttentionPastLength)
		c.sites = append(c.sites, s)
	}
	if len(c.sites) == 0 || c.length == nil {
		return errors.New("no attention reads buffers with a length for each sequence")
	}
	q, axis := c.sites[0].node.Input(fused.AttentionQ), 2
	if c.sites[0].node.AttrString(fused.AttrQLayout, "") == "bsnh" {
		axis = 1
	}
	for w := range infer.Worlds {
		c.batch[w], c.added[w] = c.facts.Size(c.length, w, 0), c.facts.Size(q, w, axis)
	}
	return nil
}

// inputs sorts the inputs of the model: caches, tokens, positions, and masks.
func (c *Change) inputs() error {
	for _, in := range roles.Find(c.Model) {
		v := in.Value
		cache := slices.ContainsFunc(c.sites, func(s *site) bool { return s.past[0] == v || s.past[1] == v })
		switch rank, _ := c.facts.Rank(v); {
		case cache || v == c.length:
		case len(v.Uses()) == 0: // such as the choice of a branch that was replaced
			c.unread = append(c.unread, v)
		case rank >= 2 && c.hasSize(v, 0, c.batch) && c.hasSize(v, 1, c.added):
			if in.Role == roles.Position && rank == 2 {
				c.positions = append(c.positions, v)
				continue
			}
			c.packed = append(c.packed, v)
		case in.Role == roles.Mask:
			c.masks = append(c.masks, v)
		default:
			t, _ := v.Type()
			return fmt.Errorf("input %q is %s: expected a row for each new token, positions, a mask or a cache",
				v.Name, t)
		}
	}
	if len(c.packed) == 0 {
		return errors.New("no input has a row for each new token")
	}
	return nil
}

func (c *Change) hasSize(v *onnx.Value, axis int, size [infer.Worlds]int64) bool {
	for w, n := range size {
		if n < 1 || c.facts.Size(v, w, axis) != n {
			return false
		}
	}
	return true
}

// lastRows finds the node that takes the last row of each sequence on the way to an output [batch, 1, ...].
func (c *Change) lastRows(out *onnx.Value) (*onnx.Node, error) {
	for v := out; v.Producer != nil && len(v.Producer.Inputs) > 0; v = v.Producer.Inputs[0] {
		n := v.Producer
		if !n.Is("Slice") && !n.Is("Gather") {
			continue
		}
		if rank, _ := c.facts.Rank(n.Inputs[0]); rank == 3 && c.hasSize(n.Inputs[0], 1, c.added) &&
			!c.hasSize(v, 1, c.added) {
			return n, nil
		}
	}
	return nil, fmt.Errorf("output %q has one row for each sequence, but no Slice or Gather takes the last one",
		out.Name)
}
