package match

import (
	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/patterns/reason"
)

// Part is a part of the last axis of a value: Size of its channels from the one at From on, every Step-th.
type Part struct {
	Of               *onnx.Value
	From, Size, Step int64
}

// channelsRoots are the ops that take parts of an axis.
var channelsRoots = []string{"Slice", "Split", "Gather"}

// channelsView is the built-in view Channels<from=m, size=n, step=k>(x).
func channelsView(g *View, v *onnx.Value) (*ViewMatch, *ViewMiss) {
	p, ok := g.Part(v)
	if !ok {
		return nil, &ViewMiss{v, reason.New("", v.Producer, "no part of the last axis"), nil}
	}
	return &ViewMatch{Operands: []Block{{p.Of, 1}}, Nodes: []*onnx.Node{v.Producer},
		Attributes: map[string]any{"from": float64(p.From), "size": float64(p.Size), "step": float64(p.Step)}}, nil
}

// Part returns what part of the last axis of another value v is, and of all its rows.
func (g *View) Part(v *onnx.Value) (p Part, ok bool) {
	n := v.Producer
	if n == nil || !onnx.IsStandardDomain(n.Domain) || n.Input(0) == nil {
		return p, false
	}
	p = Part{Of: n.Inputs[0], Step: 1}
	rank, ok1 := g.Facts.Rank(p.Of)
	size, ok2 := g.Facts.Dim(v, -1)
	if !ok1 || !ok2 || rank == 0 || !g.SameRows(Block{v, 1}, Block{p.Of, 1}) {
		return p, false
	}
	p.Size = size
	last := func(axis int64) bool { return axis == -1 || axis == int64(rank)-1 }
	switch n.OpType {
	case "Slice":
		ok = g.sliceOf(n, &p, last)
	case "Split":
		if ok = last(n.AttrInt("axis", 0)); ok {
			for _, before := range n.Outputs[:v.Output] {
				size, known := g.Facts.Dim(before, -1)
				p.From, ok = p.From+size, ok && known
			}
		}
	case "Gather":
		list, known := g.Ints(n.Input(1))
		if ok = known && last(n.AttrInt("axis", 0)) && len(list) > 1 && list[0] >= 0; ok {
			p.From, p.Step = list[0], list[1]-list[0]
			for i, at := range list {
				ok = ok && at == p.From+int64(i)*p.Step
			}
		}
	}
	return p, ok
}

// sliceOf reads where a Slice begins in the last axis; it reports whether it leaves all others.
func (g *View) sliceOf(n *onnx.Node, p *Part, last func(axis int64) bool) bool {
	starts, axes, steps, ok := g.SliceOf(n)
	size, known := g.Facts.Dim(p.Of, -1)
	found := false
	for i, axis := range axes {
		switch {
		case last(axis):
			p.From, p.Step, found = starts[i], steps[i], true
			if p.From < 0 {
				p.From += size
			}
		case steps[i] != 1:
			ok = false
		}
	}
	return ok && known && found && p.Step > 0 && p.From >= 0
}
