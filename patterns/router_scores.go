package patterns

import (
	"math"
	"slices"
	"sync"

	"github.com/mojo-patch/mojo-patch/onnx"
)

// routerReader reads a routing as a router.
type routerReader struct {
	g       *graphView
	r       *routing
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
func (p *routerReader) scores(v *onnx.Value) (s *scores, at *onnx.Node, why string) {
	g := p.g
	s = &scores{groups: noGroups}
	for range maxDetour {
		v = g.resolve(v)
		if kind, x, ok := g.scoreOf(v); ok {
			s.kind, s.logits = kind, g.beforeWidening(x)
			return s, nil, ""
		}
		n := producer(v)
		if n == nil || v == p.r.logits || !onnx.IsStandardDomain(n.Domain) {
			break
		}
		next := p.unmasked(n, s)
		switch {
		case next != nil:
			if s.masked || s.bias != nil { // one mask, and that of the sum
				return nil, n, "scores masked twice, or before a bias is added"
			}
			s.masked = true
		case n.Is("Cast"), opKind(n) == "Reshape" && g.hasExperts(n.Input(0), p.r):
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

// joinBias takes for the logits what the bias makes of them, where no scores come between; it says whether that can be.
func (p *routerReader) joinBias(s *scores) bool {
	if s.kind != "" {
		return false
	}
	s.logits, s.bias = p.g.beforeWidening(s.sum), nil
	return true
}

// unscored takes v for the logits, which are chosen among, or weights, as they are.
func (p *routerReader) unscored(v *onnx.Value, s *scores) (*scores, *onnx.Node, string) {
	if v == nil || !p.g.hasExperts(v, p.r) {
		return nil, p.r.topK, "scores of another shape than the logits"
	}
	s.logits = p.g.beforeWidening(v)
	return s, nil, ""
}

// unmasked returns the scores under a mask that depends on a choice of groups; nil where the node puts no such mask on.
func (p *routerReader) unmasked(n *onnx.Node, s *scores) *onnx.Value {
	if len(p.r.before) == 0 {
		return nil
	}
	if p.limited == nil {
		var from []*onnx.Value
		for _, m := range p.r.before {
			from = append(from, m.Outputs...)
		}
		p.limited = p.g.forward(slices.DeleteFunc(from, func(v *onnx.Value) bool { return v == nil }), p.r, nil)
	}
	switch n.OpType {
	case "Where":
		if !p.limited[n.Input(0)] {
			return nil
		}
		for i, v := range []*onnx.Value{n.Input(1), n.Input(2)} {
			if x, ok := p.g.fill(v); ok && p.excludes(x, s) {
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

// excludes takes x for the score of experts that cannot be chosen. A number far below all scores is as good as minus infinity.
func (p *routerReader) excludes(x float64, s *scores) bool {
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

// unbiased returns the scores that the node adds a constant of one number per expert to; nil where it adds something else.
func (p *routerReader) unbiased(n *onnx.Node, s *scores) *onnx.Value {
	if len(n.Inputs) != 2 {
		return nil
	}
	for i, v := range n.Inputs {
		c := p.g.beforeWidening(v)
		t := c.Constant()
		if t == nil || t.Len() != p.r.experts || p.g.resolve(n.Outputs[0]) == p.r.logits {
			continue
		}
		if d, ok := p.g.facts.Dim(c, -1); ok && d == p.r.experts {
			s.bias = c
			return n.Inputs[1-i]
		}
	}
	return nil
}

// limit reads from the choice of groups how many there are, and how they are scored.
func (p *routerReader) limit(s *scores) (why string) {
	switch {
	case !s.masked && len(p.r.before) == 0:
		return ""
	case !s.masked:
		return "scores that depend on another choice, and not by a mask"
	}
	outer := slices.MaxFunc(p.r.before, func(a, b *onnx.Node) int { return p.g.position(a) - p.g.position(b) })
	groups, ok := p.g.facts.Dim(outer.Input(0), -1)
	k := []int64{1}
	if ok && outer.Is("TopK") {
		k, ok = p.g.ints(outer.Input(1))
	}
	if !ok || len(k) != 1 || groups < 1 || p.r.experts%groups != 0 {
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
func (g *graphView) beforeWidening(v *onnx.Value) *onnx.Value {
	v = g.resolve(v)
	for n := producer(v); n != nil && (n.Is("Cast") || n.Is("CastLike")); n = producer(v) {
		in := g.resolve(n.Input(0))
		t, u := g.facts.DataType(in), g.facts.DataType(v)
		if t != u && !widens(t, u) {
			break
		}
		v = in
	}
	return v
}

// scorePatterns are the ways to write what makes scores of logits.
var scorePatterns = sync.OnceValue(func() *Set {
	s := NewSet()
	s.views = builtin().views
	err := s.Add("scores", `
pattern softmax(x) -> y {
  e = Exp(Sub(x, ReduceMax<axes=[-1], keepdims=1>(x))) | Exp(x)
  y = Softmax<axis=-1>(x) | Exp(LogSoftmax<axis=-1>(x)) | Div(e, ReduceSum<axes=[-1], keepdims=1>(e))
} => Identity(x)

pattern logsoftmax(x) -> y {
  y = LogSoftmax<axis=-1>(x) | Log(Softmax<axis=-1>(x))
} => Identity(x)

pattern sigmoid(x) -> y {
  y = Logistic(x)
} => Identity(x)

pattern sqrtsoftplus(x) -> y {
  y = Root(Softplus(x) | Log(Add(Exp(x), 1)))
} => Identity(x)

pattern sqrtsoftplus(x) -> y {
  y = Root(Where(Greater(x, $most), x, Softplus(x) | Log(Add(Exp(x), 1))))
  where most >= 20
} => Identity(x)`)
	if err != nil {
		panic(err) // a mistake of the build, caught by any test
	}
	return s
})

// scoreOf returns the logits of which v is the softmax over the last axis, its logarithm, the sigmoid, or the root of the softplus.
func (g *graphView) scoreOf(v *onnx.Value) (kind string, x *onnx.Value, ok bool) {
	v = g.resolve(v)
	if v == nil || v.Producer == nil {
		return "", nil, false
	}
	for _, p := range scorePatterns().byRoot[v.Producer.OpType] {
		s := newState(g, p)
		if s.match(p.root(), v, s.holdsWhere) {
			return p.Name, s.slots[p.slots["x"]].value, true
		}
	}
	return "", nil, false
}
