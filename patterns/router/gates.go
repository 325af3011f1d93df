package router

import (
	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/patterns/match"
	"github.com/mojo-patch/mojo-patch/patterns/reason"
)

// gated is chosen for the gates of all experts, weights of the chosen ones and zeros: the scores of the others are
// zeros, or minus infinities that an activation makes zeros.
func (p *reader) gated(v *onnx.Value) (c *chosen, why *reason.Reason) {
	g := p.g
	v = g.Resolve(v)
	n := match.Producer(v)
	if n == nil || !onnx.IsStandardDomain(n.Domain) {
		return nil, noRouter(n, "gates that do not come from the choice")
	}
	if n.Is("Cast") && !p.rounds(v) {
		return p.gated(n.Input(0))
	}
	if kind, x, ok := scoreOf(g, v); ok {
		c, fill, why := p.spread(x)
		switch {
		case c == nil:
			return nil, why
		case fill > farBelow:
			return nil, noRouter(n, "a %s of what is no longer the logits", kind)
		}
		return c.activated(kind, n)
	}
	if c, fill, _ := p.spread(v); c != nil && fill == 0 {
		return c, nil
	}
	return p.scaled(n, "gates", p.gated)
}

// spread reads scores of the chosen experts that stand in a tensor for all, among fill: scattered there, or what a
// mask left.
func (p *reader) spread(v *onnx.Value) (c *chosen, fill float64, why *reason.Reason) {
	g := p.g
	v = g.SkipCasts(v)
	n := match.Producer(v)
	switch {
	case n.Is("ScatterElements"):
		fill, ok := filledWith(g, n.Input(0))
		ids := g.SkipCasts(n.Input(1))
		if !ok || ids != g.Resolve(p.r.IDs) && !g.Same(ids, p.r.IDs) {
			return nil, 0, noRouter(n, "gates scattered into another tensor, or to other places")
		}
		c, why := p.chosen(n.Input(2))
		return c, fill, why
	case n.Is("Where") && p.r.ByID[n.Input(0)]:
		for i, other := range []*onnx.Value{n.Input(1), n.Input(2)} {
			if x, ok := filledWith(g, other); ok {
				return &chosen{of: n.Input(2 - i), scale: 1, sharpness: 1}, x, nil
			}
		}
	case n.Is("Mul") && len(n.Inputs) == 2:
		for i, m := range n.Inputs {
			if p.r.ByID[m] && !p.r.ByID[n.Inputs[1-i]] {
				return &chosen{of: n.Inputs[1-i], scale: 1, sharpness: 1}, 0, nil
			}
		}
	}
	return nil, 0, noRouter(n, "gates that are no scores under a mask")
}
