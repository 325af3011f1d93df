package patterns

import (
	"slices"
	"strings"

	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/patterns/match"
)

// expertProduct is a matrix product with the weights of experts that are stored as one constant, of those that the choice picks, of one
// after the other, or of all at once.
type expertProduct struct {
	node    *onnx.Node
	rows    *onnx.Value // the other operand
	weights *stack
}

// stackedProduct reads a node as such a product; nil for other nodes.
func stackedProduct(g *match.View, n *onnx.Node, experts int64) *expertProduct {
	if !onnx.IsStandardDomain(n.Domain) || !match.IsProduct(n) || n.Is("Conv") {
		return nil
	}
	for i, v := range n.Inputs {
		w := pickedStack(g, v, experts)
		if w == nil {
			continue
		}
		if rank, _ := g.Facts.Rank(w.stack); rank != 3 {
			continue
		}
		at, rows := contracted(n, i, w.axes)
		if rows == nil || at < 0 || at >= len(w.axes) || w.axes[at] < 1 || !slices.Contains(w.axes, 3-w.axes[at]) ||
			w.part != nil && w.part.axis == w.axes[at] {
			continue
		}
		return &expertProduct{node: n, rows: rows, weights: &stack{parts: []*onnx.Value{w.stack}, inOut: w.axes[at] == 1, part: w.part}}
	}
	return nil
}

// contracted returns the axis of operand i, a block of weights, that a product sums over, and the operand that it is multiplied with
// along it; nil when there is none.
func contracted(n *onnx.Node, i int, axes []int) (at int, rows *onnx.Value) {
	rank := len(axes)
	switch n.OpType {
	case "MatMul":
		if i == 0 || rank == 1 {
			return rank - 1, n.Input(1 - i)
		}
		return rank - 2, n.Input(0)
	case "Gemm":
		switch i {
		case 0:
			return 1 - int(n.AttrInt("transA", 0)), n.Input(1)
		case 1:
			return int(n.AttrInt("transB", 0)), n.Input(0)
		}
	case "Einsum":
		in, out, ok := strings.Cut(strings.ReplaceAll(n.AttrString("equation", ""), " ", ""), "->")
		terms := strings.Split(in, ",")
		if !ok || len(terms) != len(n.Inputs) || len(terms[i]) != rank || strings.Contains(in, ".") {
			return -1, nil
		}
		at = -1
		for k, letter := range terms[i] {
			if axes[k] < 1 || strings.ContainsRune(out, letter) {
				continue
			}
			if at >= 0 {
				return -1, nil
			}
			at = k
			for j, term := range terms {
				if j != i && strings.ContainsRune(term, letter) {
					rows = n.Inputs[j]
				}
			}
		}
	}
	return at, rows
}

// picked is what a value holds of a constant with a block for each expert.
type picked struct {
	stack *onnx.Value
	axes  []int // of the value, as axes of the stack: 0 for the experts, -1 for one that the stack does not have
	part  *part // nil when blocks are whole
}

// part is a part of the blocks of a stack: n places of an axis, from one on, in steps.
type part struct {
	axis          int
	from, step, n int64
}

// pickedStack goes back from v to the constant with a block for each expert that it is made of by picking experts, views and
// casts; nil when it is made otherwise.
func pickedStack(g *match.View, v *onnx.Value, experts int64) *picked {
	var path []*onnx.Value // from v back
	last := -1             // of a constant with a block for each expert, in path
	for u := v; u != nil && len(path) < 2*match.MaxDetour; u = u.Producer.Input(0) {
		rank, _ := g.Facts.Rank(u)
		d, ok := g.Facts.Dim(u, 0)
		if isStack := !g.IsData(u) && ok && d == experts && rank > 1 && g.Facts.DataType(u).IsFloat(); isStack {
			if last >= 0 {
				if r, _ := g.Facts.Rank(path[last]); r != rank {
					break
				}
			}
			last = len(path)
		} else if last >= 0 {
			break
		}
		path = append(path, u)
		if n := u.Producer; u.Constant() != nil || n == nil || !onnx.IsStandardDomain(n.Domain) || !match.IsView[n.OpType] && !match.IsPick(n) && !n.Is("Identity") {
			break
		}
	}
	if last < 0 {
		return nil
	}
	p := &picked{stack: path[last]}
	rank, _ := g.Facts.Rank(p.stack)
	for i := range rank {
		p.axes = append(p.axes, i)
	}
	for i := last - 1; i >= 0; i-- {
		if n := path[i].Producer; n.Is("Slice") || n.Is("Split") {
			if !cutPart(g, path[i], p) {
				return nil
			}
		} else if p.axes = axesAfter(g, path[i], p.axes); p.axes == nil {
			return nil
		}
	}
	return p
}

