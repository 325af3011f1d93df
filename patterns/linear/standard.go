// Package linear finds linear attention and the short convolutions before it.
package linear

import (
	"math"

	"github.com/mojo-patch/mojo-patch/fused"
	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/patterns/match"
	"github.com/mojo-patch/mojo-patch/patterns/reason"
	"github.com/mojo-patch/mojo-patch/patterns/site"
	"github.com/mojo-patch/mojo-patch/reference"
)

// Find finds the ops of the standard (opset 27) and of onnxruntime for linear attention and causal convolutions.
func Find(g *match.View, others site.Others) (sites []*site.Site, misses []*match.Miss) {
	for _, n := range g.Graph.Nodes {
		if !onnx.IsStandardDomain(n.Domain) && n.Domain != onnx.Microsoft || others.Have(n) {
			continue
		}
		read, op := readLinearAttention, fused.LinearAttentionName
		switch n.OpType {
		case "LinearAttention":
		case "GatedDeltaNet":
			read = readGatedDeltaNet
		case "CausalConvWithState":
			read, op = readCausalConv, fused.CausalConvName
		default:
			continue
		}
		s, why := read(g, n)
		if s == nil {
			misses = append(misses, &match.Miss{Pattern: op, Anchor: n, Reason: why})
			continue
		}
		s.Nodes = []*onnx.Node{n}
		sites = append(sites, s)
	}
	return sites, misses
}

// readLinearAttention makes the fused op compute a LinearAttention node.
func readLinearAttention(g *match.View, n *onnx.Node) (*site.Site, *reason.Reason) {
	queries, heads := n.AttrInt("q_num_heads", 0), n.AttrInt("kv_num_heads", 0)
	width, known := g.Facts.Dim(n.Input(0), 2)
	keys, also := g.Facts.Dim(n.Input(1), 2)
	switch {
	case n.OutputValue(0) == nil || n.Input(2) == nil:
		return nil, reason.New(reason.Other, n, "LinearAttention lacks an input or its output")
	case n.AttrInt("state_window", 0) != 0:
		return nil, reason.New(reason.Other, n, "LinearAttention keeps the states of several tokens (state_window)")
	case queries < 1 || heads < 1 || !known || !also || width%queries != 0 || width == 0 || keys%(width/queries) != 0:
		return nil, reason.New(reason.Other, n, "the widths of the heads of LinearAttention are not known")
	}
	key := width / queries
	s := site.New(g, fused.LinearAttentionName, n)
	inputs := make([]*site.Operand, fused.LinearAttentionBeta+1)
	for i, p := range fused.Lookup(s.Op).Inputs {
		v := n.Input(i) // in the same order
		if v == nil {
			continue
		}
		if inputs[i] = s.Input(fused.NoRole, p.Name, v); p.Type == onnx.Float.String() {
			inputs[i] = inputs[i].Cast(onnx.Float)
		}
	}
	attributes := fused.LinearAttention{QHeads: queries, KHeads: keys / key, VHeads: heads, Scale: scaleOf(n, key)}
	outputs := computed(s, n, attributes, inputs)
	s.Output(n.OutputValue(0), outputs[0])
	if outputs[1] != nil {
		state := g.Facts.DataType(n.Input(fused.LinearAttentionPast))
		if n.Input(fused.LinearAttentionPast) == nil {
			state = g.Facts.DataType(n.Input(0))
		}
		outputs[1].Type = onnx.Float
		s.Output(n.OutputValue(1), outputs[1].Cast(state))
	}
	return s, nil
}

// scaleOf returns the scale of a node whose queries have heads of this width.
func scaleOf(n *onnx.Node, width int64) float32 {
	if scale := n.AttrFloat("scale", 0); scale != 0 {
		return scale
	}
	return float32(1 / math.Sqrt(float64(width)))
}

// readCausalConv makes the fused op compute a CausalConvWithState node.
func readCausalConv(g *match.View, n *onnx.Node) (*site.Site, *reason.Reason) {
	if n.OutputValue(0) == nil || n.Input(1) == nil {
		return nil, reason.New(reason.Other, n, "CausalConvWithState lacks an input or its output")
	}
	if n.Domain == onnx.Microsoft {
		if name, v := reference.ExtendedCausalConv(n.AttrInt); name != "" {
			return nil, reason.New(reason.Other, n,
				"CausalConvWithState has %s=%d, which the fused op does not support", name, v)
		}
	}
	attributes := fused.CausalConv{Activation: "none"}
	if a := n.Attr("activation"); a != nil && a.String != "none" {
		attributes.Activation = "silu" // also called swish
	}
	s := site.New(g, fused.CausalConvName, n)
	inputs := make([]*site.Operand, fused.CausalConvPast+1)
	for i, p := range fused.Lookup(s.Op).Inputs {
		if v := n.Input(i); v != nil {
			inputs[i] = s.Input(fused.NoRole, p.Name, v)
		}
	}
	outputs := computed(s, n, attributes, inputs)
	s.Output(n.OutputValue(0), outputs[0])
	if outputs[1] != nil {
		s.Output(n.OutputValue(1), outputs[1])
	}
	return s, nil
}

// computed makes the op of a site compute what the outputs of a node hold; the second one is nil if it is not read.
func computed(s *site.Site, n *onnx.Node, op fused.Typed, inputs []*site.Operand) []*site.Operand {
	names := fused.Lookup(op.OpType()).OutputNames()
	if v := n.OutputValue(1); v == nil || !v.IsOutput() && len(v.Uses()) == 0 {
		names[1] = ""
	}
	return s.Compute(op, names, inputs...)
}
