package router

import (
	"slices"
	"strings"

	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/patterns/match"
	"github.com/mojo-patch/mojo-patch/patterns/reason"
)

// chosen is what becomes of the scores of the chosen experts on the way to their weights.
type chosen struct {
	// of is what the weights are taken from: nil for the values that the choice yields, else scores of all experts.
	of          *onnx.Value
	kind        string // "softmax", "sigmoid" or "exp", if that is applied to the chosen ones
	renormalize bool
	epsilon     float64
	floor       float64 // below which the sum does not go
	scale       float64
	sharpness   float64 // factor of the logits before kind
}

// read reads v as what back follows: weights (chosen), or gates (gated).
func (p *reader) read(v *onnx.Value, back func(*onnx.Value) (*chosen, *reason.Reason)) (r *Router, why *reason.Reason) {
	p.out = p.g.Facts.DataType(v)
	c, why := back(v)
	if c == nil {
		return nil, why
	}
	return p.combine(c)
}

// chosen goes back from weights to the values of the choice, or to a gathering of scores.
func (p *reader) chosen(v *onnx.Value) (c *chosen, why *reason.Reason) {
	g := p.g
	v = g.Resolve(v)
	n := match.Producer(v)
	if n == nil || !onnx.IsStandardDomain(n.Domain) {
		return nil, noRouter(n, "weights that do not come from the choice")
	}
	if n == p.r.TopK && n.Is("TopK") && v.Output == 0 {
		return &chosen{scale: 1, sharpness: 1}, nil
	}
	if takesLeading(g, n) && g.Resolve(n.Input(0)) == p.r.TopK.OutputValue(0) && g.Facts.SameShape(v, p.r.IDs) {
		return p.chosen(n.Input(0))
	}
	if of := gatheredBy(g, n, p.r); of != nil && (!match.IsPick(n) || picksByID(g, n, p.r)) {
		return &chosen{of: of, scale: 1, sharpness: 1}, nil
	}
	if n.Is("Cast") {
		if p.rounds(v) {
			return nil, noRouter(n, "weights that are rounded on the way")
		}
		return p.chosen(n.Input(0))
	}
	if kind, x, ok := activationOf(g, v); ok {
		if c, why = p.chosen(x); c == nil {
			return nil, why
		}
		return c.activated(kind, n)
	}
	return p.scaled(n, "weights", p.chosen)
}

// activated has chosen scores go through what makes scores of logits.
func (c *chosen) activated(kind string, n *onnx.Node) (*chosen, *reason.Reason) {
	if c.kind != "" || c.renormalize || c.scale <= 0 {
		return nil, noRouter(n, "a %s of what is no longer the logits", kind)
	}
	c.kind, c.sharpness, c.scale = kind, c.scale, 1
	return c, nil
}

// scaled goes back over a factor, or a division by the sum.
func (p *reader) scaled(n *onnx.Node, what string,
	back func(*onnx.Value) (*chosen, *reason.Reason)) (c *chosen, why *reason.Reason) {
	x, factor, total, inverse := factors(p.g, n)
	if x == nil {
		return nil, noRouter(n, "%s on the way to the %s", n.OpType, what)
	}
	if c, why = back(x); c == nil {
		return nil, why
	}
	if total == nil {
		c.scale *= factor
		return c, nil
	}
	epsilon, floor, ok := totalOf(p.g, total, x)
	switch {
	case !ok:
		return nil, noRouter(n, "%s divided by something else than their sum", what)
	case c.renormalize:
		return nil, noRouter(n, "%s divided by their sum twice", what)
	case c.scale <= 0:
		return nil, noRouter(n, "%s of no positive factor divided by their sum", what)
	}
	c.renormalize, c.epsilon, c.floor, c.scale = true, epsilon/c.scale, floor/c.scale, inverse
	return c, nil
}

// rounds reports whether a cast makes numbers of a narrower type than the result has.
func (p *reader) rounds(cast *onnx.Value) bool {
	return match.Widens(p.g.Facts.DataType(cast), p.out)
}

// factors reads a product or quotient: x by a number, or x divided by total and multiplied with inverse.
func factors(g *match.View, n *onnx.Node) (x *onnx.Value, factor float64, total *onnx.Value, inverse float64) {
	if len(n.Inputs) != 2 {
		return nil, 0, nil, 0
	}
	a, b := n.Inputs[0], n.Inputs[1]
	switch n.OpType {
	case "Div":
		if c, ok := g.Scale(b); ok {
			return a, 1 / c, nil, 0
		}
		return a, 0, b, 1
	case "Mul":
		for range 2 {
			if c, _, ok := g.Scalar(b); ok {
				return a, c, nil, 0
			}
			m := match.Producer(g.SkipCasts(b))
			if m.Is("Reciprocal") {
				return a, 0, m.Input(0), 1
			}
			if m.Is("Div") {
				if c, ok := g.Scale(m.Input(0)); ok {
					return a, 0, m.Input(1), c
				}
			}
			a, b = b, a
		}
	}
	return nil, 0, nil, 0
}

