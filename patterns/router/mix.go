package router

import (
	"slices"

	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/patterns/match"
	"github.com/mojo-patch/mojo-patch/patterns/probe"
	"github.com/mojo-patch/mojo-patch/reference"
)

// mixes returns the first node on a path from logits that combines numbers of several tokens, such as a count of an
// expert's tokens: its effect may show only with more tokens than a run has. It returns nil if there is no such node.
func (p *reader) mixes(way *probe.Plan, logits *onnx.Value) *onnx.Node {
	shape, _ := p.lab.Shape(logits)
	experts := int(p.r.Experts)
	tokens := match.Elements(shape) / experts
	if tokens < 2 {
		return nil
	}
	whole := *way
	whole.Want = nil
	for _, n := range way.Nodes {
		for _, v := range n.Outputs {
			if v != nil {
				whole.Want = append(whole.Want, v)
			}
		}
	}
	s := newRows(p.r, 0, 0, nil)
	list := make([]float64, tokens*experts)
	for i := range list {
		list[i] = s.logits[i%(s.ordinary*experts)]
	}
	copy(list[experts:2*experts], list) // two equal rows; each is changed in one run
	var runs [3][]*reference.Tensor     // unchanged, with the first row changed, and with the second
	for i := range runs {
		elements := slices.Clone(list)
		for e := max(i-1, 0) * experts; e < i*experts; e++ {
			elements[e] *= -1
		}
		var err error
		runs[i], err = whole.Run(probe.Values{logits: reference.NewFloats(p.g.Facts.DataType(logits), shape, elements)})
		if err != nil {
			return way.Nodes[0] // nodes that cannot be run are not a router
		}
	}
	for i, was := range runs[0] {
		if meet(was, runs[1][i], runs[2][i]) {
			return whole.Want[i].Producer
		}
	}
	return nil
}

// meet reports whether some element of a tensor differs in both others.
func meet(was, first, second *reference.Tensor) bool {
	if !slices.Equal(was.Shape, first.Shape) || !slices.Equal(was.Shape, second.Shape) {
		return true
	}
	for i, x := range was.I {
		if first.I[i] != x && second.I[i] != x {
			return true
		}
	}
	for i, x := range was.F {
		if first.F[i] != x && second.F[i] != x && x == x {
			return true
		}
	}
	return false
}
