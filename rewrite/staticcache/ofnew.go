package staticcache

import (
	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/rewrite/prove"
)

// Layers with a state multiply the new tokens by their columns of the mask, which an export reads from its end. In a
// mask that is as long as the buffers they follow the tokens before them.

// isOfNew reports whether a value is the columns of the new tokens, for all lengths and paddings, and keeps it.
func (c *cacheChange) isOfNew(v *onnx.Value) bool {
	if c.counted == nil || v.IsOutput() {
		return false
	}
	for _, r := range c.runs {
		x := r.values[v]
		batch, added := int(c.batchOf(r.world)), int(c.added[r.world])
		if x == nil || len(x.Shape) != 2 || x.Shape[0] != batch || x.Shape[1] != added {
			return false
		}
		p := r.padding
		if p == nil {
			p = &prove.NoPadding
		}
		for i := range x.Len() {
			want := int64(0)
			if p.Exists(i/added, int(r.past)+i%added, int(r.past)+added) {
				want = 1
			}
			if x.IsFloat() && x.F[i] != float64(want) || !x.IsFloat() && x.I[i] != want {
				return false
			}
		}
	}
	c.ofNew = append(c.ofNew, v)
	return true
}

// maskOfNew returns an error if the nodes that read the mask compute anything but the columns of the new tokens.
func (c *cacheChange) maskOfNew() (err error) {
	if c.runs, err = c.lengthsRuns(); err != nil {
		return err
	}
	seen := map[*onnx.Value]bool{}
	var follow func(v *onnx.Value) error
	follow = func(v *onnx.Value) error {
		if seen[v] || c.isOfNew(v) {
			return nil
		}
		seen[v] = true
		for _, use := range v.Uses() {
			n := use.Node
			switch {
			case c.isKeyValid(use) || v == c.counted && n.Is("Shape"):
				continue
			case n.Graph != c.Model.Graph:
				return c.readsMask(n, c.counted)
			}
			for _, out := range n.Outputs {
				if out == nil {
					continue
				}
				if c.runs[0].values[out] == nil || out.IsOutput() {
					return c.readsMask(n, c.counted)
				}
				if err := follow(out); err != nil {
					return err
				}
			}
		}
		return nil
	}
	return follow(c.counted)
}

// readOfNew makes readers of the columns of the new tokens read the ones that read returns.
func (c *cacheChange) readOfNew(read func(name string) *onnx.Value) {
	for _, v := range c.ofNew {
		x := read(v.Name + "_of_new")
		if t := c.patched.DataType(v); t != c.patched.DataType(c.counted) {
			x = c.compute(c.Model.Graph, "Cast", c.Model.Graph.NewValue(v.Name+"_cast"), x)
			c.edit.SetAttr(x.Producer, onnx.IntAttr("to", int64(t)))
		}
		c.edit.Reread(v, x)
		c.edit.Drop(v.Producer)
	}
}
