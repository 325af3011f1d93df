package router

import (
	"slices"

	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/patterns/match"
	"github.com/mojo-patch/mojo-patch/patterns/probe"
)

// reader fits the op to a routing.
type reader struct {
	lab *probe.Lab
	g   *match.View
	r   *Routing
}

func newReader(g *match.View, r *Routing) *reader {
	return &reader{probe.NewLab(g, MaxRouter, r.budget), g, r}
}

// maxBoundaries bounds the values that are tried as the op's logits.
const maxBoundaries = 16

// read fits the op to v, weights or gates. Unknown steps between the product and the logits, such as a soft cap, stay
// before the op.
func (p *reader) read(v *onnx.Value) (found *Router, most *miss) {
	if n := p.rounds(v); n != nil {
		return nil, &miss{rounded, noRouter(n, "weights that a node rounds")}
	}
	list := boundaries(p.g, p.r, p.r.IDs, v)
	for _, logits := range list[:min(len(list), maxBoundaries)] {
		if why := p.shaped(logits); why != "" {
			most = most.or(&miss{unread, noRouter(p.r.TopK, "%s", why)})
			continue
		}
		h, m := p.between(logits, v)
		switch {
		case h == nil:
			most = most.or(m)
		case found == nil || h.Sharpness == 1: // rather no factor than one
			found = h
		}
		if found != nil && found.Sharpness == 1 {
			break
		}
	}
	if found == nil {
		return nil, most.or(&miss{unread, noRouter(p.r.TopK, "scores of another shape than the logits")})
	}
	return found, nil
}

// maxStrays bounds the values that stray tries.
const maxStrays = 4

// stray returns the node on the path to v that changes the last weights that the op can compute, or nil.
func (p *reader) stray(v *onnx.Value) *onnx.Node {
	made := onnx.SetOf(onnx.Upstream(func(w *onnx.Value) bool { return !p.r.cone[w] }, v))
	tries := 0
	for _, w := range slices.Backward(p.r.chosen) {
		if w == v || !made[w] || !oneEach(p.g, w, p.r) {
			continue
		}
		if found, _ := p.read(w); found != nil {
			for _, u := range w.Uses() {
				if made[u.Node.OutputValue(0)] {
					return u.Node
				}
			}
		}
		if tries++; tries == maxStrays {
			break
		}
	}
	return nil
}

// rounds returns a node after the choice that casts to a narrower type than v's.
func (p *reader) rounds(v *onnx.Value) *onnx.Node {
	for w := range onnx.Upstream(func(w *onnx.Value) bool {
		return !p.r.budget.Spend(lookSteps) || !p.r.ByID[w] && !slices.Contains(p.r.chosen, w)
	}, v) {
		if w.Producer.Is("Cast") && match.Widens(p.g.Facts.DataType(w), p.g.Facts.DataType(v)) {
			return w.Producer
		}
	}
	return nil
}

// between fits the op to the nodes between logits and v, with each constant that may be the correction and without one.
func (p *reader) between(logits, v *onnx.Value) (found *Router, most *miss) {
	if t := p.g.Facts.DataType(logits); !routerTypes[t] {
		return nil, &miss{typed, noRouter(p.r.TopK, "logits of type %s", t.String())}
	}
	way, err := p.plan(logits, p.r.IDs, v)
	if err != nil {
		return nil, &miss{unread, noRouter(p.r.TopK, "a choice of experts that cannot be run: %w", err)}
	}
	for _, bias := range append(corrections(p.g, p.r, way.Nodes), nil) {
		if bias != nil && !routerTypes[p.g.Facts.DataType(bias)] {
			continue
		}
		found, m := p.fit(way, logits, bias, v)
		if found != nil {
			if n := p.mixes(way, logits); n != nil {
				return nil, &miss{mixed, noRouter(n, "weights computed from several tokens")}
			}
			return found, nil
		}
		most = most.or(m)
	}
	return nil, most
}

// fit fits the op to a path from logits to weights.
func (p *reader) fit(way *probe.Plan, logits, bias, v *onnx.Value) (found *Router, why *miss) {
	magnitudes := []float64{0}
	if bias != nil {
		magnitudes = []float64{0.3, 4, 3e-3}
	}
	groups := 0
	for _, l := range groupLimits(p.g, p.r) {
		groups = max(groups, int(l.count))
	}
	bounds, ok := p.bounds(way, logits)
	if !ok {
		return nil, &miss{unread, noRouter(p.r.TopK, "scores that are rounded or compared with numbers out of range")}
	}
	var samples []*sample
	for _, m := range magnitudes {
		s, err := p.ask(way, newRows(p.r, groups, m, match.Around(bounds)), logits, bias, v)
		switch {
		case err != nil:
			return nil, &miss{unread, noRouter(p.r.TopK, "a choice of experts that cannot be run: %w", err)}
		case s == nil:
			return nil, &miss{unread, noRouter(p.r.TopK, "weights of more than the chosen experts")}
		}
		samples = append(samples, s)
	}
	most := -1
	var chosen []*Router
	for _, h := range hypotheses(p.g, p.r, logits, bias) {
		raw := h.chooses(samples)
		if raw == nil {
			continue
		}
		chosen = append(chosen, h)
		fitted := *h
		ok := fitted.weigh(samples, raw)
		if !ok && bias == nil {
			fitted = *h
			if fitted.sharpen(samples[0], raw[0]); fitted.Sharpness != 1 {
				raw = fitted.chooses(samples)
				ok = raw != nil && fitted.weigh(samples, raw)
			}
		}
		if !ok {
			continue
		}
		if n := fitted.alike(samples, raw); n > most {
			found, most = &fitted, n
		}
	}
	if found == nil {
		return nil, p.unsaid(samples, chosen)
	}
	return found, nil
}

// routerTypes are the types of the op's inputs.
var routerTypes = map[onnx.DataType]bool{onnx.Float: true, onnx.Float16: true, onnx.BFloat16: true}

// shaped returns an error text for the shapes, or "". Experts must be chosen in the rows of the logits, or with all
// rows on one axis.
func (p *reader) shaped(logits *onnx.Value) string {
	in := p.r.TopK.Input(0)
	n, ok1 := p.g.Facts.Rank(logits)
	m, ok2 := p.g.Facts.Rank(in)
	ids, ok3 := p.g.Facts.Rank(p.r.IDs)
	switch {
	case !ok1 || !ok2 || !ok3 || n == 0:
		return "logits or ids of unknown rank"
	case n == m && !p.g.Facts.SameShape(logits, in), n != m && m != 2:
		return "experts chosen in other rows than in the logits"
	case ids != m && (ids != m-1 || !p.r.TopK.Is("ArgMax")):
		return "ids of another rank than the logits"
	}
	return ""
}
