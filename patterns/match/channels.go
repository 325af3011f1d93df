package match

import (
	"slices"

	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/patterns/reason"
	"github.com/mojo-patch/mojo-patch/reference"
)

// A Part is a part of the last axis of a value: every Step-th channel from From on, Size in all.
type Part struct {
	Of               *onnx.Value
	From, Size, Step int64
}

// channelsRoots are the ops that select a part of an axis.
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

// Part returns the part of another value's last axis that v is; all rows must be kept.
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

// sliceOf reads where a Slice begins in the last axis. It reports whether the other axes are unchanged.
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

// A HalfTurn is a constant matrix that turns each pair of channels by a right angle, as a rotary embedding does before
// multiplying by sines: (a, b) to (-b, a), or with Sign -1 to (b, -a).
type HalfTurn struct {
	Layout string // of the pairs: "halves", or "interleaved" for neighbors
	Sign   float64
}

// halfTurnView is the built-in view HalfTurn<layout=text, sign=n>().
func halfTurnView(g *View, v *onnx.Value) (*ViewMatch, *ViewMiss) {
	h := g.HalfTurn(v)
	if h == nil {
		return nil, &ViewMiss{At: v}
	}
	return &ViewMatch{Attributes: map[string]any{"layout": h.Layout, "sign": h.Sign}}, nil
}

// HalfTurn returns the half turn that v is, or nil.
func (g *View) HalfTurn(v *onnx.Value) *HalfTurn {
	turns := *Memo[map[*onnx.Value]*HalfTurn](g)
	if turns == nil {
		turns = map[*onnx.Value]*HalfTurn{}
		*Memo[map[*onnx.Value]*HalfTurn](g) = turns
	}
	h, known := turns[v]
	if !known {
		h = halfTurn(v.Constant())
		turns[v] = h
	}
	return h
}

func halfTurn(c *onnx.Tensor) *HalfTurn {
	if c == nil || !c.DataType.IsFloat() || c.Len() > maxFilled || len(c.Dims) < 2 {
		return nil
	}
	n := c.Dims[len(c.Dims)-1]
	if n < 2 || n%2 != 0 || n*n != int64(c.Len()) || c.Dims[len(c.Dims)-2] != n {
		return nil
	}
	t, err := reference.FromONNX(c)
	if err != nil {
		return nil
	}
	for _, h := range []HalfTurn{{"halves", 1}, {"halves", -1}, {"interleaved", 1}, {"interleaved", -1}} {
		if slices.Equal(t.F, h.elements(int(n))) {
			return &h
		}
	}
	return nil
}

// elements returns the matrix for n channels in row-major order.
func (h HalfTurn) elements(n int) []float64 {
	list := make([]float64, n*n)
	for i := range n / 2 {
		a, b := i, i+n/2
		if h.Layout == "interleaved" {
			a, b = 2*i, 2*i+1
		}
		list[b*n+a], list[a*n+b] = -h.Sign, h.Sign
	}
	return list
}
