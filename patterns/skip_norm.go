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

// findSkipNorms finds onnxruntime's op for a sum and its norm, whose fourth output is the sum.
func findSkipNorms(g *match.View, _ site.Others) (sites []*site.Site, misses []*match.Miss) {
	for _, n := range g.Graph.Nodes {
		if n.Domain != onnx.Microsoft {
			continue
		}
		switch n.OpType {
		case "SkipSimplifiedLayerNormalization":
			s, why := skipNorm(g, n)
			if s != nil {
				sites = append(sites, s)
			} else {
				misses = append(misses, &match.Miss{Pattern: "AddRMSNorm", Anchor: n, Reason: why})
			}
		case "SkipLayerNormalization", "EmbedLayerNormalization", "SkipGroupNorm", "GroupNorm":
			misses = append(misses, &match.Miss{Pattern: "LayerNorm", Anchor: n, Reason: reason.New(reason.Other, n,
				"%s is onnxruntime's own op, and there is no fused op for it: it stays", n.OpType)})
		}
	}
	return sites, misses
}

// skipNorm has the fused op compute the norm of X + skip + bias, and the sum where it is read.
func skipNorm(g *match.View, n *onnx.Node) (*site.Site, *reason.Reason) {
	x, skip, scale, bias := n.Input(0), n.Input(1), n.Input(2), n.Input(3)
	y, sum := n.OutputValue(skipNormed), n.OutputValue(skipSum)
	read := func(v *onnx.Value) bool { return v != nil && (v.IsOutput() || len(v.Uses()) > 0) }
	switch {
	case x == nil || skip == nil || scale == nil || y == nil:
		return nil, reason.New(reason.Other, n, "%s lacks an input or its first output", n.OpType)
	case read(n.OutputValue(skipMean)) || read(n.OutputValue(skipInverse)):
		return nil, reason.New(reason.Other, n, "the mean or the deviation of %s is read, which the op does not give",
			n.OpType)
	case !g.Facts.SameShape(x, skip):
		return nil, reason.New(reason.Other, n,
			"the inputs of %s are not known to have one shape: skip may be broadcast", n.OpType)
	}
	epsilon := 1e-12
	if a := n.Attr("epsilon"); a != nil {
		epsilon = float64(a.Float)
	}
	s := site.New(g, fused.AddRMSNormName, n)
	residual := s.Input(site.NoRole, "residual", skip)
	if bias != nil {
		residual = residual.Then("Add", "biased", []*site.Operand{s.Input(site.NoRole, "bias", bias)})
	}
	outputs := []string{"y", ""}
	if read(sum) {
		outputs[1] = "sum"
	}
	out := s.Compute(fused.AddRMSNorm{Axis: -1, Epsilon: float32(epsilon)}, outputs,
		s.Input(site.NoRole, "x", x), residual, s.Input(site.NoRole, "scale", scale))
	s.Output(y, out[0])
	if read(sum) {
		s.Output(sum, out[1])
	}
	s.Nodes = []*onnx.Node{n}
	return s, nil
}
