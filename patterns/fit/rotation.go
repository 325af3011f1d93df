package fit

import (
	"slices"

	"github.com/mojo-patch/mojo-patch/fused"
	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/patterns/match"
	"github.com/mojo-patch/mojo-patch/patterns/probe"
	"github.com/mojo-patch/mojo-patch/patterns/site"
	"github.com/mojo-patch/mojo-patch/reference"
)

// A Rotation is a rotary position embedding. Its fields are like mojo.RotaryEmbedding's.
type Rotation struct {
	X, Y         *onnx.Value
	Nodes        []*onnx.Node
	Cos, Sin     Table
	Interleaved  bool
	RotaryDim    int
	RotatedSide  string
	OutputLayout string
}

// pair holds the indexes of two channels that are rotated together in x, and of their results in y.
type pair struct{ a, b, first, second int }

// maxRotated bounds the channels of a head.
const maxRotated = 512

// Rotations finds rotary embeddings among the nodes that are not taken.
func Rotations(g *match.View, others site.Others) (sites []*site.Site, misses []*match.Miss) {
	f := newFinder(g, fused.RotaryEmbeddingName, others, activations...)
	known := probe.Readings[Rotation]{}
	tried := map[*onnx.Value]bool{}
	for i := len(g.Graph.Nodes) - 1; i >= 0; i-- {
		if n := g.Graph.Nodes[i]; f.joinsTable(n) {
			if r := f.rotationAt(n, known, tried); r != nil && !others.Write(r.Y) {
				sites = append(sites, r.site(g))
			}
		}
	}
	slices.Reverse(sites)
	return sites, f.misses
}

// joinsTable reports whether a node multiplies rows with values computed from sines, or with a tensor of fewer numbers
// or axes than the result that is not a vector of weights.
func (f *finder) joinsTable(n *onnx.Node) bool {
	if !(n.Is("Mul") || n.Is("Einsum") || n.Is("MatMul")) || len(n.Outputs) == 0 || n.Outputs[0] == nil || f.taken(n) ||
		!f.g.Facts.DataType(n.Outputs[0]).IsFloat() || n.Is("MatMul") && slices.ContainsFunc(n.Inputs, isMatrix) {
		return false
	}
	out, ok := f.lab.Shape(n.Outputs[0])
	if !ok || len(out) < 2 {
		return false
	}
	least, tables, broadcast := 0, 0, false
	for _, v := range n.Inputs {
		shape, ok := f.lab.Shape(v)
		if !ok || len(shape) == 0 || shape[len(shape)-1] < 2 ||
			v.Constant() != nil && !n.Is("Einsum") && (isVector(v.Constant()) || f.plain(v)) {
			return false
		}
		if size := match.Elements(shape); least == 0 || size < least {
			least = size
		}
		if f.tabular(v) {
			tables++
		}
		broadcast = broadcast || len(shape) < len(out) // a table of as many rows as a batch of one
	}
	return (tables > 0 && tables < len(n.Inputs) || least > 1 && (least < match.Elements(out) || broadcast)) &&
		f.mayStandInside(n) && !f.isSide(n.Outputs[0])
}

// isVector reports whether all axes of a constant except one have size 1: it is the same for all positions.
func isVector(c *onnx.Tensor) bool { return slices.Contains(c.Dims, c.Len()) }

// isMatrix reports whether a value is a constant matrix, which is the same for all positions.
func isMatrix(v *onnx.Value) bool { return v.Constant() != nil && len(v.Constant().Dims) == 2 }

// tabular reports whether a value is computed only from sines and cosines, or from rows of a table.
func (f *finder) tabular(v *onnx.Value) bool {
	if is, ok := f.tables[v]; ok {
		return is
	}
	f.tables[v] = false
	n := v.Producer
	is := n != nil && v.Graph == f.g.Graph && (n.Is("Sin") || n.Is("Cos") || f.picksTable(n))
	if !is && n != nil && v.Graph == f.g.Graph && len(n.Subgraphs()) == 0 && !n.Is("Shape") {
		for _, in := range n.Inputs {
			switch {
			case in == nil || !f.g.Facts.DataType(in).IsFloat():
			case f.tabular(in):
				is = true
			case f.g.IsData(in):
				is = false
				f.tables[v] = false
				return false
			}
		}
	}
	f.tables[v] = is
	return is
}

// plain reports whether a constant is a number or a matrix of signs, and so not a table.
func (f *finder) plain(v *onnx.Value) bool {
	c := v.Constant()
	if !c.DataType.IsFloat() || c.Len() <= 1 || len(c.Dims) < 2 && c.Len() < 2 {
		return true
	}
	if c.Len() > maxSideElements {
		return false
	}
	is, ok := f.plains[v]
	if !ok {
		t, err := reference.FromONNX(c)
		is = err == nil && !slices.ContainsFunc(t.F, func(x float64) bool { return x != 0 && x != 1 && x != -1 })
		f.plains[v] = is
	}
	return is
}

