package router

import (
	"slices"

	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/patterns/match"
	"github.com/mojo-patch/mojo-patch/reference"
)

// mixes returns the first node on a way from logits at which numbers of several tokens meet, such as one that counts
// the tokens of an expert: what comes of that shows perhaps with more tokens than a run has. It returns nil where there
// is none.
func (p *reader) mixes(way *plan, logits *onnx.Value) (*onnx.Node, error) {
	shape, _ := p.shape(logits)
	experts := int(p.r.Experts)
	tokens := match.Elements(shape) / experts
	if tokens < 2 {
		return nil, nil
	}
	whole := *way
	whole.want = nil
	for _, n := range way.nodes {
		for _, v := range n.Outputs {
			if v != nil {
				whole.want = append(whole.want, v)
			}
		}
	}
	s := newRows(p.r, 0, 0)
	list := make([]float64, tokens*experts)
	for i := range list {
		list[i] = s.logits[i%(s.ordinary*experts)]
	}
	copy(list[experts:2*experts], list) // two alike, of which each becomes another
	results := func(changed int) ([]*reference.Tensor, error) {
		elements := slices.Clone(list)
		for e := range experts {
			if changed >= 0 {
				elements[changed*experts+e] *= -1
			}
		}
		return p.run(&whole, values{logits: reference.NewFloats(p.g.Facts.DataType(logits), shape, elements)})
	}
	var runs [3][]*reference.Tensor
	for i := range runs {
		var err error
		if runs[i], err = results(i - 1); err != nil {
			return nil, err
		}
	}
	for i, was := range runs[0] {
		if meet(was, runs[1][i], runs[2][i]) {
			return whole.want[i].Producer, nil
		}
	}
	return nil, nil
}

// meet reports whether an element of a tensor is another one in both of two others.
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
