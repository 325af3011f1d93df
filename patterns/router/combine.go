package router

import (
	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/patterns/match"
	"github.com/mojo-patch/mojo-patch/patterns/reason"
)

// greatestFloor is a bound below which no sum of k softmax values of the best experts comes.
const greatestFloor = 1e-5

// combine makes a router of how experts are chosen and of what becomes of the chosen scores.
func (p *reader) combine(c *chosen) (r *Router, why *reason.Reason) {
	choice, why := p.scores(p.r.TopK.Input(0))
	if choice == nil {
		return nil, why
	}
	if why := p.limit(choice); why != "" {
		return nil, noRouter(p.r.TopK, "%s", why)
	}
	from := choice // what the weights are taken from
	if c.of != nil {
		if from, why = p.scores(c.of); from == nil {
			return nil, why
		}
	}
	if from.bias != nil && !p.joinBias(from) {
		return nil, noRouter(p.r.TopK, "weights that hold the bias of the choice")
	}
	if choice.bias != nil && !p.g.Same(choice.logits, from.logits) {
		p.joinBias(choice) // the weights are made from the sum, too
	}
	r = &Router{Routing: p.r, Logits: choice.logits, Bias: choice.bias, groups: choice.groups, order: scoreFirst,
		score:       choice.kind,
		renormalize: c.renormalize, epsilon: c.epsilon, scale: c.scale, Sharpness: c.sharpness}
	if c.of != nil && (from.masked || !p.g.Same(from.logits, choice.logits)) {
		return nil, noRouter(p.r.TopK, "weights of other scores than those that are chosen among")
	}
	// By logarithms of a softmax the same experts are chosen as by the logits, and of chosen ones they have the
	// same softmax.
	applied, of, among := c.kind, from.kind, choice.kind
	if among == "logsoftmax" {
		among = ""
	}
	switch {
	case of == "logsoftmax" && applied == "exp":
		applied, of = "", "softmax"
	case of == "logsoftmax" && applied == "softmax":
		of = ""
	}
	switch {
	case of == "logsoftmax" || applied == "exp":
		return nil, noRouter(p.r.TopK, "weights that are logarithms or exponentials")
	case applied != "" && of != "":
		return nil, noRouter(p.r.TopK, "scores that are activated once more when they are chosen")
	case applied == "" && of == "":
		if n := match.Producer(from.logits); n != nil && from.logits != p.r.Logits {
			return nil, noRouter(n,
				"%s as what makes scores, which is neither softmax over the experts nor sigmoid nor sqrtsoftplus",
				n.OpType)
		}
		return nil, noRouter(p.r.TopK, "logits as weights, without softmax or sigmoid")
	case among != "" && among != of:
		return nil, noRouter(p.r.TopK, "weights of other scores than those that are chosen among")
	case r.Sharpness != 1 && (applied == "" || choice.bias != nil):
		return nil, noRouter(p.r.TopK, "weights of logits that are scaled after the choice")
	case applied != "":
		r.order, r.score = topKFirst, applied
	case among == "": // chosen among the logits, weights of the scores
		r.score = of
		switch {
		case of != "softmax":
			r.order = topKFirst
		case c.renormalize && c.epsilon <= greatestFloor: // softmax over all, divided by the sum of k: softmax over k
			r.order, r.renormalize, r.epsilon = topKFirst, false, 0
		case choice.bias != nil:
			return nil, noRouter(p.r.TopK, "logits chosen among with a bias, and weights of their softmax")
		}
	}
	if c.floor > 0 && (r.score != "softmax" || r.order != scoreFirst || r.Bias != nil || c.floor > greatestFloor) {
		return nil, noRouter(p.r.TopK, "a sum of weights that is bounded from below")
	}
	if r.groups.count > 1 && r.order != scoreFirst {
		return nil, noRouter(p.r.TopK, "groups of experts, and scores of the chosen ones alone")
	}
	if t := p.g.Facts.DataType(r.Logits); !routerTypes[t] || r.Bias != nil && !routerTypes[p.g.Facts.DataType(r.Bias)] {
		return nil, noRouter(p.r.TopK, "logits of type %s", t.String())
	}
	if why := p.shaped(r); why != "" {
		return nil, noRouter(p.r.TopK, "%s", why)
	}
	return r, nil
}

// routerTypes are the types of the op's inputs.
var routerTypes = map[onnx.DataType]bool{onnx.Float: true, onnx.Float16: true, onnx.BFloat16: true}

// shaped says what is wrong with the shapes: experts are chosen in the rows of the logits, or with all rows on one
// axis.
func (p *reader) shaped(r *Router) string {
	in := p.r.TopK.Input(0)
	n, ok1 := p.g.Facts.Rank(r.Logits)
	m, ok2 := p.g.Facts.Rank(in)
	ids, ok3 := p.g.Facts.Rank(r.IDs)
	switch {
	case !ok1 || !ok2 || !ok3 || n == 0:
		return "logits or ids of unknown rank"
	case n == m && !p.g.Facts.SameShape(r.Logits, in), n != m && m != 2:
		return "experts chosen in other rows than those of the logits"
	case ids != m && (ids != m-1 || !p.r.TopK.Is("ArgMax")):
		return "ids of another rank than the logits"
	}
	return ""
}
