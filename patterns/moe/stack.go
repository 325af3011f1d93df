package moe

import (
	"cmp"
	"slices"

	"github.com/mojo-patch/mojo-patch/patterns/match"
	"github.com/mojo-patch/mojo-patch/patterns/probe"
	"github.com/mojo-patch/mojo-patch/patterns/reason"
)

// readExperts reads the experts of a region, in whatever form they are computed: branches side by side, with masks
// or with gathers and scatters, loops over the experts, branches that run when an expert is chosen, or products
// with the weights of all or of those that are picked. Weights may be initializers of their own, or places of
// greater ones.
func readExperts(g *match.View, reg *Region) (e *Experts, why *reason.Reason) {
	p, why := callsOf(g, reg)
	if why != nil {
		reg.sure = p.sure
		return nil, why
	}
	u := *p.unit
	e = &Experts{Region: reg, Unit: &u, Scaled: p.scaled}
	var whole, wholeBias, gate, up, gateBias, upBias, down, downBias []*probe.Matrix
	for _, answer := range p.answers {
		c := p.calls[answer-1]
		down = append(down, c.down.Matrix(c.place))
		downBias = append(downBias, c.down.BiasAt(c.place))
		a := c.down.First[0]
		m, b := a.Matrix(c.place), a.BiasAt(c.place)
		whole, wholeBias = append(whole, m), append(wholeBias, b)
		if u.packing == "none" {
			continue
		}
		first, second, gb, vb := m, m, b, b
		if len(c.down.First) == 1 {
			first, second = m.Halves(u.packing)
			gb, vb = b.Halves(u.packing)
		} else {
			a = c.down.First[1]
			second, vb = a.Matrix(c.place), a.BiasAt(c.place)
		}
		if c.upFirst {
			first, second, gb, vb = second, first, vb, gb
		}
		gate, up = append(gate, first), append(up, second)
		gateBias, upBias = append(gateBias, gb), append(upBias, vb)
	}
	if u.packing != "none" {
		swapped := slices.ContainsFunc(p.answers, func(answer int) bool { return p.calls[answer-1].upFirst })
		if u.packing == "halves" || swapped {
			whole, wholeBias = probe.Adjoined(gate, up), probe.Adjoined(gateBias, upBias)
			u.packing = "halves"
		}
	}
	stacked := func(what string, list []*probe.Matrix) *Stack {
		s, unread := stackOf(what, list)
		why = cmp.Or(why, unread)
		return s
	}
	e.Down, e.DownBias = stacked("down", down), stacked("down_bias", downBias)
	if whole != nil {
		e.GateUp, e.GateUpBias = stacked("gate_up", whole), stacked("gate_up_bias", wholeBias)
	}
	if whole == nil || wholeBias == nil {
		e.GateUp, e.GateUpBias = nil, nil
		e.Gate, e.Up = stacked("gate", gate), stacked("up", up)
		e.GateBias, e.UpBias = stacked("gate_bias", gateBias), stacked("up_bias", upBias)
	}
	if (e.GateBias == nil) != (e.UpBias == nil) {
		why = cmp.Or(why, reason.New(reason.ExpertWeights, nil,
			"one of gate and up of the experts has a bias, the other none"))
	}
	if why != nil {
		return nil, why
	}
	return e, nil
}

// stackOf makes a stack of a matrix, or a bias, of every expert; nil where none has one.
func stackOf(what string, list []*probe.Matrix) (s *Stack, why *reason.Reason) {
	missing := 0
	for _, m := range list {
		if m == nil {
			missing++
		}
	}
	switch {
	case missing == len(list):
		return nil, nil
	case missing > 0:
		return nil, reason.New(reason.ExpertWeights, nil, "%d of %d experts have no %s", missing, len(list), what)
	}
	outIn, inOut := true, true
	for _, m := range list {
		if m.Source == nil {
			return nil, reason.New(reason.ExpertWeights, nil, "%s of an expert is spread over several initializers",
				what)
		}
		if m.Source.Constant().DataType != list[0].Source.Constant().DataType || m.In != list[0].In ||
			m.Out != list[0].Out {
			return nil, reason.New(reason.ExpertWeights, nil, "%s of the experts differ in type or shape: %q and %q",
				what, list[0].Source.Name, m.Source.Name)
		}
		outIn = outIn && m.Block(false) != nil
		inOut = inOut && m.Block(true) != nil
	}
	if !outIn && !inOut {
		return nil, reason.New(reason.ExpertWeights, nil,
			"%s of the experts are stored neither row by row nor column by column, or not all in the same order", what)
	}
	m := list[0]
	s = &Stack{InOut: !outIn, Dims: []int64{int64(len(list)), m.Out, m.In}}
	switch {
	case m.ByIn == 0: // a bias
		s.Dims = s.Dims[:2]
	case s.InOut:
		s.Dims = []int64{s.Dims[0], m.In, m.Out}
	}
	for _, m := range list {
		s.Blocks = append(s.Blocks, m.Block(s.InOut))
	}
	return s, nil
}
