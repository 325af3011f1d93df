package router

import (
	"math"
	"slices"
	"sync"

	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/patterns/match"
	"github.com/mojo-patch/mojo-patch/patterns/reason"
)

// reader reads a routing as a router.
type reader struct {
	g       *match.View
	r       *Routing
	out     onnx.DataType        // of the weights that are read
	limited map[*onnx.Value]bool // the values that depend on a choice of groups; nil until needed
}

// scores are what experts are chosen among, or weights are taken from.
type scores struct {
	logits *onnx.Value
	kind   string      // "softmax", "sigmoid", "logsoftmax", or "" for the logits themselves
	bias   *onnx.Value // that is added
	sum    *onnx.Value // of the bias and what it is added to
	masked bool        // scores of some groups are replaced by excluded
	groups groupLimit
}

// scores goes back from v to the logits. Where it cannot, why says what stands there.
func (p *reader) scores(v *onnx.Value) (s *scores, why *reason.Reason) {
	g := p.g
	s = &scores{groups: noGroups}
	for range match.MaxDetour {
		v = g.Resolve(v)
		if kind, x, ok := scoreOf(g, v); ok {
			s.kind, s.logits = kind, beforeWidening(g, x)
			return s, nil
		}
		n := match.Producer(v)
		if n == nil || v == p.r.Logits || !onnx.IsStandardDomain(n.Domain) {
			break
		}
		next := p.unmasked(n, s)
		switch {
		case next != nil:
			if s.masked || s.bias != nil { // one mask, and that of the sum
				return nil, noRouter(n, "scores masked twice, or before a bias is added")
			}
			s.masked = true
		case n.Is("Cast"), match.OpKind(n) == "Reshape" && hasExperts(g, n.Input(0), p.r):
			next = n.Input(0)
		case n.Is("Add") && s.bias == nil:
			if next = p.unbiased(n, s); next == nil {
				return p.unscored(v, s)
			}
			s.sum = v
		default:
			return p.unscored(v, s)
		}
		v = next
	}
	return p.unscored(v, s)
}

// joinBias takes for the logits what the bias makes of them, where no scores come between; it reports whether that can
// be.
func (p *reader) joinBias(s *scores) bool {
	if s.kind != "" {
		return false
	}
	s.logits, s.bias = beforeWidening(p.g, s.sum), nil
	return true
}

// unscored takes v for the logits, which are chosen among, or weights, as they are.
func (p *reader) unscored(v *onnx.Value, s *scores) (*scores, *reason.Reason) {
	if v == nil || !hasExperts(p.g, v, p.r) {
		return nil, noRouter(p.r.TopK, "scores of another shape than the logits")
	}
	s.logits = beforeWidening(p.g, v)
	return s, nil
}

// unmasked returns the scores under a mask that depends on a choice of groups; nil where the node puts no such mask
// on.
func (p *reader) unmasked(n *onnx.Node, s *scores) *onnx.Value {
	if len(p.r.before) == 0 {
		return nil
	}
	if p.limited == nil {
		var from []*onnx.Value
		for _, m := range p.r.before {
			from = append(from, m.Outputs...)
		}
		p.limited = onnx.SetOf(p.r.forward(nil, from...))
	}
	switch n.OpType {
	case "Where":
		if !p.limited[n.Input(0)] {
			return nil
		}
		for i, v := range []*onnx.Value{n.Input(1), n.Input(2)} {
			if x, ok := filledWith(p.g, v); ok && p.excludes(x, s) {
				return n.Input(2 - i)
			}
		}
	case "Mul", "Add": // by ones and zeros, or with zeros and minus infinity
		for i, v := range n.Inputs {
			if len(n.Inputs) == 2 && p.limited[v] && !p.limited[n.Inputs[1-i]] {
				p.excludes(map[string]float64{"Mul": 0, "Add": math.Inf(-1)}[n.OpType], s)
				return n.Inputs[1-i]
			}
		}
	}
	return nil
}

// farBelow is less than every score.
const farBelow = -1e4

// excludes takes x for the score of experts that cannot be chosen. A number far below all scores is as good as
// minus infinity.
func (p *reader) excludes(x float64, s *scores) bool {
	switch {
	case x == 0:
		s.groups.excluded = 0
	case x <= farBelow:
		s.groups.excluded = math.Inf(-1)
	default:
		return false
	}
	return true
}

// unbiased returns the scores that the node adds a constant of one number per expert to; nil where it adds
// something else.
func (p *reader) unbiased(n *onnx.Node, s *scores) *onnx.Value {
	if len(n.Inputs) != 2 {
		return nil
	}
	for i, v := range n.Inputs {
		c := beforeWidening(p.g, v)
		t := c.Constant()
		if t == nil || t.Len() != p.r.Experts || p.g.Resolve(n.Outputs[0]) == p.r.Logits {
			continue
		}
		if d, ok := p.g.Facts.Dim(c, -1); ok && d == p.r.Experts {
			s.bias = c
			return n.Inputs[1-i]
		}
	}
	return nil
}

// limit reads from the choice of groups how many there are, and how they are scored.
func (p *reader) limit(s *scores) (why string) {
	switch {
	case !s.masked && len(p.r.before) == 0:
		return ""
	case !s.masked:
		return "scores that depend on another choice, and not by a mask"
	}
	outer := slices.MaxFunc(p.r.before, func(a, b *onnx.Node) int { return p.g.Position(a) - p.g.Position(b) })
	groups, ok := p.g.Facts.Dim(outer.Input(0), -1)
	k := []int64{1}
	if ok && outer.Is("TopK") {
		k, ok = p.g.Ints(outer.Input(1))
	}
	if !ok || len(k) != 1 || groups < 1 || p.r.Experts%groups != 0 {
		return "a mask that is no choice of groups"
	}
	excluded := s.groups.excluded
	if s.groups = noGroups; groups == 1 { // the one group always stays
		return ""
	}
	s.groups = groupLimit{count: groups, topK: k[0], excluded: excluded, score: "max"}
	if len(p.r.before) > 1 {
		s.groups.score = "top2_sum"
	}
	return ""
}

// beforeWidening goes back over casts to wider types: the op makes everything float32 itself.
func beforeWidening(g *match.View, v *onnx.Value) *onnx.Value {
	v = g.Resolve(v)
	for n := match.Producer(v); n != nil && (n.Is("Cast") || n.Is("CastLike")); n = match.Producer(v) {
		in := g.Resolve(n.Input(0))
		t, u := g.Facts.DataType(in), g.Facts.DataType(v)
		if t != u && !match.Widens(t, u) {
			break
		}
		v = in
	}
	return v
}

// scorePatterns are the ways to write what makes scores of logits: builtin/scores.pat.
var scorePatterns = sync.OnceValue(func() *match.Index { return match.BuiltinIndex("views.pat", "scores.pat") })

// scoreOf returns the logits of which v is the softmax over the last axis, its logarithm, the sigmoid, or the root
// of the softplus.
func scoreOf(g *match.View, v *onnx.Value) (kind string, x *onnx.Value, ok bool) {
	v = g.Resolve(v)
	if v == nil || v.Producer == nil {
		return "", nil, false
	}
	for _, p := range scorePatterns().At(v.Producer) {
		s := match.NewAttempt(g, p)
		if s.At(v, nil) {
			return p.Name, s.Value("x"), true
		}
	}
	return "", nil, false
}
