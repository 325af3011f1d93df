package router

import (
	"math"

	"github.com/mojo-patch/mojo-patch/patterns/match"
	"github.com/mojo-patch/mojo-patch/patterns/reason"
)

// miss tells why the nodes between some logits and weights are not the op.
type miss struct {
	rank rank
	why  *reason.Reason
}

// rank orders misses by how informative they are.
type rank int

const (
	unread   rank = iota // cannot be run, or does not compute weights
	typed                // types that the op does not take
	chosen               // other experts are chosen
	weighed              // other weights
	scored               // a node that does not compute a score
	divided              // by another number than the sum
	unscored             // logits as weights
	biased               // weights that include the bias of the choice
	rounded
	mixed // with numbers of other tokens
)

// or returns the more informative miss, the first if equal.
func (m *miss) or(other *miss) *miss {
	if m == nil || other != nil && other.rank > m.rank {
		return other
	}
	return m
}

// unsaid returns the miss for a routing's answers. The hypotheses in among make the same choice.
func (p *reader) unsaid(samples []*sample, among []*Router) *miss {
	if len(among) == 0 {
		return &miss{chosen, noRouter(p.r.TopK, "experts other than those with the largest logits or scores")}
	}
	corrected := samples[0].bias != nil
	k := int(p.r.K)
	if h := *among[0]; !corrected && h.weigh(samples, samples[0].logitsAsWeights(k)) {
		if n := match.Producer(h.Logits); h.Logits != p.r.Logits && n != nil {
			return &miss{scored, noRouter(n,
				"scores made by %s, not by softmax over the experts, sigmoid or sqrtsoftplus",
				n.OpType)}
		}
		return &miss{unscored, noRouter(p.r.TopK, "logits as weights, without softmax or sigmoid")}
	}
	for _, h := range among {
		raw := h.chooses(samples)
		if corrected {
			for i, s := range samples {
				for j, id := range s.ids {
					raw[i].weights[j] += s.bias[id]
				}
			}
			if h.weigh(samples, raw) {
				return &miss{biased, noRouter(p.r.TopK, "weights that include the bias of the choice")}
			}
		} else if k > 1 && proportional(samples[0], raw[0], k) {
			return &miss{divided, noRouter(p.r.TopK, "weights that are not divided by their sum")}
		}
	}
	return &miss{weighed, noRouter(p.r.TopK,
		"weights other than softmax over the experts, sigmoid or sqrtsoftplus of the logits")}
}

// logitsAsWeights returns the answer of an op without scores.
func (s *sample) logitsAsWeights(k int) []*answer {
	a := &answer{ids: s.ids}
	for i, id := range s.ids {
		a.weights = append(a.weights, s.logits[i/k*s.experts+int(id)])
	}
	return []*answer{a}
}

// proportional reports whether the weights of each ordinary row are the op's times some factor.
func proportional(s *sample, raw *answer, k int) bool {
	for i := range s.ordinary * k {
		first := i / k * k
		if !(math.Abs(s.weights[i]*raw.weights[first]-s.weights[first]*raw.weights[i]) <=
			tolerance*math.Abs(s.weights[first]*raw.weights[i])) {
			return false
		}
	}
	return true
}
