package patterns

import (
	"fmt"
	"slices"
)

// readExperts reads the experts of a region, in whatever form they are computed: branches side by side, with masks or with gathers and
// scatters, loops over the experts, branches that run when an expert is chosen, or products with the weights of all or of those that are
// picked. Weights may be initializers of their own, or places of greater ones.
func (f *finder) readExperts(reg *region) (e *experts, why string) {
	p, why := callsOf(f.view, reg)
	if why != "" {
		reg.sure = p.sure
		return nil, why
	}
	u := *p.unit
	e = &experts{unit: &u, scaled: p.scaled}
	var whole, wholeBias, gate, up, gateBias, upBias, down, downBias []*matrix
	for _, answer := range p.answers {
		c := p.calls[answer-1]
		down = append(down, c.down.matrix(c.place))
		downBias = append(downBias, c.down.biasAt(c.place))
		a := c.down.first[0]
		m, b := a.matrix(c.place), a.biasAt(c.place)
		whole, wholeBias = append(whole, m), append(wholeBias, b)
		if u.packing == "none" {
			continue
		}
		g, v, gb, vb := m, m, b, b
		if len(c.down.first) == 1 {
			g, v = m.halves(u.packing)
			gb, vb = b.halves(u.packing)
		} else {
			a = c.down.first[1]
			v, vb = a.matrix(c.place), a.biasAt(c.place)
		}
		if c.upFirst {
			g, v, gb, vb = v, g, vb, gb
		}
		gate, up = append(gate, g), append(up, v)
		gateBias, upBias = append(gateBias, gb), append(upBias, vb)
	}
	if u.packing != "none" {
		swapped := slices.ContainsFunc(p.answers, func(answer int) bool { return p.calls[answer-1].upFirst })
		if u.packing == "halves" || swapped {
			whole, wholeBias = adjoined(gate, up), adjoined(gateBias, upBias)
			u.packing = "halves"
		}
	}
	var reasons []string
	stackOf := func(what string, list []*matrix) *stack {
		s, why := f.stackOf(what, list)
		if why != "" {
			reasons = append(reasons, why)
		}
		return s
	}
	e.down, e.downBias = stackOf("down", down), stackOf("down_bias", downBias)
	if whole != nil {
		e.gateUp, e.gateUpBias = stackOf("gate_up", whole), stackOf("gate_up_bias", wholeBias)
	}
	if whole == nil || wholeBias == nil {
		e.gateUp, e.gateUpBias = nil, nil
		e.gate, e.up = stackOf("gate", gate), stackOf("up", up)
		e.gateBias, e.upBias = stackOf("gate_bias", gateBias), stackOf("up_bias", upBias)
	}
	if (e.gateBias == nil) != (e.upBias == nil) {
		reasons = append(reasons, "one of gate and up of the experts has a bias, the other none")
	}
	if len(reasons) > 0 {
		return nil, reasons[0]
	}
	return e, ""
}

// halves takes the outputs of a matrix apart: the first and the second half, or those of even and of odd number.
func (m *matrix) halves(packing string) (first, second *matrix) {
	if m == nil {
		return nil, nil
	}
	a, b := *m, *m
	a.out, b.out = m.out/2, m.out/2
	if packing == "interleaved" {
		a.byOut, b.byOut = 2*m.byOut, 2*m.byOut
		b.at.offset += m.byOut
	} else {
		b.at.offset += a.out * m.byOut
	}
	return &a, &b
}

// adjoined makes one matrix of those of gate and up, where the one lies behind the other for all experts; nil where not. Experts
// without biases have none of these either.
func adjoined(gate, up []*matrix) []*matrix {
	list := make([]*matrix, len(gate))
	for i, g := range gate {
		u := up[i]
		if g == nil && u == nil {
			continue
		}
		if g == nil || u == nil || g.in != u.in || g.byIn != u.byIn || g.byOut != u.byOut || u.at != (origin{g.at.source, g.at.offset + g.out*g.byOut}) {
			return nil
		}
		m := *g
		m.out += u.out
		list[i] = &m
	}
	return list
}

// stackOf makes a stack of a matrix, or a bias, of every expert; nil where none has one.
func (f *finder) stackOf(what string, list []*matrix) (s *stack, why string) {
	missing := 0
	for _, m := range list {
		if m == nil {
			missing++
		}
	}
	switch {
	case missing == len(list):
		return nil, ""
	case missing > 0:
		return nil, fmt.Sprintf("%d of %d experts have no %s", missing, len(list), what)
	}
	outIn, inOut := true, true
	for _, m := range list {
		if m.at.source == nil {
			return nil, fmt.Sprintf("%s of an expert is spread over several initializers", what)
		}
		if m.at.source.Constant().DataType != list[0].at.source.Constant().DataType || m.in != list[0].in || m.out != list[0].out {
			return nil, fmt.Sprintf("%s of the experts differ in type or shape: %q and %q", what, list[0].at.source.Name, m.at.source.Name)
		}
		outIn = outIn && m.block(false) != nil
		inOut = inOut && m.block(true) != nil
	}
	if !outIn && !inOut {
		return nil, fmt.Sprintf("%s of the experts are stored neither row by row nor column by column, or not all in the same order", what)
	}
	m := list[0]
	s = &stack{inOut: !outIn, dims: []int64{int64(len(list)), m.out, m.in}}
	switch {
	case m.byIn == 0: // a bias
		s.dims = s.dims[:2]
	case s.inOut:
		s.dims = []int64{s.dims[0], m.in, m.out}
	}
	for _, m := range list {
		s.blocks = append(s.blocks, m.block(s.inOut))
	}
	return s, ""
}
