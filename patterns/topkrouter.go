package patterns

import (
	"slices"

	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/patterns/reason"
	"github.com/mojo-patch/mojo-patch/patterns/router"
)

// routerForm finds the routers of mixtures of experts. What makes their scores, whether these or the logits are
// chosen among, what limits the choice to groups and what becomes of the chosen scores is fitted to what the graph
// computes; the check compares the whole.
var routerForm = &goForm{name: "TopKRouter", op: "TopKRouter", find: findRouters}

func findRouters(f *finder, d *goForm) []*Match {
	var list []*Match
	for _, r := range router.All(f.view) {
		if slices.ContainsFunc(r.Cut(), func(v *onnx.Value) bool { return v != nil && f.written[v] }) {
			continue
		}
		found, why := router.Read(f.view, r)
		if found == nil {
			if why.Code != reason.Limit {
				f.note(d.name, r.TopK, why)
			}
			continue
		}
		list = append(list, f.replaceRouter(d, found))
	}
	for _, why := range router.Thresholds(f.view) {
		f.note(d.name, why.Node, why)
	}
	return list
}

// replaceRouter builds the match that has the op compute the ids and r.Gives.
func (f *finder) replaceRouter(d *goForm, r *router.Router) *Match {
	g, v := f.view, r.Gives
	b := f.newReplacement(d, r.TopK)
	logits := b.input(Logits, "logits", r.Logits)
	rank, _ := g.Facts.Rank(r.Logits)
	if n, _ := g.Facts.Rank(r.TopK.Input(0)); n != rank { // chosen by rows of all tokens
		logits = b.node("Reshape", "logits_rows", []*onnx.Value{logits, b.integers("rows", -1, r.Experts)})
		rank = 2
	}
	if r.Sharpness != 1 {
		if g.Facts.DataType(r.Logits) != onnx.Float {
			logits = b.node("Cast", "logits_32", []*onnx.Value{logits}, onnx.IntAttr("to", int64(onnx.Float)))
		}
		factor := b.constant("sharpness", onnx.NewFloat32s("", nil, []float32{float32(r.Sharpness)}))
		logits = b.node("Mul", "logits_scaled", []*onnx.Value{logits, factor})
	}
	inputs := []*onnx.Value{logits}
	if r.Bias != nil {
		bias := b.input(Correction, "correction_bias", r.Bias)
		if n, ok := g.Facts.Rank(r.Bias); ok && n != 1 {
			bias = b.node("Reshape", "correction_bias_row", []*onnx.Value{bias, b.integers("row", -1)})
		}
		inputs = append(inputs, bias)
	}
	out := b.fused(inputs, []string{"weights", "ids"}, r.Attributes()...)
	weights, ids := out[0], out[1]
	if v == r.Dense {
		zeros := b.node("ConstantOfShape", "no_gates",
			[]*onnx.Value{b.node("Shape", "gates_shape", []*onnx.Value{logits})})
		weights = b.node("ScatterElements", "gates", []*onnx.Value{zeros, ids, weights}, onnx.IntAttr("axis", -1))
	}
	if n, ok := g.Facts.Rank(r.IDs); ok && n == rank-1 { // an ArgMax without the axis
		last := b.integers("last", -1)
		ids = b.node("Squeeze", "id", []*onnx.Value{ids, last})
		if m, ok := g.Facts.Rank(v); ok && m == n {
			weights = b.node("Squeeze", "weight", []*onnx.Value{weights, last})
		}
	}
	if t := g.Facts.DataType(v); t != onnx.Float {
		weights = b.node("Cast", "weights_cast", []*onnx.Value{weights}, onnx.IntAttr("to", int64(t)))
	}
	if t := g.Facts.DataType(r.IDs); t != onnx.Int64 { // of a sort of pairs
		ids = b.node("Cast", "ids_cast", []*onnx.Value{ids}, onnx.IntAttr("to", int64(t)))
	}
	b.output(v, weights)
	b.output(r.IDs, ids)
	return b.match(r.Nodes(g))
}
