package linear

import (
	"slices"

	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/patterns/match"
)

// isSeed reports whether a node sums numbers along an axis, as decays do, or is a loop with a state.
func isSeed(g *match.View, n *onnx.Node) bool {
	if n.Is("CumSum") {
		v := n.OutputValue(0)
		return v != nil && g.Facts.DataType(v).IsFloat() && g.IsData(v)
	}
	return (n.Is("Scan") || n.Is("Loop")) && len(n.Outputs) > 1 || n.Is("Exp") && isUnrolled(g, n)
}

// isUnrolled reports whether factors of states are read token by token, each by a Gather of its own.
func isUnrolled(g *match.View, n *onnx.Node) bool {
	v := n.OutputValue(0)
	if rank, ok := g.Facts.Rank(v); !ok || rank < 4 || !g.IsData(v) {
		return false
	}
	readers := g.Readers(v)
	return len(readers) > 1 && !slices.ContainsFunc(readers, func(r *onnx.Node) bool {
		return !r.Is("Gather") || r.Input(0) != v || r.Input(1) == nil || r.Input(1).Constant() == nil
	})
}

// views lists the ops that move elements.
var views = []string{"Expand", "Flatten", "Identity", "Reshape", "Squeeze", "Transpose", "Unsqueeze"}

// maxScores bounds the nodes between scores and the values.
const maxScores = 12

// isScores reports whether a product of data reaches another product through a mask and nodes that compute each element
// in its place, so without a softmax.
func isScores(g *match.View, n *onnx.Node) bool {
	if !n.IsProduct() || n.Input(0) == nil || n.Input(1) == nil || !g.IsData(n.Input(0)) || !g.IsData(n.Input(1)) {
		return false
	}
	masked := false
	for range maxScores {
		v := n.OutputValue(0)
		if v == nil || v.IsOutput() {
			return false
		}
		readers := slices.DeleteFunc(slices.Clone(g.Readers(v)), isSize)
		if len(readers) != 1 {
			return false
		}
		n = readers[0]
		switch {
		case n.IsProduct():
			return masked && slices.Contains(n.Inputs, v)
		case n.Is("Trilu"):
			masked = true
		case slices.Contains(views, n.OpType):
		case slices.Contains(everywhere, n.OpType):
			masked = masked || slices.ContainsFunc(n.Inputs, func(in *onnx.Value) bool { return isMask(g, in) })
		default:
			return false
		}
	}
	return false
}

func isSize(n *onnx.Node) bool { return n.Is("Shape") || n.Is("Size") }

// isMask reports whether a value that no input determines has two axes of more than one element.
func isMask(g *match.View, v *onnx.Value) bool {
	if v == nil || g.IsData(v) {
		return false
	}
	shape, ok := g.Facts.Shape(v, 0)
	return ok && len(shape) > 1 && shape[len(shape)-1] > 1 && shape[len(shape)-2] > 1
}

// maxStates bounds the values that are tried as the state after the last token.
const maxStates = 4

// findAll is find for scores. Rows of a block may pass through sums with rows of the state before, so it takes the
// last exit that the op computes. Nothing that depends on the scores is the state, so it is searched for among all
// values.
func (s *span) findAll(seed *onnx.Node) bool {
	var best *span
	for _, e := range s.exits(seed) {
		if n := e.rows.Producer; best != nil && (n.Is("Cast") || n.Is("Identity")) {
			continue // the match of a norm behind it may read through it
		}
		next := *s
		next.rows, next.blocks, e.state = e.rows, true, nil
		found := false
		for _, bare := range []bool{true, false} {
			next.read, next.roles, next.bare = nil, roles{}, bare
			if found = slices.ContainsFunc(rowAxes, func(axes [2]int) bool { return next.ends(e, axes) }); found {
				best = &next
				break
			}
		}
		if best != nil && !found && !next.isJoined() {
			break
		}
	}
	if best == nil {
		return false
	}
	*s = *best
	s.withState()
	return true
}

// withState makes the op compute the state after the last token too, if a value is found that always equals it.
func (s *span) withState() {
	for _, v := range s.states() {
		next := *s
		if next.present = v; next.cut(nil) && next.closed() && next.holds(next.factor) {
			*s = next
			return
		}
	}
}

// states lists values computed from keys, values and gates only that may be the state after the last token, the last
// first.
func (s *span) states() (list []*onnx.Value) {
	const keys, values, gates, others = 1, 2, 4, 8
	from := map[*onnx.Value]int{s.k.Value: keys, s.v.Value: values}
	for _, o := range []*operand{s.decay, s.beta} {
		if o != nil {
			from[o.Value] |= gates
		}
	}
	if s.past != nil {
		from[s.past] |= gates
	}
	n := s.batch[0] * s.heads * s.key * s.val
	for _, x := range s.g.Graph.Nodes {
		var of int
		for _, v := range s.operands(x) {
			switch {
			case from[v] > 0:
				of |= from[v]
			case s.g.IsData(v):
				of |= others
			}
		}
		v := x.OutputValue(0)
		if v == nil || len(x.Outputs) != 1 || of == 0 || of >= others || isSize(x) || from[v] > 0 {
			continue
		}
		from[v] = of
		shape, ok := s.shapeIn(v, 0)
		// A state between blocks may equal the last one in worlds of few tokens, but nothing else reads it.
		read := v.IsOutput() || slices.ContainsFunc(s.g.Readers(v), func(r *onnx.Node) bool {
			return !slices.Contains(s.nodes, r)
		})
		fits := ok && len(shape) > 1 && match.Elements(shape) == n && s.fixed(v)
		if of&keys != 0 && of&values != 0 && read && fits && !s.isView(x) {
			list = append(list, v)
		}
	}
	slices.Reverse(list)
	return list[:min(len(list), maxStates)]
}

// isView reports whether a node returns the elements of a state in their order.
func (s *span) isView(n *onnx.Node) bool {
	return slices.Contains(views, n.OpType) && !n.Is("Transpose") && !n.Is("Expand") && s.fixed(n.Input(0))
}

// fixed reports whether the size of each axis except the first, the sequences, is known.
func (s *span) fixed(v *onnx.Value) bool {
	rank, ok := s.g.Facts.Rank(v)
	for axis := 1; ok && axis < rank; axis++ {
		_, ok = s.g.Facts.Dim(v, axis)
	}
	return ok
}
