package cut

import (
	"cmp"
	"maps"
	"slices"

	"github.com/mojo-patch/mojo-patch/fused"
	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/patterns"
)

// Block cuts out the block around a site found by a plan, before any site is replaced. The block starts at the value
// from which the site's operands are computed, and ends where the result is added to another value. It includes the
// projections, but neither the norm before them nor the residual sum.
func (c *Cutter) Block(site *patterns.Match) (*Part, error) {
	order := map[*onnx.Node]int{}
	for i, n := range c.model.Graph.Nodes {
		order[n] = i
	}
	return c.cut(onnx.SetOf(slices.Values(c.block(site, order))), c.computing(site.Inputs, site.Outputs))
}

// block returns the nodes of the block around a site: the path from its source, and the nodes that depend only on its
// result. With experts it also includes nodes that depend only on the source, because another expert may be added.
func (c *Cutter) block(m *patterns.Match, order map[*onnx.Node]int) []*onnx.Node {
	from := c.source(m, order)
	own := map[*onnx.Value]bool{} // values that depend only on the source
	take := map[*onnx.Node]bool{}
	if from != nil {
		take = c.between([]*onnx.Value{from}, m.Outputs)
		own[from] = m.Op == fused.MoEName || m.Op == fused.QMoEName
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

// source returns the nearest value, before the projection, from which most of the site's token operands (not a past)
// are computed, or nil if no value qualifies. Among outputs of one node it is the first.
func (c *Cutter) source(m *patterns.Match, order map[*onnx.Node]int) *onnx.Value {
	shared := map[*onnx.Value]int{}
	for _, v := range m.Inputs {
		switch m.Roles[v] {
		case fused.NoRole, fused.RoleQueries, fused.RoleKeys, fused.RoleValues, fused.RoleTokens, fused.RoleIDs,
			fused.RoleGates:
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
		if nearest == nil || cmp.Or(cmp.Compare(n, shared[nearest]),
			cmp.Compare(order[v.Producer], order[nearest.Producer]), cmp.Compare(nearest.Output, v.Output)) > 0 {
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
