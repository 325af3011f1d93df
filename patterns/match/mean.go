package match

import (
	"math"

	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/patterns/reason"
)

// meanRoots are the ops that may end a mean.
var meanRoots = []string{"ReduceMean", "Unsqueeze", "Reshape", "Div", "Mul"}

var noMean = reason.New("", nil, "no mean")

// meanOf returns the tensor x if v is the mean of x over the last axis, with that axis kept, or else why it is not. The
// mean is a ReduceMean, or a ReduceSum divided by the number of elements; the axis may be dropped and restored.
func (g *View) meanOf(v *onnx.Value) (x *onnx.Value, nodes []*onnx.Node, why *reason.Reason) {
	factor := 1.0 // still to be accounted for
	w := v
	for range MaxDetour {
		n := Producer(w)
		if n == nil || !onnx.IsStandardDomain(n.Domain) {
			return nil, nodes, noMean
		}
		nodes = append(nodes, n)
		switch n.OpType {
		case "Div":
			c, ok := g.Scale(n.Input(1))
			if !ok {
				return nil, nodes, reason.New("", n, "a quotient")
			}
			factor /= c
			w = g.Resolve(n.Input(0))
		case "Mul":
			c, ok := g.Scale(n.Input(1))
			w = n.Input(0)
			if !ok {
				if c, ok = g.Scale(n.Input(0)); !ok {
					return nil, nodes, reason.New("", n, "a product")
				}
				w = n.Input(1)
			}
			factor *= c
			w = g.Resolve(w)
		case "Unsqueeze", "Reshape": // the shape is checked below
			w = g.Resolve(n.Input(0))
		case "ReduceMean", "ReduceSum":
			x = n.Input(0)
			d, known := g.Facts.Dim(x, -1)
			switch {
			case !g.ReducesLastAxis(n):
				return nil, nodes, reason.New(reason.Axis, n, "%s of another axis", n.OpType)
			case n.OpType == "ReduceSum" && !known:
				return nil, nodes, reason.New(reason.Unknown, n, "ReduceSum of an axis of unknown size")
			case n.OpType == "ReduceSum":
				factor *= float64(d)
			}
			if math.Abs(factor-1) > 1e-6 {
				return nil, nodes, reason.New("", n, "%s times another number", n.OpType)
			}
			if _, known := g.Facts.Rank(x); !known {
				return nil, nodes, reason.New(reason.Unknown, n, "%s of a tensor of unknown shape", n.OpType)
			}
			if last, ok := g.Facts.Dim(v, -1); !ok || last != 1 || !g.SameRows(Block{v, 1}, Block{x, 1}) {
				return nil, nodes, reason.New(reason.AxisDropped, n, "%s without its axis kept", n.OpType)
			}
			return x, nodes, nil
		default:
			return nil, nodes, reason.New("", n, "%s", n.OpType)
		}
	}
	return nil, nodes, noMean
}

// Scale returns the number that a constant holds; ok is false for other values and for 0.
func (g *View) Scale(v *onnx.Value) (c float64, ok bool) {
	if v == nil {
		return 0, false
	}
	c, _, ok = g.Scalar(v)
	return c, ok && c != 0
}

// ReducesLastAxis reports whether a reduction is over only the last axis.
func (g *View) ReducesLastAxis(n *onnx.Node) bool {
	axes := n.AttrInts("axes")
	if v := n.Input(1); v != nil {
		axes, _ = g.Ints(v)
	}
	r, ok := g.Facts.Rank(n.Input(0))
	return len(axes) == 1 && (axes[0] == -1 || ok && axes[0] == int64(r)-1)
}
