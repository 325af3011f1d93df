package pagedcache

import (
	"fmt"

	"github.com/mojo-patch/mojo-patch/fused"
	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/reference/infer"
	"github.com/mojo-patch/mojo-patch/rewrite/pass"
)

// mostProducts bounds the multiplications of a proof. A core computes about 1.4e9 per second, so a whole proof ends
// within 7 minutes. mostWhole bounds them if nothing requires the model's weights: larger models are proven by parts.
// Both are variables for the tests.
var mostProducts, mostWhole = int64(1) << 39, int64(1) << 32

// chooseProof returns the stand-ins for a proof by parts, or nil for a proof with the model's weights. Codes need the
// weights, since the report says how far they move the model's outputs, and so does a run that shares no proof. The
// error is that the proof would multiply more often than mostProducts. Each token of the trial multiplies each weight
// once, by itself and packed.
func chooseProof(run *pass.Run, facts *infer.Facts, codes onnx.DataType) (*standIns, error) {
	tokens := int64(0)
	for _, step := range stepsTried {
		for _, c := range step {
			tokens += 2 * int64(c.new)
		}
	}
	parts := newStandIns(facts)
	weights, remaining := int64(0), int64(0)
	run.Model.Graph.Walk(func(g *onnx.Graph) {
		for _, n := range g.Nodes {
			w := weightsOf(n, facts)
			weights, remaining = weights+w, remaining+parts.remaining(n, w)
		}
	})
	needed := codes != onnx.Undefined || run.Every
	switch limit := mostProducts / tokens; {
	case weights <= limit && (needed || weights <= mostWhole/tokens):
		return nil, nil
	case !needed && remaining <= limit:
		return parts, nil
	case !needed:
		weights = remaining
	}
	return nil, fmt.Errorf("the proof runs %d tokens through about %.3g weights, which is more than %.3g "+
		"multiplications: use --verify off to convert the model without any proof", tokens, float64(weights),
		float64(mostProducts))
}

// weightsOf returns about how many constants of a node each token multiplies. Tables are only read, and of experts only
// the chosen ones are used.
func weightsOf(n *onnx.Node, facts *infer.Facts) int64 {
	if n.Is("Gather") || n.Is("Slice") || n.Is("Where") || n.OpType == fused.EmbeddingName ||
		n.OpType == "GatherBlockQuantized" {
		return 0
	}
	sum, experts := int64(0), int64(0)
	for _, v := range n.Inputs {
		if v == nil || v.Constant() == nil || len(v.Constant().Dims) < 2 {
			continue
		}
		d := v.Constant().Dims
		sum += v.Constant().Len()
		if len(d) > 2 {
			experts = d[0]
		}
	}
	ids := map[string]int{fused.MoEName: fused.MoEIDs, fused.QMoEName: fused.QMoEIDs}
	if i, ok := ids[n.OpType]; ok && n.Domain == fused.Domain && experts > 0 {
		if chosen, known := facts.Dim(n.Input(i), -1); known && chosen < experts {
			return sum / experts * chosen
		}
	}
	return sum
}
