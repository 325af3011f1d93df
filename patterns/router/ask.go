package router

import (
	"slices"

	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/patterns/match"
	"github.com/mojo-patch/mojo-patch/patterns/probe"
	"github.com/mojo-patch/mojo-patch/reference"
)

// sample holds rows of logits and the routing's answer.
type sample struct {
	*rows
	answer
}

// ask runs the routing for v, its weights or gates, on rows of logits. The rows' bias replaces the constant bias. It
// returns nil if v does not hold the weights of the chosen experts.
func (p *reader) ask(way *probe.Plan, s *rows, logits, bias, v *onnx.Value) (*sample, error) {
	shape, _ := p.lab.Shape(logits)
	per := match.Elements(shape) / s.experts
	if per == 0 {
		return nil, nil
	}
	k := int(p.r.K)
	given := probe.Values{}
	if bias != nil {
		shape, _ := p.lab.Shape(bias)
		given[bias] = reference.NewFloats(p.g.Facts.DataType(bias), shape, s.bias)
	}
	out := &sample{rows: s}
	for at := 0; at < s.count(); at += per {
		part := make([]float64, per*s.experts)
		for i := range part { // the last row is repeated
			row := min(at+i/s.experts, s.count()-1)
			part[i] = s.logits[row*s.experts+i%s.experts]
		}
		given[logits] = reference.NewFloats(p.g.Facts.DataType(logits), shape, part)
		got, err := way.Run(given)
		if err != nil {
			return nil, err
		}
		n := min(per, s.count()-at)
		ids, w := got[0].I, got[1].F
		if len(ids) != per*k || slices.Min(ids) < 0 || slices.Max(ids) >= p.r.Experts {
			return nil, nil
		}
		if v == p.r.Dense {
			w = gathered(w, ids, s.experts, k)
		}
		if len(w) != per*k {
			return nil, nil
		}
		out.ids, out.weights = append(out.ids, ids[:n*k]...), append(out.weights, w[:n*k]...)
	}
	return out, nil
}

// gathered returns the gates of the chosen experts; nil if other experts have gates.
func gathered(gates []float64, ids []int64, experts, k int) []float64 {
	left := slices.Clone(gates)
	var w []float64
	for i, id := range ids {
		at := i/k*experts + int(id)
		if at >= len(gates) {
			return nil
		}
		w = append(w, gates[at])
		left[at] = 0
	}
	if slices.ContainsFunc(left, func(x float64) bool { return x != 0 && x == x }) {
		return nil
	}
	return w
}
