package pagedcache

import (
	"fmt"

	"github.com/mojo-patch/mojo-patch/fused"
	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/reference/infer"
)

// mostProducts bounds the multiplications of the proof. A core computes about 1.4e9 per second, so the proof ends
// within 7 minutes. It takes models of up to 9.8e9 weights that each token uses. It is a variable for the tests.
var mostProducts = int64(1) << 39

// checkWork returns an error if the proof would multiply more often than mostProducts. Each token of the trial
// multiplies each weight once, by itself and packed.
func checkWork(m *onnx.Model, facts *infer.Facts) error {
	tokens := int64(0)
	for _, step := range stepsTried {
		for _, c := range step {
			tokens += 2 * int64(c.new)
		}
	}
	weights := int64(0)
	m.Graph.Walk(func(g *onnx.Graph) {
		for _, n := range g.Nodes {
			weights += weightsOf(n, facts)
		}
	})
	if weights > mostProducts/tokens {
		return fmt.Errorf("the proof runs %d tokens through about %.3g weights, which is more than %.3g "+
			"multiplications: use --verify off to convert the model without any proof", tokens, float64(weights),
			float64(mostProducts))
	}
	return nil
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