// cutPart is for slices and splits of experts, which change nothing about their blocks, and of one axis of the blocks.
func cutPart(g *match.View, v *onnx.Value, p *picked) bool {
	n := v.Producer
	for i, a := range p.axes {
		before, ok1 := g.Facts.Dim(n.Input(0), i)
		after, ok2 := g.Facts.Dim(v, i)
		if a < 1 || ok1 && ok2 && before == after {
			continue
		}
		if p.part != nil || !ok1 || !ok2 {
			return false
		}
		p.part = &part{axis: a, step: 1, n: after}
		switch n.OpType {
		case "Split":
			for _, w := range n.Outputs[:v.Output] {
				d, ok := g.Facts.Dim(w, i)
				if !ok {
					return false
				}
				p.part.from += d
			}
		case "Slice":
			starts, axes, steps, ok := g.SliceOf(n)
			k := slices.IndexFunc(axes, func(a int64) bool { return a == int64(i) || a == int64(i-len(p.axes)) })
			if !ok || k < 0 || steps[k] < 1 {
				return false
			}
			if p.part.from, p.part.step = starts[k], steps[k]; p.part.from < 0 {
				p.part.from += before
			}
		}
	}
	return true
}

// axesAfter returns the axes of v, which a node makes of a value with these axes; nil when one of a block's axes is lost.
func axesAfter(g *match.View, v *onnx.Value, axes []int) []int {
	n := v.Producer
	rank, ok := g.Facts.Rank(v)
	if !ok {
		return nil
	}
	place := func(a int64, rank int) int {
		if a < 0 {
			a += int64(rank)
		}
		return int(a)
	}
	switch n.OpType {
	case "Identity", "Cast":
		return axes
	case "Transpose":
		perm := n.AttrInts("perm")
		if perm == nil {
			r := slices.Clone(axes)
			slices.Reverse(r)
			return r
		}
		var r []int
		for _, p := range perm {
			if p < 0 || int(p) >= len(axes) {
				return nil
			}
			r = append(r, axes[p])
		}
		return r
	case "Gather": // of experts
		at := place(n.AttrInt("axis", 0), len(axes))
		if at < 0 || at >= len(axes) || axes[at] > 0 {
			return nil
		}
		return slices.Concat(axes[:at], repeatInt(-1, rank-len(axes)+1), axes[at+1:])
	case "GatherND":
		depth, ok := g.Facts.Dim(n.Input(1), -1)
		at := int(n.AttrInt("batch_dims", 0)) + int(depth)
		if !ok || at > len(axes) || slices.Max(axes[:at]) > 0 {
			return nil
		}
		return append(repeatInt(-1, rank-len(axes)+at), axes[at:]...)
	case "Reshape", "Flatten", "Squeeze", "Unsqueeze", "Expand", "Tile":
		return axesOfReshape(g, n.Input(0), v, axes)
	}
	return nil
}

func repeatInt(x, n int) []int {
	r := make([]int, max(n, 0))
	for i := range r {
		r[i] = x
	}
	return r
}

// axesOfReshape follows the axes of blocks through a change of shape: they keep their sizes and their order.
func axesOfReshape(g *match.View, from, to *onnx.Value, axes []int) []int {
	rank, _ := g.Facts.Rank(to)
	r := repeatInt(-1, rank)
	i := rank - 1
	for k := len(axes) - 1; k >= 0; k-- {
		if axes[k] < 0 {
			continue
		}
		d, ok := g.Facts.Dim(from, k)
		for ; i >= 0; i-- {
			if e, known := g.Facts.Dim(to, i); ok && known && d == e {
				break
			}
		}
		if i < 0 {
			if axes[k] == 0 { // an expert taken out of the stack
				continue
			}
			return nil
		}
		r[i] = axes[k]
		i--
	}
	return r
}
