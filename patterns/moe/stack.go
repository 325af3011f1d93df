package moe

import (
	"cmp"
	"slices"

	"github.com/mojo-patch/mojo-patch/patterns/match"
	"github.com/mojo-patch/mojo-patch/patterns/probe"
	"github.com/mojo-patch/mojo-patch/patterns/reason"
)

// readExperts reads the experts of a region in any form: branches side by side, with masks or with gathers and
// scatters, loops over the experts, branches that run if an expert is chosen, or products with all weights or with
// picked ones. Weights may be separate initializers or parts of larger ones.
func readExperts(g *match.View, reg *Region) (e *Experts, why *reason.Reason) {
	p, why := callsOf(g, reg)
	if why != nil {
		reg.sure = p.sure
		return nil, why
	}
	u := *p.unit
	e = &Experts{Region: reg, Unit: &u, Scaled: p.scaled}
	var whole, gate, up, down layers
	for _, answer := range p.answers {
		c := p.calls[answer-1]
		down.add(c.down.Matrix(c.place), c.down.BiasAt(c.place))
		a := c.down.First[0]
		m, b := a.Matrix(c.place), a.BiasAt(c.place)
		whole.add(m, b)
		if u.packing == "none" {
			continue
		}
		first, second, firstBias, secondBias := m, m, b, b
		if len(c.down.First) == 1 {
			first, second = m.Halves(u.packing)
			firstBias, secondBias = b.Halves(u.packing)
		} else {
			a = c.down.First[1]
			second, secondBias = a.Matrix(c.place), a.BiasAt(c.place)
		}
		if c.upFirst {
			first, second, firstBias, secondBias = second, first, secondBias, firstBias
		}
		gate.add(first, firstBias)
		up.add(second, secondBias)
	}
	swapped := slices.ContainsFunc(p.answers, func(answer int) bool { return p.calls[answer-1].upFirst })
	if u.packing == "halves" || u.packing != "none" && swapped {
		whole = layers{probe.Adjoined(gate.weights, up.weights), probe.Adjoined(gate.biases, up.biases)}
		u.packing = "halves"
	}
	stacked := func(what string, list []*probe.Matrix) *Stack {
		s, unread := stackOf(what, list)
		why = cmp.Or(why, unread)
		return s
	}
	e.Down, e.DownBias = stacked("down", down.weights), stacked("down_bias", down.biases)
	if whole.weights != nil && whole.biases != nil {
		e.GateUp, e.GateUpBias = stacked("gate_up", whole.weights), stacked("gate_up_bias", whole.biases)
	} else {
		e.Gate, e.Up = stacked("gate", gate.weights), stacked("up", up.weights)
		e.GateBias, e.UpBias = stacked("gate_bias", gate.biases), stacked("up_bias", up.biases)
	}
	if (e.GateBias == nil) != (e.UpBias == nil) {
		why = cmp.Or(why, reason.New(reason.ExpertWeights, nil,
			"only one of gate and up of the experts has a bias"))
	}
	if why != nil {
		return nil, why
	}
	return e, nil
}

// layers are one product of each expert, with its bias.
type layers struct{ weights, biases []*probe.Matrix }

func (l *layers) add(weight, bias *probe.Matrix) {
	l.weights, l.biases = append(l.weights, weight), append(l.biases, bias)
}

// stackOf makes a stack from the same matrix or bias of every expert; nil if no expert has one.
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
