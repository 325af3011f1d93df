package generate

import (
	"container/heap"
	"fmt"
	"math"
	"slices"
)

func (o *Sampling) penalises() bool {
	return o.RepetitionPenalty != 0 && o.RepetitionPenalty != 1 || o.FrequencyPenalty != 0 || o.PresencePenalty != 0
}

// penalised applies the penalties to a copy of logits, in float32 as transformers does.
func (s *Sampler) penalised(logits []float32, prompt, generated []int64) []float32 {
	s.scores = append(s.scores[:0], logits...)
	scores := s.scores
	if r := float32(s.opts.RepetitionPenalty); r != 0 && r != 1 {
		clear(s.counts)
		for _, ids := range [][]int64{prompt, generated} {
			for _, id := range ids {
				s.counts[id] = 1
			}
		}
		for id := range s.counts {
			switch {
			case id < 0 || id >= int64(len(scores)):
			case scores[id] < 0:
				scores[id] *= r
			default:
				scores[id] /= r
			}
		}
	}
	f, p := float32(s.opts.FrequencyPenalty), float32(s.opts.PresencePenalty)
	if f == 0 && p == 0 {
		return scores
	}
	clear(s.counts)
	for _, id := range generated {
		s.counts[id]++
	}
	for id, n := range s.counts {
		if id >= 0 && id < int64(len(scores)) {
			scores[id] -= f * float32(n)
			scores[id] -= p
		}
	}
	return scores
}

// distribution returns the tokens that remain after temperature, top-k, top-p and min-p, and their probabilities, which
// sum to 1 except for rounding. best is the index of the greatest logit. Sums are computed in float64.
func (s *Sampler) distribution(logits []float32, best int) ([]int, []float64, error) {
	t := float32(s.opts.Temperature)
	if math.IsInf(float64(logits[best]/t), 0) {
		return nil, nil, fmt.Errorf("temperature %v: dividing the greatest logit, %v, by it overflows; use 0 for "+
			"greedy",
			s.opts.Temperature, logits[best])
	}
	least := float32(math.Inf(-1))
	if k := s.opts.TopK; k > 0 && k < len(logits) {
		least = kth(logits, k)
	}
	s.ids, s.probs = s.ids[:0], s.probs[:0]
	var total float64
	top := float64(logits[best] / t)
	for id, l := range logits {
		if l < least || math.IsInf(float64(l), -1) {
			continue
		}
		p := math.Exp(float64(l/t) - top)
		s.ids, s.probs = append(s.ids, id), append(s.probs, p)
		total += p
	}
	ids, probs := s.ids, s.probs
	if p := s.opts.TopP; p > 0 && p < 1 {
		ids, probs = topP(ids, probs, p*total)
	}
	if m := s.opts.MinP; m > 0 {
		ids, probs = minP(ids, probs, m)
	}
	total = 0
	for _, p := range probs {
		total += p
	}
	for i := range probs {
		probs[i] /= total
	}
	return ids, probs, nil
}

// kth returns the k-th greatest value, 0 < k <= len(values). It keeps a heap of the k greatest values so far with the
// least on top, so that most values cost one comparison.
func kth(values []float32, k int) float32 {
	h := slices.Clone(values[:k])
	for i := k/2 - 1; i >= 0; i-- {
		sink(h, i)
	}
	for _, v := range values[k:] {
		if v > h[0] {
			h[0] = v
			sink(h, 0)
		}
	}
	return h[0]
}

func sink(h []float32, i int) {
	for {
		c := 2*i + 1
		if c >= len(h) {
			return
		}
		if c+1 < len(h) && h[c+1] < h[c] {
			c++
		}
		if h[i] <= h[c] {
			return
		}
		h[i], h[c] = h[c], h[i]
		i = c
	}
}

// topP keeps the likeliest tokens until they reach mass; among equal ones, lower ids first. It pops them off a
// heap, so that the many unlikely ones are never sorted.
func topP(ids []int, probs []float64, mass float64) ([]int, []float64) {
	h := &likeliest{ids, probs}
	heap.Init(h)
	n := len(ids)
	var sum float64
	for h.Len() > 0 {
		sum += h.probs[0]
		heap.Pop(h)
		if sum >= mass {
			break
		}
	}
	// The popped tokens are after the heap, the likeliest last.
	kept, keptProbs := ids[h.Len():n], probs[h.Len():n]
	return kept, keptProbs
}

// likeliest is a heap with the likeliest token on top, and the lowest id among equal ones.
type likeliest struct {
	ids   []int
	probs []float64
}

func (h *likeliest) Len() int { return len(h.ids) }

func (h *likeliest) Less(i, j int) bool {
	return h.probs[i] > h.probs[j] || h.probs[i] == h.probs[j] && h.ids[i] < h.ids[j]
}

func (h *likeliest) Swap(i, j int) {
	h.ids[i], h.ids[j] = h.ids[j], h.ids[i]
	h.probs[i], h.probs[j] = h.probs[j], h.probs[i]
}

// Push is never called.
func (h *likeliest) Push(any) { panic("likeliest: only taken from") }

func (h *likeliest) Pop() any {
	h.ids, h.probs = h.ids[:len(h.ids)-1], h.probs[:len(h.probs)-1]
	return nil
}

// minP keeps, in place, the tokens at least m times as likely as the likeliest.
func minP(ids []int, probs []float64, m float64) ([]int, []float64) {
	least := m * slices.Max(probs)
	n := 0
	for i, p := range probs {
		if p >= least {
			ids[n], probs[n] = ids[i], p
			n++
		}
	}
	return ids[:n], probs[:n]
}