// totalOf reports whether v is the sum of w over the last axis, which is kept or brought back; epsilon is what is
// added to it, floor what it is at least.
func totalOf(g *match.View, v, w *onnx.Value) (epsilon, floor float64, ok bool) {
	for range match.MaxDetour {
		v = g.SkipCasts(v)
		n := match.Producer(v)
		if n == nil || !onnx.IsStandardDomain(n.Domain) {
			return 0, 0, false
		}
		switch n.OpType {
		case "ReduceSum", "ReduceL1":
			return epsilon, floor, g.ReducesLastAxis(n) && g.Same(g.SkipCasts(n.Input(0)), g.SkipCasts(w))
		case "Unsqueeze", "Reshape", "Expand":
			v = n.Input(0)
		case "Add":
			x, c := numberAnd(g, n)
			if x == nil || c < 0 || floor > 0 {
				return 0, 0, false
			}
			epsilon, v = epsilon+c, x
		case "Max", "Clip":
			x, c := numberAnd(g, n)
			if x == nil || n.Input(2) != nil || epsilon > 0 {
				return 0, 0, false
			}
			floor, v = max(floor, c), x
		default:
			return 0, 0, false
		}
	}
	return 0, 0, false
}

// numberAnd returns the operands of a node of two, of which one is a number; x is nil for other nodes.
func numberAnd(g *match.View, n *onnx.Node) (x *onnx.Value, c float64) {
	for i := range n.Inputs {
		if c, _, ok := g.Scalar(n.Inputs[i]); ok && len(n.Inputs) >= 2 && i < 2 && n.Inputs[1-i] != nil {
			return n.Inputs[1-i], c
		}
	}
	return nil, 0
}

// picksByID reports whether the node gathers along the last axis by the indices of the choice.
func picksByID(g *match.View, n *onnx.Node, r *Routing) bool {
	rank, ok := g.Facts.Rank(n.Input(0))
	axis := n.AttrInt("axis", 0)
	ids := g.SkipCasts(n.Input(1))
	switch {
	case !ok:
		return false
	case n.Is("GatherND"): // rows are batches, and each index stands alone
		if u := match.Producer(ids); n.AttrInt("batch_dims", 0) == int64(rank)-1 && u != nil &&
			match.OpKind(u) == "Reshape" {
			ids = g.SkipCasts(u.Input(0))
			break
		}
		return false
	case !n.Is("GatherElements") || axis != -1 && axis != int64(rank)-1:
		return false
	}
	// with the axis that it leaves out
	if n := match.Producer(ids); r.TopK.Is("ArgMax") && n != nil && (match.OpKind(n) == "Reshape") &&
		oneEach(g, ids, r) {
		ids = g.SkipCasts(n.Input(0))
	}
	return ids == g.Resolve(r.IDs) || g.Same(ids, r.IDs)
}

// activationOf is scoreOf for what is applied to chosen scores: an exponential of logarithms as well.
func activationOf(g *match.View, v *onnx.Value) (kind string, x *onnx.Value, ok bool) {
	if kind, x, ok := scoreOf(g, v); ok && kind != "logsoftmax" {
		return kind, x, true
	}
	if n := match.Producer(g.Resolve(v)); n.Is("Exp") {
		return "exp", n.Input(0), true
	}
	return "", nil, false
}

// earlier returns the value before v in the shape of the weights, if v is made from it and from what is known for
// each expert by itself: the step to v may then stay behind the op.
func (p *reader) earlier(v *onnx.Value) *onnx.Value {
	n := match.Producer(v)
	if n == nil || n == p.r.TopK || !slices.Contains(p.r.chosen, v) {
		return nil
	}
	var prev *onnx.Value
	for _, in := range p.behind(n) {
		if in == nil {
			return nil
		}
		if oneEach(p.g, in, p.r) && (prev == nil || p.g.Position(in.Producer) < p.g.Position(prev.Producer)) {
			prev = in
		}
	}
	return prev
}

// behind lists the values for the chosen experts that a node reads, directly or through sums of these; it holds a
// nil where the node reads scores of other experts as well.
func (p *reader) behind(n *onnx.Node) []*onnx.Value {
	var list []*onnx.Value
	for _, in := range n.Inputs {
		switch {
		case in == nil || !p.r.cone[in]:
		case !slices.Contains(p.r.chosen, in):
			if p.g.Facts.DataType(in).IsFloat() && !p.byID(in) {
				list = append(list, nil)
			}
		case oneEach(p.g, in, p.r):
			list = append(list, in)
		default:
			list = append(list, p.behind(in.Producer)...)
		}
	}
	return list
}

// byID reports whether v is a constant's elements picked by the choice.
func (p *reader) byID(v *onnx.Value) bool {
	n := match.Producer(p.g.SkipCasts(v))
	for n != nil && (match.OpKind(n) == "Reshape" || strings.HasSuffix(n.OpType, "queeze")) {
		n = match.Producer(p.g.SkipCasts(n.Input(0)))
	}
	return n != nil && match.IsPick(n) && p.g.FromConstant(n.Input(0))
}
