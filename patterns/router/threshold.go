package router

import (
	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/patterns/match"
	"github.com/mojo-patch/mojo-patch/patterns/reason"
)

// Thresholds returns the reasons why comparisons that choose experts are not routers: they choose any number of
// experts.
func Thresholds(g *match.View) (list []*reason.Reason) {
	All(g)
	for _, n := range match.Memo[knownRoutings](g).thresholds {
		list = append(list, noRouter(n, "experts chosen by a threshold: all with scores as good as "+
			"the last one, which may be more than the top k"))
	}
	return list
}

// threshold returns the node that compares the scores of all experts with a chosen score, if its result leaves the
// cone: it is read by the experts. Sampling a text's next word from the best ones does not.
func threshold(g *match.View, r *Routing) *onnx.Node {
	if !r.TopK.Is("TopK") {
		return nil
	}
	r.cone = coneOf(g, r.Logits)
	for v := range r.forward(nil, r.TopK.OutputValue(0)) {
		for _, u := range v.Uses() {
			switch n := u.Node; n.OpType {
			case "Greater", "GreaterOrEqual", "Less", "LessOrEqual":
				if hasExperts(g, n.Input(1-u.Index), r) && leavesCone(n.OutputValue(0), r, nil) {
					return n
				}
			}
		}
	}
	return nil
}
