package staticcache

import (
	"errors"
	"fmt"
	"slices"

	"github.com/mojo-patch/mojo-patch/fused"
	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/patterns/match"
	"github.com/mojo-patch/mojo-patch/reference"
	"github.com/mojo-patch/mojo-patch/reference/infer"
	"github.com/mojo-patch/mojo-patch/rewrite/prove"
)

// ErrNoCache reports that no attention of the model has a cache.
var ErrNoCache = errors.New("the model has no mojo.Attention with a cache")

var errNoPast = fmt.Errorf("%w among its inputs and outputs", ErrNoCache)

// find finds attention with a cache.
func (c *cacheChange) find() error {
	for _, s := range c.Scopes() {
		for _, n := range s.Graph.Nodes {
			op := fused.CachedOpOf(n)
			if op == nil {
				continue
			}
			switch {
			case n.Input(op.Length) != nil:
				return fmt.Errorf("node %q already writes into buffers", n.Label())
			case s.Function != nil:
				return fmt.Errorf("node %q is in function %s.%s: inline functions with --inline all", n.Label(),
					s.Function.Domain, s.Function.Name)
			case s.Graph != c.Model.Graph:
				return fmt.Errorf("node %q is in a branch or a loop (%s)", n.Label(), s.Place)
			}
			c.sites = append(c.sites, newCacheSite(n, op, nil))
		}
	}
	if c.sites == nil {
		for _, v := range c.Model.Graph.Inputs {
			if join := c.joining(v); join != nil {
				return fmt.Errorf("%w: %w", ErrNoCache, c.unfused(v, join))
			}
		}
		return errNoPast
	}
	for _, step := range []func() error{c.passCopies, c.share} {
		if err := step(); err != nil {
			return err
		}
	}
	for _, s := range c.sites {
		for k := range s.past {
			if err := c.buffer(s, k); err != nil {
				return err
			}
		}
	}
	return nil
}

// passCopies bypasses nodes between caches and attention that change nothing, such as a Concat of one tensor.
func (c *cacheChange) passCopies() error {
	g := c.Model.Graph
	view := match.New(g, c.patched, nil)
	caches := map[*onnx.Value]bool{}
	for _, s := range c.sites {
		for k := range s.past {
			caches[view.Resolve(s.node.Input(s.op.Pasts[k]))] = true
			present := s.node.OutputValue(1 + k)
			for _, out := range g.Outputs {
				if present != nil && !present.IsOutput() && out.Producer != nil && view.Resolve(out) == present {
					c.edit.Drop(out.Producer)
					c.edit.TakeOutput(s.node, 1+k, out)
					c.edit.Reread(present, out)
				}
			}
			caches[s.node.OutputValue(1+k)] = true
		}
	}
	for _, n := range g.Nodes {
		for _, v := range n.Outputs {
			if v == nil || v.IsOutput() || caches[v] {
				continue
			}
			if w := view.Resolve(v); w != nil && caches[w] {
				c.edit.Drop(n)
				c.edit.Reread(v, w)
			}
		}
	}
	return c.edit.Finish()
}

// buffer checks that a cache of a site can become a buffer.
func (c *cacheChange) buffer(s *cacheSite, k int) error {
	past, present := s.node.Input(s.op.Pasts[k]), s.writing().OutputValue(1+k)
	if !past.IsInput || past.Const != nil {
		return c.notAnInput(s.node, past)
	}
	if present == nil || !present.IsOutput() {
		return fmt.Errorf("the model does not output the new cache of input %q at node %q", past.Name, s.node.Label())
	}
	heads, ok := c.patched.Dim(past, 1)
	width, known := c.patched.Dim(past, 3)
	if rank, _ := c.patched.Rank(past); rank != 4 || !ok || !known {
		t, _ := past.Type()
		return fmt.Errorf("input %q is %s: expected a cache [batch, heads, tokens, width] with fixed heads and "+
			"width", past.Name, t)
	}
	if n, fixed := c.facts.Dim(past, prove.CacheAxis); fixed {
		return fmt.Errorf("input %q always holds %d tokens: the number of tokens must not be fixed",
			past.Name, n)
	}
	s.heads, s.width[k] = heads, width
	s.past[k], s.present[k] = past, present
	return nil
}

// measure finds the inputs that determine the numbers of tokens.
func (c *cacheChange) measure() error {
	for i, s := range c.sites {
		for k := range s.past {
			for w := range infer.Worlds {
				past := c.facts.Size(s.past[k], w, prove.CacheAxis)
				added := c.facts.Size(s.present[k], w, prove.CacheAxis) - past
				if i == 0 && k == 0 {
					c.past[w], c.added[w] = past, added
				}
				if past < 1 || added < 1 || past != c.past[w] || added != c.added[w] {
					return fmt.Errorf("inputs %q and %q are not known to hold the same number of "+
						"tokens", c.sites[0].past[0].Name,
						s.past[k].Name)
				}
			}
		}
	}
	sum, ok := c.sum(), false
	if c.total, ok = c.source(sum); (!ok || c.total.input == nil) && !c.options.PastLength {
		return errors.New("no input, such as an attention mask, is known to be as long as the cache plus the new " +
			"tokens: add --past-length, or patch the export if this model is already patched, which does not show it")
	}
	if c.fresh, ok = c.source(c.added); !ok {
		return errors.New("no input is known to be as long as the new tokens")
	}
	return nil
}

