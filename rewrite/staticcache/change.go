package staticcache

import (
	"slices"

	"github.com/mojo-patch/mojo-patch/fused"
	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/reference"
	"github.com/mojo-patch/mojo-patch/rewrite/pass"
	"github.com/mojo-patch/mojo-patch/rewrite/prove"
)

// ruleCache is the pattern name in the metadata of nodes that compute lengths (MetaRule).
const ruleCache = "StaticCache"

// cacheSymbol is the dimension of buffers whose length the callers choose.
const cacheSymbol = "cache_length"

// change rewrites the model.
func (c *cacheChange) change() error {
	g := c.Model.Graph
	if c.options.PastLength {
		t := onnx.Type{DataType: onnx.Int64, HasShape: true, Dims: []onnx.Dim{{Value: 1}}}
		if c.options.RowLengths {
			buffers, _ := c.sites[0].past[0].Type()
			t.Dims = buffers.Dims[:1]
		}
		c.length = c.edit.AddInput(g, "past_length", t)
	} else {
		c.all = c.size(c.total, "total_length")
		c.length = c.compute(g, "Sub", g.NewValue("past_length"), c.all, c.size(c.fresh, "new_length"))
	}
	if c.options.RowLengths {
		if err := c.countRows(); err != nil {
			return err
		}
	}
	if !c.options.RowLengths {
		c.readOfNew(func(name string) *onnx.Value {
			axis := c.edit.AddInitializer(g, onnx.NewInt64s("axis", []int64{1}))
			return c.compute(g, "Slice", g.NewValue(name), c.counted, c.length, c.allTokens(), axis)
		})
	}
	for _, r := range c.readers {
		length := c.length
		if r.total {
			length = c.allTokens()
		}
		if err := c.correct(r, length); err != nil {
			return err
		}
	}
	for _, s := range c.sites {
		f, err := fused.Lookup(s.op.Name).Function(c.inPlace(s))
		if err != nil {
			return err
		}
		c.edit.SetInput(s.node, s.op.Length, c.length)
		c.edit.SetDomain(s.node, s.node.Domain, f.Overload)
		c.edit.AddFunction(c.Model, f)
	}
	for _, op := range fused.CachedOps {
		c.edit.DropDefinitions(c.Model, op.Name)
	}
	c.declareBuffers()
	return c.edit.Finish()
}

// allTokens returns the number of cached and new tokens.
func (c *cacheChange) allTokens() *onnx.Value {
	if c.all == nil {
		g := c.Model.Graph
		c.all = c.compute(g, "Add", g.NewValue("total_length"), c.length, c.size(c.fresh, "new_length"))
	}
	return c.all
}

// size returns a size as a vector with one element.
func (c *cacheChange) size(s sizeOf, name string) *onnx.Value {
	g := c.Model.Graph
	if s.input == nil {
		return c.edit.AddInitializer(g, onnx.NewInt64s(name, []int64{s.number}))
	}
	shape := c.compute(g, "Shape", g.NewValue(name+"_shape"), s.input)
	axis := c.edit.AddInitializer(g, onnx.NewInt64s(name+"_axis", []int64{int64(s.axis)}))
	return c.compute(g, "Gather", g.NewValue(name), shape, axis)
}

// compute adds a node of the standard domain that computes integers. Finish moves it to its place.
func (c *cacheChange) compute(g *onnx.Graph, op string, out *onnx.Value, inputs ...*onnx.Value) *onnx.Value {
	c.nodes = append(c.nodes, c.AddNode(&c.edit, g, ruleCache, op, out, inputs...))
	return out
}

// correct replaces the buffer's length in the result of a Shape by the number of tokens, so that readers get the same
// as before.
func (c *cacheChange) correct(r *lengthReader, length *onnx.Value) error {
	g, out := r.shape.Graph, r.shape.Outputs[0]
	if r.to-r.from == 1 && !out.IsOutput() {
		c.edit.Reread(out, length)
		r.corrected = length
		c.edit.Drop(r.shape)
		return nil
	}
	bools := make([]int64, r.to-r.from)
	bools[r.axis-r.from] = 1
	isLength, err := reference.NewInts(onnx.Bool, []int{len(bools)}, bools).ToONNX("is_length")
	if err != nil {
		return err
	}
	buffer := g.NewValue(out.Name + "_of_buffer")
	r.corrected = c.compute(g, "Where", out, c.edit.AddInitializer(g, isLength), length, buffer)
	c.edit.TakeOutput(r.shape, 0, buffer)
	return nil
}

// inPlace describes an attention node with buffers.
func (c *cacheChange) inPlace(s *cacheSite) fused.Site {
	site, length := pass.FusedSite(c.Model, c.patched, s.node), s.op.Length
	for len(site.Types) <= length {
		site.Types, site.Dims = append(site.Types, onnx.Undefined), append(site.Dims, nil)
	}
	site.Types[length], site.Dims[length] = onnx.Int64, []int64{1}
	if c.options.RowLengths {
		site.Dims[length] = []int64{-1}
	}
	return site
}

// declareBuffers declares pasts and presents with one shape.
func (c *cacheChange) declareBuffers() {
	length := onnx.Dim{Value: c.options.Length}
	if length.Value == 0 {
		length = onnx.Dim{Value: -1, Param: c.freeSymbol(cacheSymbol)}
	}
	for _, s := range c.sites {
		for k := range s.past {
			t, _ := s.past[k].Type()
			t.Dims[prove.CacheAxis] = length
			c.edit.SetType(s.past[k], t)
			c.edit.SetType(s.present[k], t)
		}
	}
	for _, mask := range c.masks {
		t, _ := mask.input.Type()
		t.Dims[mask.axis] = length
		c.edit.SetType(mask.input, t)
	}
}

// freeSymbol returns a name like the given one that is not a dimension of any input.
func (c *cacheChange) freeSymbol(name string) string {
	for slices.ContainsFunc(c.Model.Graph.Inputs, func(v *onnx.Value) bool {
		t, _ := v.Type()
		return slices.ContainsFunc(t.Dims, func(d onnx.Dim) bool { return d.Param == name })
	}) {
		name += "_"
	}
	return name
}