// rotationAt finds the largest rotation that a seed belongs to.
func (f *finder) rotationAt(seed *onnx.Node, known probe.Readings[Rotation], tried map[*onnx.Value]bool) *Rotation {
	f.budget.Begin(seed)
	for _, y := range f.ahead(seed.Outputs[0]) {
		if tried[y] || f.taken(y.Producer) {
			continue
		}
		tried[y] = true
		if f.budget.Spent() {
			return nil
		}
		for _, x := range f.alikeBefore(y) {
			if f.budget.Spent() {
				return nil
			}
			for _, r := range f.rotated(x, y) {
				own := func(of *Rotation, stands func(*onnx.Value) *onnx.Value) *Rotation {
					n := *of
					n.X, n.Y, n.Nodes = stands(n.X), r.Result, r.Nodes
					n.Cos.Value, n.Sin.Value = stands(n.Cos.Value), stands(n.Sin.Value)
					if !f.ofOneAngle(&n.Cos, &n.Sin) {
						return nil
					}
					return &n
				}
				if n, _ := reading(f, known, r, f.readRotation, own); n != nil {
					f.take(r)
					return n
				}
			}
		}
	}
	return nil
}

// alikeBefore lists the values that y is computed from and that have its shape and type, the nearest first.
func (f *finder) alikeBefore(y *onnx.Value) []*onnx.Value {
	var list []*onnx.Value
	left, kind := 2*maxNodes, f.g.Facts.DataType(y)
	var before []*onnx.Value // the inputs of the current value
	for v := range onnx.Reach(func(v *onnx.Value) []*onnx.Value {
		n := v.Producer
		if n == nil || v.Graph != f.g.Graph || !f.mayStandInside(n) || v != y && n.IsProduct() && !f.g.IsData(v) {
			return nil
		}
		before = before[:0]
		for _, v := range n.Inputs {
			if v != nil && !f.isSide(v) {
				before = append(before, v)
			}
		}
		return before
	}, y) {
		if left--; left < 0 || !f.budget.Spend(shapeSteps*(1+len(v.MadeFrom()))) {
			break
		}
		if v != y && f.g.Facts.DataType(v) == kind && f.g.Facts.SameShape(v, y) {
			list = append(list, v)
		}
	}
	return list
}

// rotated lists the regions from x and tables to y, those with the smallest tables first.
func (f *finder) rotated(x, y *onnx.Value) []*region {
	shape, ok := f.lab.Shape(x)
	if !ok || len(shape) == 0 {
		return nil
	}
	_, fixed := f.g.Facts.Dim(x, -1)
	last := shape[len(shape)-1]
	if !fixed || last < 2 || last > maxRotated || match.Elements(shape) == 0 ||
		match.Elements(shape) > maxRunElements/last {
		return nil
	}
	var list []*region
	open := []openValue{{y, f.position(y), false}}
	var nodes []*onnx.Node
	var tables, sides []*onnx.Value
	for len(nodes) < 2*maxNodes && len(open) > 0 {
		v := lastOf(open)
		n := v.Producer
		if !f.budget.Spend(lookSteps * (2 + len(open) + len(sides)/8)) {
			return nil
		}
		if v.position < 0 || n.Is("Sin") || n.Is("Cos") || !f.mayStandInside(n) || f.picksTable(n) {
			if f.g.Facts.SameShape(v.Value, y) || !f.g.Facts.DataType(v.Value).IsFloat() {
				break
			}
			tables = append(tables, v.Value)
			open = slices.DeleteFunc(open, func(w openValue) bool { return w == v })
		} else {
			nodes = append(nodes, n)
			open = slices.DeleteFunc(open, func(v openValue) bool { return v.Producer == n })
			for _, in := range f.g.Operands(n) {
				switch {
				case !f.budget.Spend(1 + len(open)/4):
					return nil
				case in == nil || in == x || isOpen(open, in) || slices.Contains(tables, in):
				case f.opens(in):
					open = append(open, openValue{in, f.position(in), false})
				case !slices.Contains(sides, in):
					sides = append(sides, in)
				}
			}
		}
		if k := len(open) + len(tables); k == 1 || k == 2 {
			r := &region{Operands: slices.Concat([]*onnx.Value{x}, tables), Result: y,
				Nodes: slices.Clip(nodes), Sides: slices.Clip(sides)}
			for _, v := range open {
				r.Operands = append(r.Operands, v.Value)
			}
			list = append(list, r)
		}
	}
	slices.Reverse(list)
	return slices.DeleteFunc(list, func(r *region) bool {
		return !slices.ContainsFunc(r.Nodes, func(n *onnx.Node) bool { return slices.Contains(n.Inputs, x) }) ||
			slices.ContainsFunc(r.Operands[1:], func(v *onnx.Value) bool {
				return !f.g.Facts.DataType(v).IsFloat() || f.g.Facts.SameShape(v, y)
			})
	})
}

// picksTable reports whether a node picks rows of a table of constants.
func (f *finder) picksTable(n *onnx.Node) bool {
	return match.IsPick(n) && n.Input(0) != nil && n.Input(0).Constant() != nil &&
		n.Input(0).Constant().DataType.IsFloat()
}

// opens reports whether a value may be computed from tables: it is not a shape, a number or a matrix of signs.
func (f *finder) opens(v *onnx.Value) bool {
	switch {
	case !f.g.Facts.DataType(v).IsFloat():
		return f.g.IsData(v)
	case v.Constant() != nil:
		return !f.plain(v)
	}
	t, ok := f.g.Facts.Constant(v)
	return !ok || slices.ContainsFunc(t.F, func(x float64) bool { return x != 0 && x != 1 && x != -1 }) && len(t.F) > 1
}
