package moe

import (
	"math"
	"slices"

	"github.com/mojo-patch/mojo-patch/onnx"
)

// decides returns a node of the region that branches on the results of experts' products, or nil. Comparisons with 0
// and with the limit of the unit are fine: both outcomes were tried.
func (p *expertProbe) decides() (found *onnx.Node) {
	p.reg.eachNode(func(n *onnx.Node) {
		d := p.View.DecidesBy(n, func(v *onnx.Value) bool { return p.isResult(v) })
		if d == nil || found != nil {
			return
		}
		if d.Open || slices.ContainsFunc(d.Bounds, func(b float64) bool {
			return b != 0 && math.Abs(b) != math.Abs(p.unit.limit)
		}) {
			found = n
		}
	})
	return found
}

// isResult reports whether a value is computed from a product of the region, after the choice.
func (p *expertProbe) isResult(v *onnx.Value) bool {
	made := p.reg.Routing.MadeOf()
	for w := range onnx.Upstream(func(w *onnx.Value) bool {
		return made[w] || w == p.reg.X() || w.Constant() != nil
	}, v) {
		if w.Producer.IsProduct() && !made[w] {
			return true
		}
	}
	return false
}
