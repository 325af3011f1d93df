package patterns

import (
	"math"

	"github.com/mojo-patch/mojo-patch/onnx"
)

// meanRoots are the ops that may write a mean.
var meanRoots = []string{"ReduceMean", "Unsqueeze", "Reshape", "Div", "Mul"}

// meanOf returns the tensor whose mean over the last axis v is, with that axis kept: a ReduceMean, or a ReduceSum that is divided
// by the number of elements, which may drop the axis and have it put back.
func (g *graphView) meanOf(v *onnx.Value) (x *onnx.Value, nodes []*onnx.Node, why string) {
	factor := 1.0 // of what is still to be found
	w := v
	for range maxDetour {
		n := producer(w)
		if n == nil || !onnx.IsStandardDomain(n.Domain) {
			return nil, nodes, "no mean"
		}
		nodes = append(nodes, n)
		switch n.OpType {
		case "Div":
			c, ok := g.scale(n.Input(1))
			if !ok {
				return nil, nodes, "a quotient"
			}
			factor /= c
			w = g.resolve(n.Input(0))
		case "Mul":
			c, ok := g.scale(n.Input(1))
			w = n.Input(0)
			if !ok {
				if c, ok = g.scale(n.Input(0)); !ok {
					return nil, nodes, "a product"
				}
				w = n.Input(1)
			}
			factor *= c
			w = g.resolve(w)
		case "Unsqueeze", "Reshape": // its shape is looked at below
			w = g.resolve(n.Input(0))
		case "ReduceMean", "ReduceSum":
			x = n.Input(0)
			d, known := g.facts.Dim(x, -1)
			switch {
			case !g.reducesLastAxis(n):
				return nil, nodes, n.OpType + " of another axis"
			case n.OpType == "ReduceSum" && !known:
				return nil, nodes, "ReduceSum of an axis of unknown size"
			case n.OpType == "ReduceSum":
				factor *= float64(d)
			}
			if math.Abs(factor-1) > 1e-6 {
				return nil, nodes, n.OpType + " times another number"
			}
			t := newTracer(g)
			if _, known := g.facts.Rank(x); !known {
				return nil, nodes, n.OpType + " of a tensor of unknown shape"
			}
			if last, ok := g.facts.Dim(v, -1); !ok || last != 1 || !t.sameRows(block{v, 1}, block{x, 1}) {
				return nil, nodes, n.OpType + " without its axis kept"
			}
			return x, nodes, ""
		default:
			return nil, nodes, n.OpType
		}
	}
	return nil, nodes, "no mean"
}

// scale returns the number that a constant holds; ok is false for other values and for 0.
func (g *graphView) scale(v *onnx.Value) (c float64, ok bool) {
	if v == nil {
		return 0, false
	}
	c, _, ok = g.scalar(v)
	return c, ok && c != 0
}

func (g *graphView) reducesLastAxis(n *onnx.Node) bool {
	axes := n.AttrInts("axes")
	if v := n.Input(1); v != nil {
		axes, _ = g.ints(v)
	}
	r, ok := g.facts.Rank(n.Input(0))
	return len(axes) == 1 && (axes[0] == -1 || ok && axes[0] == int64(r)-1)
}
