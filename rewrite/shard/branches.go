package shard

import (
	"fmt"
	"slices"

	"github.com/mojo-patch/mojo-patch/onnx"
)

// results returns the values of the main graph that an output of the block's graph becomes.
func (b *block) results(v *onnx.Value) (list []*onnx.Value) {
	if b.owner == nil {
		return []*onnx.Value{v}
	}
	for i, w := range b.graph.Outputs {
		if y := b.owner.OutputValue(i); w == v && y != nil {
			list = append(list, y)
		}
	}
	return list
}

// others returns the values that other branches pass on instead of an output of the block's graph.
func (b *block) others(v *onnx.Value) (list []*onnx.Value) {
	for _, g := range b.owner.Subgraphs() {
		for i, w := range b.graph.Outputs {
			if w == v && g != b.graph {
				list = append(list, g.Outputs[i])
			}
		}
	}
	return list
}

// agree keeps only blocks that divide caches as all branches of a node do: a decoder with a branch for prompts and one
// for steps has the same caches in both. An output of one branch stays in parts if it is the content of a cache in
// another one.
func (f *finder) agree() {
	for _, b := range f.blocks {
		for v, l := range b.held {
			if b.owner == nil || !b.isPresent(v) {
				continue
			}
			for _, w := range b.others(v) {
				for _, c := range f.blocks {
					if m, held := c.held[w]; held && m.equal(l) {
						c.kept[w] = true
					}
				}
			}
		}
	}
	f.blocks = agreed(f.blocks, f.reasons)
}

// agreed returns the blocks that agree with each other, and adds reasons for the weights of others.
func agreed(blocks []*block, reasons map[*onnx.Value]error) []*block {
	blocks = slices.Clone(blocks)
	for i := 0; i < len(blocks); i++ {
		if err := blocks[i].disagrees(blocks); err != nil {
			for u := range blocks[i].weights {
				reasons[u.Node.Inputs[u.Index]] = err
			}
			blocks = slices.Delete(blocks, i, i+1)
			i = -1 // others may have agreed with this one
		}
	}
	return blocks
}

// disagrees errs unless all readers of a cache that is divided have parts of it, and all branches pass on parts of its
// new content.
func (b *block) disagrees(blocks []*block) error {
	divide := func(v *onnx.Value, l Layout, is func(c *block) bool) bool {
		return slices.ContainsFunc(blocks, func(c *block) bool {
			m, held := c.held[v]
			return held && m.equal(l) && is(c)
		})
	}
	for v, l := range b.held {
		if v.IsInput {
			for _, u := range v.Uses() {
				if !divide(v, l, func(c *block) bool { return c.nodes[u.Node] }) {
					return fmt.Errorf("%q is divided, but node %q of another branch needs it whole", v.Name,
						u.Node.Label())
				}
			}
		}
		if b.owner == nil {
			continue
		}
		if v.IsInput && v.IsOutput() {
			return fmt.Errorf("%q is divided, and a branch passes it on", v.Name)
		}
		if !b.isPresent(v) {
			continue
		}
		for _, w := range b.others(v) {
			if !divide(w, l, func(c *block) bool { return c.isPresent(w) }) {
				return fmt.Errorf("%q is divided, but %q of another branch is not", v.Name, w.Name)
			}
		}
		for _, y := range b.results(v) {
			if len(y.Uses()) > 0 {
				return fmt.Errorf("%q is divided, but node %q needs it whole", y.Name, y.Uses()[0].Node.Label())
			}
		}
	}
	return b.settled()
}
