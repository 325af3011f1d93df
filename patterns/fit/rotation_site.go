package fit

import (
	"maps"
	"slices"

	"github.com/mojo-patch/mojo-patch/fused"
	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/patterns/match"
	"github.com/mojo-patch/mojo-patch/patterns/site"
)

// site returns the site at which mojo.RotaryEmbedding replaces the rotation.
func (n *Rotation) site(g *match.View) *site.Site {
	s := site.New(g, fused.RotaryEmbeddingName, n.Y.Producer)
	x := s.Input(fused.NoRole, "x", n.X)
	cos, sin := n.table(s, g, "cos", n.Cos), n.table(s, g, "sin", n.Sin)
	s.Output(n.Y, s.Compute(fused.RotaryEmbedding{Interleaved: n.Interleaved, RotaryDim: int64(n.RotaryDim),
		RotatedSide: n.RotatedSide, OutputLayout: n.OutputLayout}, []string{"y"}, x, cos, sin)[0])
	s.Nodes = n.Nodes
	return s
}

// table converts a table to the axes of x.
func (n *Rotation) table(s *site.Site, g *match.View, name string, t Table) *site.Operand {
	v := s.Input(fused.NoRole, name, t.Value).Cast(g.Facts.DataType(n.X))
	rank, _ := g.Facts.Rank(t.Value)
	if d, _ := g.Facts.Dim(t.Value, t.Axis); int(d) != len(t.Channels) || !slices.IsSorted(t.Channels) {
		list := make([]int64, len(t.Channels))
		for i, c := range t.Channels {
			list[i] = int64(c)
		}
		v = v.Then("Gather", name+"_channels", []*site.Operand{s.Integers("channels", list...)},
			onnx.IntAttr("axis", int64(t.Axis)))
	}
	// Keep the axes that vary, in the order of x's axes, with the channels last.
	for axis := rank - 1; axis >= 0; axis-- {
		if place, fixed := t.Fixed[axis]; fixed {
			v = v.Then("Gather", name+"_part", []*site.Operand{s.Integer("place", int64(place))},
				onnx.IntAttr("axis", int64(axis)))
		}
	}
	var axes []int
	for axis := range rank {
		if _, fixed := t.Fixed[axis]; !fixed {
			axes = append(axes, axis)
		}
	}
	of := func(axis int) int {
		if axis == t.Axis {
			return 1 << 16
		}
		return t.Rows[axis]
	}
	perm := make([]int64, len(axes))
	for i := range perm {
		perm[i] = int64(i)
	}
	slices.SortFunc(perm, func(a, b int64) int { return of(axes[a]) - of(axes[b]) })
	if !slices.IsSorted(perm) {
		v = v.Transpose(name+"_axes", perm...)
	}
	first, _ := g.Facts.Rank(n.X)
	last := first - 1
	has := slices.Collect(maps.Values(t.Rows))
	for _, at := range has {
		first = min(first, at)
	}
	var missing []int64
	for axis := first; axis < last; axis++ {
		if !slices.Contains(has, axis) {
			missing = append(missing, int64(axis-first))
		}
	}
	if len(missing) > 0 {
		v = v.With("Unsqueeze", name+"_rows", "missing", missing...)
	}
	if t.Negative {
		v = v.Then("Neg", name+"_negated", nil)
	}
	return v
}
