package fit

import (
	"iter"
	"slices"

	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/patterns/match"
	"github.com/mojo-patch/mojo-patch/patterns/probe"
	"github.com/mojo-patch/mojo-patch/reference"
	"github.com/mojo-patch/mojo-patch/reference/infer"
)

const (
	// maxNodes bounds the nodes of a region, maxAhead the values after a seed that a block may end in.
	maxNodes = 64
	maxAhead = 24
)

// region is the nodes between operands and a result, which all of them are computed for. Its operands are in the
// graph's order; its nodes are in reverse order.
type region = probe.Region

// openValue is a value that a region reads and whose producer is not in it yet.
type openValue struct {
	*onnx.Value
	position int
	behind   bool // computed from a given value
}

// regions yields the regions that end in a value and have at most the given number of operands besides the given ones,
// the smallest first. Their nodes are not taken. The values computed from the given ones belong to all of them.
func (f *finder) regions(result *onnx.Value, operands int, given ...*onnx.Value) iter.Seq[*region] {
	return func(yield func(*region) bool) {
		var behind []*onnx.Value
		for _, v := range given {
			behind = append(behind, f.ahead(v)...)
		}
		open := make([]openValue, 0, 8)
		add := func(v *onnx.Value) {
			open = append(open, openValue{v, f.position(v), slices.Contains(behind, v)})
		}
		add(result)
		var nodes []*onnx.Node
		var sides, reached []*onnx.Value
		for len(nodes) < maxNodes && len(open) > 0 {
			n := lastOf(open).Producer
			if !f.budget.Spend(lookSteps*(2+len(open))) || n == nil || n.Graph != f.g.Graph || !f.mayStandInside(n) {
				return
			}
			nodes = append(nodes, n)
			open = slices.DeleteFunc(open, func(v openValue) bool { return v.Producer == n })
			for _, in := range f.g.Operands(n) {
				switch {
				case !f.budget.Spend(1 + len(open)/4 + len(behind)/8):
					return
				case in == nil || isOpen(open, in) || slices.Contains(sides, in) || slices.Contains(reached, in):
				case slices.Contains(given, in):
					reached = append(reached, in)
				case f.isSide(in):
					sides = append(sides, in)
				default:
					add(in)
				}
			}
			if len(open) > operands || len(reached) < len(given) ||
				slices.ContainsFunc(open, func(v openValue) bool { return v.behind }) {
				continue
			}
			r := &region{Operands: slices.Clip(reached), Result: result, Nodes: slices.Clip(nodes),
				Sides: slices.Clip(sides)}
			for _, v := range open {
				r.Operands = append(r.Operands, v.Value)
			}
			if !yield(r) {
				return
			}
		}
	}
}

func isOpen(open []openValue, v *onnx.Value) bool {
	return slices.ContainsFunc(open, func(o openValue) bool { return o.Value == v })
}

// lastOf returns the value that is computed last, so that no other depends on it. Values computed from given ones take
// precedence.
func lastOf(open []openValue) openValue {
	last := open[0]
	for _, v := range open[1:] {
		if v.behind && !last.behind || v.behind == last.behind && v.position > last.position {
			last = v
		}
	}
	return last
}

// joinsNear reports whether a region that ends in v may have two operands: whether a node that reads two values is
// among the last ones before v.
func (f *finder) joinsNear(v *onnx.Value) bool {
	if f.joins == nil {
		f.joins = make(map[*onnx.Value]int, len(f.g.Graph.Nodes))
		for _, n := range f.g.Graph.Nodes {
			away, first := 0, (*onnx.Value)(nil)
			for _, in := range f.g.Operands(n) {
				switch {
				case in == nil || in == first || f.isSide(in):
				case first != nil:
					away = 1
				default:
					if first = in; f.joins[in] > 0 {
						away = f.joins[in] + 1
					}
				}
			}
			if away > 0 {
				for _, out := range n.Outputs {
					if out != nil {
						f.joins[out] = away
					}
				}
			}
		}
	}
	away := f.joins[v]
	return away > 0 && away <= maxNodes
}

// position returns the position of v's producer in the graph, -1 for an input or an outer value.
func (f *finder) position(v *onnx.Value) int {
	if v.Producer == nil || v.Graph != f.g.Graph {
		return -1
	}
	return f.g.Position(v.Producer)
}

// mayStandInside reports whether a node may belong to a region.
func (f *finder) mayStandInside(n *onnx.Node) bool {
	if f.taken(n) {
		return false
	}
	is, ok := f.inside[n]
	if !ok {
		is = len(n.Subgraphs()) == 0 && !n.IsRandom() && !f.projects(n) && !f.without[n.OpType] &&
			(onnx.IsStandardDomain(n.Domain) || isNorm(n)) && !joinsMany(n)
		f.inside[n] = is
	}
	return is
}

// joinsMany reports whether a node reads the results of more nodes than a region may have.
func joinsMany(n *onnx.Node) bool {
	if len(n.Inputs) <= maxNodes {
		return false
	}
	makers := map[*onnx.Node]bool{}
	for _, v := range n.Inputs {
		if v != nil && v.Producer != nil && v.Constant() == nil {
			makers[v.Producer] = true
		}
	}
	return len(makers) > maxNodes
}

// foreign lists the ops that no block contains: image ops, and norms that are already fused
// (SimplifiedLayerNormalization is onnxruntime's, in the standard's domain).
var foreign = []string{"AveragePool", "BatchNormalization", "ConvTranspose", "LayerNormalization", "LpPool", "MaxPool",
	"Resize", "SimplifiedLayerNormalization"}

