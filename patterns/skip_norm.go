package patterns

import (
	"github.com/mojo-patch/mojo-patch/fused"
	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/patterns/match"
	"github.com/mojo-patch/mojo-patch/patterns/reason"
	"github.com/mojo-patch/mojo-patch/patterns/site"
)

// The outputs of SkipSimplifiedLayerNormalization and of SkipLayerNormalization.
const (
	skipNormed = iota
	skipMean
	skipInverse
	skipSum
)

// findSkipNorms finds onnxruntime's ops for a sum and its norm, whose fourth output is the sum.
func findSkipNorms(g *match.View, _ site.Others) (sites []*site.Site, misses []*match.Miss) {
	for _, n := range g.Graph.Nodes {
		if n.Domain != onnx.Microsoft {
			continue
		}
		switch n.OpType {
		case "SkipSimplifiedLayerNormalization", "SkipLayerNormalization":
			op, of := fused.AddRMSNormName, skipRMSNorm
			if n.OpType == "SkipLayerNormalization" {
				op, of = fused.AddLayerNormName, skipLayerNorm
			}
			s, why := skipNorm(g, n, op, of)
			if s != nil {
				sites = append(sites, s)
			} else {
				misses = append(misses, &match.Miss{Pattern: op, Anchor: n, Reason: why})
			}
		case "EmbedLayerNormalization", "SkipGroupNorm", "GroupNorm":
			misses = append(misses, &match.Miss{Pattern: "LayerNorm", Anchor: n, Reason: reason.New(reason.Other, n,
				"%s stays: it is onnxruntime's own op, and no fused op replaces it", n.OpType)})
		}
	}
	return sites, misses
}

// skipNorm returns the site at which the fused op computes the norm of X + skip + bias, and the sum if it is read. of
// returns the attributes and inputs of the fused op.
func skipNorm(g *match.View, n *onnx.Node, op string,
	of func(s *site.Site, n *onnx.Node, epsilon float32) (fused.Typed, []*site.Operand)) (*site.Site, *reason.Reason) {
	x, skip, y, sum := n.Input(0), n.Input(1), n.OutputValue(skipNormed), n.OutputValue(skipSum)
	read := func(v *onnx.Value) bool { return v != nil && (v.IsOutput() || len(v.Uses()) > 0) }
	switch {
	case x == nil || skip == nil || n.Input(2) == nil || y == nil:
		return nil, reason.New(reason.Other, n, "%s lacks an input or its first output", n.OpType)
	case op == fused.AddLayerNormName && n.Input(3) == nil:
		return nil, reason.New(reason.Other, n, "%s lacks the bias of the norm, beta", n.OpType)
	case read(n.OutputValue(skipMean)) || read(n.OutputValue(skipInverse)):
		return nil, reason.New(reason.Other, n, "the mean or the deviation of %s is read, but not returned by the op",
			n.OpType)
	case !g.Facts.SameShape(x, skip):
		return nil, reason.New(reason.Other, n,
			"the inputs of %s are not known to have the same shape: skip may be broadcast", n.OpType)
	}
	epsilon := float32(1e-12)
	if a := n.Attr("epsilon"); a != nil {
		epsilon = a.Float
	}
	s := site.New(g, op, n)
	attributes, inputs := of(s, n, epsilon)
	outputs := []string{"y", ""}
	if read(sum) {
		outputs[1] = "sum"
	}
	out := s.Compute(attributes, outputs, inputs...)
	s.Output(y, out[0])
	if read(sum) {
		s.Output(sum, out[1])
	}
	s.Nodes = []*onnx.Node{n}
	return s, nil
}

// skipRMSNorm adds the bias, if there is one, to the residual.
func skipRMSNorm(s *site.Site, n *onnx.Node, epsilon float32) (fused.Typed, []*site.Operand) {
	residual := s.Input(fused.NoRole, "residual", n.Input(1))
	if bias := n.Input(3); bias != nil {
		residual = residual.Then("Add", "biased", []*site.Operand{s.Input(fused.NoRole, "bias", bias)})
	}
	return fused.AddRMSNorm{Axis: -1, Epsilon: epsilon}, []*site.Operand{
		s.Input(fused.NoRole, "x", n.Input(0)), residual, s.Input(fused.NoRole, "scale", n.Input(2))}
}

// skipLayerNorm passes the inputs in the order of the fused op.
func skipLayerNorm(s *site.Site, n *onnx.Node, epsilon float32) (fused.Typed, []*site.Operand) {
	var inputs []*site.Operand
	for i, name := range []string{"x", "residual", "scale", "bias", "x_bias"} {
		if v := n.Input(i); v != nil {
			inputs = append(inputs, s.Input(fused.NoRole, name, v))
		}
	}
	return fused.AddLayerNorm{Epsilon: epsilon}, inputs
}
