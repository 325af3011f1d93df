package latentcache

import (
	"fmt"
	"slices"

	"github.com/mojo-patch/mojo-patch/fused"
	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/reference"
	"github.com/mojo-patch/mojo-patch/rewrite/edit"
	"github.com/mojo-patch/mojo-patch/rewrite/pass"
)

// change rewrites the model.
func (c *latentChange) change() error {
	g := c.Model.Graph
	for _, s := range c.sites {
		for k := range s.past {
			c.keepShapes(s, k)
		}
		n, f, err := c.op(s)
		if err != nil {
			return err
		}
		n.Name = s.node.Name
		isRule := func(e onnx.Entry) bool { return e.Key == edit.MetaRule }
		n.Metadata = append(slices.DeleteFunc(slices.Clone(s.node.Metadata), isRule),
			onnx.Entry{Key: edit.MetaRule, Value: ruleLatent})
		c.edit.AddFunction(c.Model, f)
		c.edit.TakeOutput(n, 0, s.node.Outputs[0])
		c.edit.TakeOutput(n, 1, s.present[0])
		c.edit.RemovePort(g, s.present[1])
		c.edit.Drop(s.node)
		c.edit.Drop(s.joins...)
		c.declare(s)
	}
	if err := c.edit.Finish(); err != nil {
		return err
	}
	for _, s := range c.sites {
		if !c.edit.RemovePort(g, s.past[1]) {
			return fmt.Errorf("input %q is read by node %q", s.past[1].Name, s.past[1].Uses()[0].Node.Label())
		}
	}
	c.edit.DropDefinitions(c.Model, fused.AttentionName)
	return nil
}

// op creates the node, without outputs.
func (c *latentChange) op(s *latentSite) (*onnx.Node, *onnx.Function, error) {
	site := c.fusedSite(s)
	f, err := fused.Lookup(fused.LatentAttentionName).Function(site)
	if err != nil {
		return nil, nil, err
	}
	inputs := make([]*onnx.Value, len(site.Types))
	inputs[fused.LatentAttentionQ], inputs[fused.LatentAttentionW] = s.node.Inputs[fused.AttentionQ], s.latent.W
	inputs[fused.LatentAttentionC], inputs[fused.LatentAttentionKPE] = c.perToken(s.c, false), c.perToken(s.kPE, true)
	inputs[fused.LatentAttentionKeyValid], inputs[fused.LatentAttentionPast] = s.node.Input(fused.AttentionKeyValid),
		s.past[0]
	n := c.edit.AddNode(c.Model.Graph, fused.LatentAttentionName, inputs, nil, site.Attributes...)
	n.Domain, n.Overload = fused.Domain, f.Overload
	return n, f, nil
}

// fusedSite describes the node that replaces a site's node.
func (c *latentChange) fusedSite(s *latentSite) fused.Site {
	l, n := s.latent, s.node
	t, d := c.facts.DataType(s.past[0]), pass.Dims(c.facts, n.Inputs[fused.AttentionQ])
	batch, tokens := d[0], int64(-1)
	site := fused.Site{Opset: c.Model.Opset(""), Types: []onnx.DataType{t, t, t, t, onnx.Undefined, t},
		Dims: [][]int64{d, {batch, tokens, l.Width}, {batch, 1, tokens, l.Rotated}, l.W.Constant().Dims, nil,
			{batch, 1, -1, l.Width + l.Rotated}}}
	if n.Input(fused.AttentionKeyValid) != nil {
		site.Types[fused.LatentAttentionKeyValid] = onnx.Int64
	}
	layout := "in_out"
	if l.OutIn {
		layout = "out_in"
	}
	for _, name := range []string{fused.AttrScale, fused.AttrCausal, fused.AttrEmpty, fused.AttrQLayout,
		fused.AttrYLayout} {
		site.Attributes = append(site.Attributes, n.Attr(name))
	}
	site.Attributes = append(site.Attributes, onnx.StringAttr(fused.AttrWLayout, layout))
	return site
}

// perToken returns a value with one row per token as [batch, tokens, channels] or, with head, [batch, 1, tokens,
// channels].
func (c *latentChange) perToken(v *onnx.Value, head bool) *onnx.Value {
	g := c.Model.Graph
	rank, _ := c.facts.Rank(v)
	one, known := c.facts.Dim(v, 1)
	first := known && one == 1 && rank == 4
	axes := func(axis int64) *onnx.Value {
		return c.edit.AddInitializer(g, onnx.NewInt64s(v.Name+"_axis", []int64{axis}))
	}
	switch {
	case head && rank == 3:
		return c.compute(g, "Unsqueeze", g.NewValue(v.Name+"_head"), v, axes(1))
	case head && !first:
		out := c.compute(g, "Transpose", g.NewValue(v.Name+"_head"), v)
		c.edit.SetAttr(out.Producer, onnx.IntsAttr("perm", []int64{0, 2, 1, 3}))
		return out
	case !head && first:
		return c.compute(g, "Squeeze", g.NewValue(v.Name+"_tokens"), v, axes(1))
	case !head && rank == 4:
		return c.compute(g, "Squeeze", g.NewValue(v.Name+"_tokens"), v, axes(2))
	}
	return v
}

// keepShapes passes the readers of a cache's shape the same numbers of heads and channels as before. Readers of the
// values' shape now read the keys' cache.
func (c *latentChange) keepShapes(s *latentSite, k int) {
	g, l, heads := c.Model.Graph, s.latent, int64(1)
	channels := []int64{l.Width, l.Rotated}[k]
	if s.byHeads {
		heads, channels = l.Heads, []int64{l.Nope + l.Rotated, l.Values}[k]
	}
	for _, x := range [][2]*onnx.Value{{s.past[k], s.past[0]}, {s.present[k], s.present[0]}} {
		for _, use := range slices.Clone(x[0].Uses()) {
			shape := use.Node
			if !shape.Is("Shape") {
				continue
			}
			c.edit.SetInput(shape, use.Index, x[1])
			from, to := reference.ShapeRange(shape.AttrInt("start", 0), shape.AttrInt("end", 4), 4)
			if to <= from || (from > 1 || to < 2) && to < 4 {
				continue
			}
			isNumber, numbers := []int64{0, 1, 0, 1}[from:to], []int64{0, heads, 0, channels}[from:to]
			mask, err := reference.NewInts(onnx.Bool, []int{len(isNumber)}, isNumber).ToONNX("is_number")
			if err != nil {
				continue // bools can always be written
			}
			out := shape.Outputs[0]
			latents := g.NewValue(out.Name + "_of_latents")
			known := c.edit.AddInitializer(g, onnx.NewInt64s("numbers", numbers))
			c.compute(g, "Where", out, c.edit.AddInitializer(g, mask), known, latents)
			c.edit.TakeOutput(shape, 0, latents)
		}
	}
}

// compute adds a node of the standard domain. Finish moves it to its place.
func (c *latentChange) compute(g *onnx.Graph, op string, out *onnx.Value, inputs ...*onnx.Value) *onnx.Value {
	return c.AddNode(&c.edit, g, ruleLatent, op, out, inputs...).Outputs[0]
}

// declare declares past and present as latents.
func (c *latentChange) declare(s *latentSite) {
	for _, v := range []*onnx.Value{s.past[0], s.present[0]} {
		if t, ok := v.Type(); ok && len(t.Dims) == 4 {
			t.Dims[1], t.Dims[3] = onnx.Dim{Value: 1}, onnx.Dim{Value: s.latent.Width + s.latent.Rotated}
			c.edit.SetType(v, t)
		}
	}
}