// projects reports whether a node multiplies with a matrix that is not a mean, a scale or a rotation.
func (f *finder) projects(n *onnx.Node) bool {
	if !n.IsProduct() {
		return false
	}
	return n.Is("Conv") || slices.ContainsFunc(n.Inputs, func(v *onnx.Value) bool {
		c := v.Constant()
		return c != nil && (c.Len() > maxSideElements || !n.Is("Einsum") && f.mixes(v))
	})
}

// maxKinds bounds the distinct numbers off the diagonal of a matrix that averages, scales, permutes or changes signs.
const maxKinds = 3

// mixes reports whether a constant is a matrix of weights, by its first rows and columns.
func (f *finder) mixes(v *onnx.Value) bool {
	c := v.Constant()
	if is, ok := f.mixing[v]; ok || len(c.Dims) != 2 || min(c.Dims[0], c.Dims[1]) < 2 || !c.DataType.IsFloat() {
		return is
	}
	rows, columns := min(c.Dims[0], 4), min(c.Dims[1], 4)
	corner, err := c.View("", []int64{rows, columns}, 0, []int64{c.Dims[1], 1})
	var t *reference.Tensor
	if err == nil {
		t, err = reference.FromONNX(corner)
	}
	kinds := map[float64]bool{}
	if err == nil {
		for i, x := range t.F {
			if int64(i)/columns != int64(i)%columns {
				kinds[x] = true
			}
		}
	}
	f.mixing[v] = err != nil || len(kinds) > maxKinds
	return f.mixing[v]
}

// isSide reports whether v is not data: a weight, or computed from weights and shapes. An input that is a vector may
// also be a weight.
func (f *finder) isSide(v *onnx.Value) bool {
	if is, ok := f.sides[v]; ok {
		return is
	}
	f.sides[v] = false // data, until it is known
	is := !f.g.IsData(v)
	switch rank, ok := f.g.Facts.Rank(v); {
	case is:
	case v.Producer == nil || v.Graph != f.g.Graph:
		is = ok && rank > 0 && f.g.Facts.DataType(v).IsFloat() && f.isGivenVector(v, rank)
	case v.Producer.Graph == f.g.Graph && len(v.Producer.Subgraphs()) == 0 && !v.Producer.IsRandom():
		is = !slices.ContainsFunc(f.g.Operands(v.Producer),
			func(in *onnx.Value) bool { return in != nil && !f.isSide(in) })
	}
	f.sides[v] = is
	return is
}

// isGivenVector reports whether an input has a known length along one axis and size 1 along all others. With such
// others, it is a vector only if another input has open axes; otherwise it may be the data of a graph with one row.
func (f *finder) isGivenVector(v *onnx.Value, rank int) bool {
	long := 0
	for axis := range rank {
		d, ok := f.g.Facts.Dim(v, axis)
		if !ok {
			return false
		}
		if d != 1 {
			long++
		}
	}
	return rank == 1 || long == 1 && slices.ContainsFunc(f.g.Graph.Inputs, func(in *onnx.Value) bool {
		n, ok := f.g.Facts.Rank(in)
		_, static := f.g.Facts.Dim(in, 0)
		return ok && n > 1 && f.g.Facts.DataType(in).IsFloat() && !static
	})
}

// varies reports whether the elements of a side, and not just its shape, follow from sizes that the model leaves open.
func (f *finder) varies(v *onnx.Value) bool {
	if v == nil || v.Constant() != nil || v.Producer == nil || v.Graph != f.g.Graph {
		return false
	}
	if is, ok := f.varying[v]; ok {
		return is
	}
	f.varying[v] = false // until it is known
	_, is := f.g.Facts.Constant(v)
	is = !is
	switch n := v.Producer; n.OpType {
	case "Shape", "Size":
	case "Expand", "Reshape", "Tile", "Unsqueeze", "Squeeze":
		is = is && f.varies(n.Input(0))
	case "ConstantOfShape":
		is = false
	default:
		is = is && slices.ContainsFunc(f.g.Operands(n), f.varies)
	}
	f.varying[v] = is
	return is
}

// followsSizes reports whether numbers or conditions that a region reads follow from sizes that the model leaves open,
// such as positions.
func (f *finder) followsSizes(r *region) bool {
	return slices.ContainsFunc(r.Sides, func(v *onnx.Value) bool {
		t := f.g.Facts.DataType(v)
		return (t.IsFloat() || t == onnx.Bool) && f.varies(v) || f.g.Facts.Loose(v)
	})
}

// ahead lists the values that nodes of a region may compute from a value, the last first: a block may end there.
func (f *finder) ahead(from *onnx.Value) []*onnx.Value {
	if list, ok := f.behind[from]; ok {
		return list
	}
	list := []*onnx.Value{from}
	for i := 0; i < len(list) && len(list) < maxAhead; i++ {
		for _, n := range f.g.Readers(list[i]) {
			if !f.budget.Spend(lookSteps * (1 + len(list)/8)) {
				return nil
			}
			if n.Is("Shape") || !f.mayStandInside(n) {
				continue
			}
			for _, v := range n.Outputs {
				if v != nil && !slices.Contains(list, v) {
					list = append(list, v)
				}
			}
		}
	}
	slices.SortStableFunc(list, func(a, b *onnx.Value) int { return f.position(b) - f.position(a) })
	f.behind[from] = list
	return list
}

// factor returns the number of elements of v for each element of of, if it is the same in all worlds, or 0.
func (f *finder) factor(v, of *onnx.Value) int64 {
	var k int64
	for w := range infer.Worlds {
		a, ok1 := f.g.Facts.Shape(v, w)
		b, ok2 := f.g.Facts.Shape(of, w)
		if !ok1 || !ok2 {
			return 0
		}
		n, m := match.Elements(a), match.Elements(b)
		if m == 0 || n%m != 0 || w > 0 && n/m != k {
			return 0
		}
		k = n / m
	}
	return k
}
