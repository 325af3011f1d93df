package router

import (
	"cmp"
	"math"
	"slices"

	"github.com/mojo-patch/mojo-patch/fused"
	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/patterns/match"
)

// tolerance is the allowed relative difference between a weight and the op's: exporters store constants in float32.
// With fine, small epsilons can be told from 0.
const tolerance, fine = 1e-6, 1e-9

// hypotheses lists the op's ways to choose and to score. Of equivalent ones, the first is the one that the graph
// spells.
func hypotheses(g *match.View, r *Routing, logits, bias *onnx.Value) []*Router {
	limits := append(groupLimits(g, r), noGroups)
	var list []*Router
	for _, order := range valuesOf(fused.AttrOrder) {
		for _, score := range valuesOf(fused.AttrScore) {
			for _, l := range limits {
				if l.count == 1 || order == scoreFirst {
					list = append(list, &Router{Routing: r, Logits: logits, Bias: bias, score: score, order: order,
						groups: l, scale: 1, Sharpness: 1})
				}
			}
		}
	}
	return list
}

// groupLimits lists the group choices that the routing's choice may depend on.
func groupLimits(g *match.View, r *Routing) (list []groupLimit) {
	for _, n := range r.before {
		groups, ok := g.Facts.Dim(n.Input(0), -1)
		k := []int64{1}
		if ok && n.Is("TopK") {
			k, ok = g.Ints(n.Input(1))
		}
		if !ok || groups < 2 || groups >= r.Experts || r.Experts%groups != 0 || len(k) != 1 || k[0] < 1 ||
			k[0] > groups {
			continue
		}
		for _, score := range valuesOf(fused.AttrGroupScore) {
			for _, excluded := range []float64{0, math.Inf(-1)} {
				list = append(list, groupLimit{groups, k[0], score, excluded})
			}
		}
	}
	return list
}

// chooses returns the op's answers for the samples, nil if it does not choose like the routing.
func (h *Router) chooses(samples []*sample) (raw []*answer) {
	if h.chosen(samples[0], few) == nil {
		return nil
	}
	for _, s := range samples {
		a := h.chosen(s, s.count())
		if a == nil {
			return nil
		}
		raw = append(raw, a)
	}
	return raw
}

// few rows distinguish most hypotheses.
const few = 8

// chosen returns the op's answer for the first rows of a sample, nil if it chooses other experts in ordinary rows.
func (h *Router) chosen(s *sample, rows int) *answer {
	a, err := h.apply(s.logits[:rows*s.experts], s.bias, s.experts)
	n := min(rows, s.ordinary) * int(h.K)
	if err != nil || !slices.Equal(a.ids[:n], s.ids[:n]) {
		return nil
	}
	return a
}

// sharpen sets the factor of the logits: the effect of a difference of small logits on the weights, relative to the
// op's.
func (h *Router) sharpen(s *sample, raw *answer) {
	k := int(h.K)
	i := (s.ordinary + small) * k
	j := i + max(k-1, 1) // the next row, for one weight
	slope := math.Log(s.weights[i]/s.weights[j]) / math.Log(raw.weights[i]/raw.weights[j])
	if slope > 0 && math.Abs(slope-1) > 1e-4 && !math.IsInf(slope, 0) {
		h.Sharpness = slope
	}
}

// maxEpsilon is the greatest number accepted as an epsilon. Scores are at most 1, so a number of that size would make
// another function.
const maxEpsilon = 0.9

// weigh finds the numbers that turn the op's scores of the chosen experts into the routing's weights. It reports
// whether such numbers exist.
func (h *Router) weigh(samples []*sample, raw []*answer) bool {
	return h.weighTo(fine, samples, raw) || h.weighTo(tolerance, samples, raw)
}

func (h *Router) weighTo(within float64, samples []*sample, raw []*answer) bool {
	k := int(h.K)
	h.renormalize, h.epsilon = false, 0
	h.scale = samples[0].weights[0] / raw[0].weights[0]
	if h.holds(within, samples, raw) {
		return true
	}
	h.renormalize = true
	type row struct{ sum, is float64 }
	var list []row
	for i, s := range samples {
		for r := range s.count() - s.spread {
			list = append(list, row{sum(raw[i].weights[r*k : (r+1)*k]), sum(s.weights[r*k : (r+1)*k])})
		}
	}
	slices.SortFunc(list, func(a, b row) int { return cmp.Compare(b.sum, a.sum) }) // the greatest first
	first := list[0]
	h.scale = first.is
	if h.holds(within, samples, raw) {
		return true
	}
	for _, r := range list {
		if r.is > 0 && r.sum > 0 && math.Abs(r.is-h.scale) > within*h.scale {
			inverse := (1/r.is - 1/first.is) / (1/r.sum - 1/first.sum) // epsilon / scale
			h.scale = 1 / (1/first.is - inverse/first.sum)
			h.epsilon = inverse * h.scale
			break
		}
	}
	return h.epsilon > 0 && h.epsilon <= maxEpsilon && h.holds(within, samples, raw)
}

// holds reports whether the routing's weights equal the op's within a relative difference.
func (h *Router) holds(within float64, samples []*sample, raw []*answer) bool {
	k := int(h.K)
	if !(math.Abs(h.scale) <= math.MaxFloat32) || h.scale == 0 {
		return false
	}
	for i, s := range samples {
		noise := h.noise(s, raw[i])
		for r := range s.count() - s.spread {
			w, is := raw[i].weights[r*k:(r+1)*k], s.weights[r*k:(r+1)*k]
			total := sum(w)
			factor := h.scale
			if h.renormalize {
				factor /= total + h.epsilon
			}
			for c := range w {
				if extreme := r >= s.ordinary; extreme && is[c]-is[c] != 0 {
					continue // an exponential overflows
				}
				allowed := within*math.Abs(w[c]) + noise*(1+w[c]/total)
				if !(math.Abs(is[c]-factor*w[c]) <= math.Abs(factor)*allowed) {
					return false
				}
			}
		}
	}
	return true
}

// noise estimates the error of scores computed as differences from 1, by the error of small scores or of their
// proportions.
func (h *Router) noise(s *sample, raw *answer) float64 {
	k := int(h.K)
	at := (s.ordinary + small) * k
	w, is := raw.weights[at:at+k], s.weights[at:at+k]
	factor, most := 1/h.scale, 0.0
	if k > 1 {
		factor = sum(w) / sum(is)
	}
	for c := range w {
		most = max(most, math.Abs(is[c]*factor-w[c]))
	}
	if most < 1e-12*sum(w) || most > oneSpacing {
		return 0
	}
	return oneSpacing
}

// oneSpacing is a few roundings of numbers near 1.
const oneSpacing = 1e-15

func sum(list []float64) (s float64) {
	for _, x := range list {
		s += x
	}
	return s
}

// alike counts the rows with equal scores in which the op chooses the same experts. Only these rows show whether scores
// or logits are compared.
func (h *Router) alike(samples []*sample, raw []*answer) (count int) {
	k := int(h.K)
	for i, s := range samples {
		for r := s.count() - s.spread; r < s.count(); r++ {
			if slices.Equal(s.ids[r*k:(r+1)*k], raw[i].ids[r*k:(r+1)*k]) {
				count++
			}
		}
	}
	return count
}
