package staticcache

import (
	"slices"

	"github.com/mojo-patch/mojo-patch/fused"
	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/rewrite/edit"
	"github.com/mojo-patch/mojo-patch/rewrite/pass"
)

// Layers may attend to the keys and values of another layer, as in Gemma 3n. They read the present that the other layer
// writes. In a buffer, the rows after the tokens hold no keys. So these layers read the buffer as the other layer does:
// the past, with the new rows inserted. Only one layer writes the buffer.

// share changes attention that reads the presents of another node's caches.
func (c *cacheChange) share() error {
	if err := c.dropUnread(); err != nil {
		return err
	}
	for _, s := range slices.Clone(c.sites) {
		present := s.node.OutputValue(1)
		if s.op.Name != fused.AttentionName || present == nil {
			continue
		}
		for _, use := range slices.Clone(present.Uses()) {
			if use.Index == fused.AttentionK && s.feeds(use.Node) {
				if err := c.readAs(s, use.Node); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// feeds reports whether the presents of a site are the keys and values of another attention without a cache.
func (s *cacheSite) feeds(n *onnx.Node) bool {
	return n.Domain == fused.Domain && n.OpType == fused.AttentionName && n.Input(fused.AttentionPastKey) == nil &&
		n.Input(fused.AttentionK) == s.node.OutputValue(1) && n.Input(fused.AttentionV) == s.node.OutputValue(2) &&
		n.AttrString(fused.AttrKLayout, "") == "bnsh" && n.AttrString(fused.AttrVLayout, "") == "bnsh"
}

// readAs makes an attention node read the caches of a site.
func (c *cacheChange) readAs(s *cacheSite, n *onnx.Node) error {
	for _, i := range []int{fused.AttentionK, fused.AttentionV, fused.AttentionPastKey, fused.AttentionPastValue} {
		c.edit.SetInput(n, i, s.node.Input(i))
	}
	for _, name := range []string{fused.AttrKLayout, fused.AttrVLayout} {
		c.edit.SetAttr(n, onnx.StringAttr(name, s.node.AttrString(name, "")))
	}
	f, err := fused.Lookup(fused.AttentionName).Function(pass.FusedSite(c.Model, c.patched, n))
	if err != nil {
		return err
	}
	c.edit.SetDomain(n, n.Domain, f.Overload)
	c.edit.AddFunction(c.Model, f)
	c.sites = append(c.sites, newCacheSite(n, s.op, s))
	return nil
}

// dropUnread removes unread nodes if some of them read presents, such as a layer's own copies of keys for each query
// head.
func (c *cacheChange) dropUnread() error {
	g := c.Model.Graph
	dead, _ := edit.Unread(g.Nodes)
	for _, s := range c.sites {
		for k := range s.op.Pasts {
			present := s.node.OutputValue(1 + k)
			if present != nil && slices.ContainsFunc(present.Uses(), func(u onnx.Use) bool { return dead[u.Node] }) {
				return c.edit.RemoveUnreadNodes(g)
			}
		}
	}
	return nil
}