// sum returns the number of all tokens in each world.
func (c *cacheChange) sum() (sum [infer.Worlds]int64) {
	for w := range sum {
		sum[w] = c.past[w] + c.added[w]
	}
	return sum
}

// source finds a size in the shapes of the inputs.
func (c *cacheChange) source(size [infer.Worlds]int64) (found sizeOf, ok bool) {
	if size[1] == size[0] && size[2] == size[0] {
		return sizeOf{number: size[0]}, true
	}
	list := c.sources(size)
	if len(list) == 0 {
		return sizeOf{}, false
	}
	return list[0], true
}

// sources lists the dimensions of the inputs that equal a size.
func (c *cacheChange) sources(size [infer.Worlds]int64) (list []sizeOf) {
	for _, v := range c.Model.Graph.Inputs {
		rank, known := c.facts.Rank(v)
		if !known || v.Const != nil {
			continue
		}
		for axis := range rank {
			same := true
			for w := range size {
				same = same && c.facts.Size(v, w, axis) == size[w]
			}
			if same {
				list = append(list, sizeOf{input: v, axis: axis})
			}
		}
	}
	return list
}

// checkReaders finds readers of the caches besides attention. Readers of a length get the old value; any others are
// refused.
func (c *cacheChange) checkReaders() error {
	buffers, attention := map[*onnx.Value]bool{}, map[*onnx.Node]bool{}
	for _, s := range c.sites {
		attention[s.node] = true
	}
	for _, s := range c.sites {
		if s.writer != nil {
			continue
		}
		for k := range s.past {
			buffers[s.past[k]], buffers[s.present[k]] = true, true
			for _, v := range []*onnx.Value{s.past[k], s.present[k]} {
				for _, use := range v.Uses() {
					switch n := use.Node; {
					case attention[n]:
					case !n.Is("Shape"):
						return fmt.Errorf("node %q (%s) also reads %q and would read unused rows of the "+
							"buffer", n.Label(), n.OpType, v.Name)
					default:
						c.read(n, prove.CacheAxis, v == s.present[k])
					}
				}
			}
		}
	}
	for _, v := range c.Model.Graph.Inputs {
		if join := c.joining(v); !buffers[v] && join != nil {
			return fmt.Errorf("%w, but all caches must be buffers", c.unfused(v, join))
		}
		if !buffers[v] && c.isCache(v) {
			return fmt.Errorf("input %q is not a cache of fused attention, but all caches must be (inspect --why "+
				"shows why its attention is not fused)", v.Name)
		}
	}
	if c.options.PastLength {
		if err := c.checkMasks(); err != nil {
			return err
		}
	}
	switch {
	case c.options.RowLengths:
		return c.checkRows()
	case c.counted != nil:
		return c.maskOfNew()
	}
	return nil
}

// read records a Shape if it returns a length.
func (c *cacheChange) read(shape *onnx.Node, axis int, total bool) {
	rank, _ := c.patched.Rank(shape.Inputs[0])
	from, to := reference.ShapeRange(shape.AttrInt("start", 0), shape.AttrInt("end", int64(rank)), int64(rank))
	if from <= int64(axis) && int64(axis) < to {
		r := &lengthReader{shape: shape, from: from, to: to, axis: int64(axis), total: total}
		c.readers = append(c.readers, r)
	}
}

// checkMasks checks the readers of the inputs that become as long as the buffers. Attention reads only up to the number
// of tokens.
func (c *cacheChange) checkMasks() error {
	c.masks = c.sources(c.sum())
	for _, mask := range c.masks {
		for _, use := range mask.input.Uses() {
			switch n := use.Node; {
			case n.Is("Shape"):
				c.read(n, mask.axis, true)
			case c.isKeyValid(use):
			case c.mayBeCounted(mask):
				c.counted = mask.input
			default:
				return c.readsMask(n, mask.input)
			}
		}
	}
	return nil
}

func (c *cacheChange) readsMask(n *onnx.Node, mask *onnx.Value) error {
	return fmt.Errorf("node %q (%s) reads %q, which must be as long as the buffers if past_length is an input",
		n.Label(), n.OpType, mask.Name)
}

// mayBeCounted reports whether the mask of the new tokens may be read from a mask or, if each sequence has its own
// length, positions may be its sums.
func (c *cacheChange) mayBeCounted(mask sizeOf) bool {
	rank, _ := c.facts.Rank(mask.input)
	return rank == 2 && mask.axis == 1 && c.facts.DataType(mask.input).IsInteger() &&
		(c.counted == nil || c.counted == mask.input)
}

// isKeyValid reports whether a use is only for the mask of valid keys of attention on a buffer.
func (c *cacheChange) isKeyValid(use onnx.Use) bool {
	if n := use.Node; n.Is("Cast") {
		v := n.Outputs[0]
		return !v.IsOutput() && !slices.ContainsFunc(v.Uses(), func(u onnx.Use) bool { return !c.isKeyValid(u) })
	}
	isSite := func(s *cacheSite) bool { return s.node == use.Node && s.op.Valid == use.Index }
	return slices.ContainsFunc(c.sites, isSite)
}

// isCache reports whether an input is as long as the caches.
func (c *cacheChange) isCache(v *onnx.Value) bool {
	rank, ok := c.facts.Rank(v)
	if !ok || rank < 3 || !c.facts.DataType(v).IsFloat() {
		return false
	}
	for axis := 1; axis < rank; axis++ {
		same := true
		for w := range c.past {
			same = same && c.facts.Size(v, w, axis) == c.past[w]
		}
		if same {
			return true
		}
	}
	return false
}
