package rewrite

import (
	"fmt"
	"maps"
	"slices"

	"github.com/mojo-patch/mojo-patch/fused"
	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/patterns"
)

// The blocks of a layer that are known by their sites.
const (
	BlockAttention = "attention"
	BlockMLP       = "mlp"
	BlockExperts   = "experts"
)

// blockOps are the fused ops that are the core of a block.
var blockOps = map[string]string{"Attention": BlockAttention, "LatentAttention": BlockAttention, "GLU": BlockMLP,
	"MoE": BlockExperts, "QMoE": BlockExperts}

// Block is attention, an MLP or the experts of a layer of the main graph.
type Block struct {
	Layer int
	Part  string

	cutter *Cutter
	nodes  []*onnx.Node
	site   *patterns.Match
}

// String is, for example, "layer 3 attention".
func (b Block) String() string { return fmt.Sprintf("layer %d %s", b.Layer, b.Part) }

// Cut cuts the block out.
func (b Block) Cut() (*Cut, error) {
	return b.cutter.cut(onnx.SetOf(slices.Values(b.nodes)), b.cutter.computing(b.site.Inputs, b.site.Outputs))
}

// Blocks finds the blocks around sites that a plan found, before any was replaced. A layer begins with its attention,
// or with an MLP or experts that no attention stands before. A block reaches from the value that what its site reads is
// computed from to where the result is added to something else: the projections are part of it, the norm before it and
// the residual sum are not.
func (c *Cutter) Blocks(sites []SiteReport) []Block {
	order := map[*onnx.Node]int{}
	for i, n := range c.model.Graph.Nodes {
		order[n] = i
	}
	var cores []*patterns.Match
	for _, s := range sites {
		if m := s.Match; m != nil && m.Domain == fused.Domain && blockOps[m.Op] != "" && m.Root.Graph == c.model.Graph {
			cores = append(cores, m)
		}
	}
	slices.SortStableFunc(cores, func(x, y *patterns.Match) int { return order[x.Root] - order[y.Root] })
	var blocks []Block
	shared := map[*onnx.Node]bool{} // nodes of experts' blocks: of a shared expert, too
	for _, m := range cores {
		b := Block{Part: blockOps[m.Op], cutter: c, nodes: c.block(m, order), site: m}
		for _, n := range b.nodes {
			shared[n] = shared[n] || b.Part == BlockExperts
		}
		blocks = append(blocks, b)
	}
	blocks = slices.DeleteFunc(blocks, func(b Block) bool { return b.Part == BlockMLP && shared[b.site.Root] })
	layer, fed := 0, false
	for i, b := range blocks {
		feeds := b.Part != BlockAttention
		if i > 0 && (!feeds || fed) {
			layer++
		}
		blocks[i].Layer, fed = layer, feeds
	}
	return blocks
}

// block returns the nodes of the block around a site: what leads from its source to it, and what is made of its result
// and of nothing else. With experts that is also what is made of the source alone: another expert may be added.
func (c *Cutter) block(m *patterns.Match, order map[*onnx.Node]int) []*onnx.Node {
	from := c.source(m, order)
	own := map[*onnx.Value]bool{} // what is made of the source alone
	take := map[*onnx.Node]bool{}
	if from != nil {
		take = c.between([]*onnx.Value{from}, m.Outputs)
		own[from] = blockOps[m.Op] == BlockExperts
	}
	for _, n := range m.Nodes {
		take[n] = true
	}
	made := map[*onnx.Value]bool{}
	results := slices.Clone(m.Outputs)
	for _, n := range c.model.Graph.Nodes {
		data := slices.DeleteFunc(n.Reads(), func(v *onnx.Value) bool { return !c.isData(v) && !made[v] })
		mine := slices.ContainsFunc(data, func(v *onnx.Value) bool { return made[v] }) && order[n] > order[m.Root] &&
			!slices.ContainsFunc(data, func(v *onnx.Value) bool { return !made[v] && !own[v] })
		alone := len(data) > 0 && !slices.ContainsFunc(data, func(v *onnx.Value) bool { return !own[v] })
		for _, v := range n.Outputs {
			made[v], own[v] = take[n] || mine, alone || own[v]
			if mine {
				results = append(results, v)
			}
		}
	}
	if from != nil {
		maps.Copy(take, c.between([]*onnx.Value{from}, results))
	}
	return slices.DeleteFunc(slices.Clone(c.model.Graph.Nodes), func(n *onnx.Node) bool { return !take[n] })
}

// source is the nearest value that most of what a site reads of the tokens is computed from (a past is not), before
// their projection; nil where there is none.
func (c *Cutter) source(m *patterns.Match, order map[*onnx.Node]int) *onnx.Value {
	shared := map[*onnx.Value]int{}
	for _, v := range m.Inputs {
		switch m.Roles[v] {
		case patterns.NoRole, patterns.Queries, patterns.Keys, patterns.Values, patterns.Tokens, patterns.IDs,
			patterns.Gates:
		default:
			continue
		}
		if !c.isData(v) || v.Producer == nil {
			continue
		}
		for from := range onnx.Upstream(func(v *onnx.Value) bool { return !c.isData(v) }, v) {
			shared[from]++
		}
	}
	var nearest *onnx.Value
	for v, n := range shared {
		if v.Producer == nil || v.Producer.Graph != c.model.Graph {
			continue
		}
		if nearest == nil || n > shared[nearest] ||
			n == shared[nearest] && order[v.Producer] > order[nearest.Producer] {
			nearest = v
		}
	}
	for nearest != nil && nearest.Producer != nil { // the projections may be one product
		n := nearest.Producer
		var data []*onnx.Value
		for _, v := range n.Reads() {
			if c.isData(v) {
				data = append(data, v)
			}
		}
		if len(data) != 1 || !n.IsProduct() && !n.MovesElements() && !n.Is("Add") {
			break
		}
		nearest = data[0]
	}
	return nearest
}
