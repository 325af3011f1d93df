package patterns

import (
	"maps"
	"slices"

	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/patterns/fit"
)

var fitRotaryForm = &goForm{name: "fit:RotaryEmbedding", op: "RotaryEmbedding", joins: true,
	find: findFittedRotations}

func findFittedRotations(f *finder, d *goForm) []*Match {
	rotations, misses := fit.Rotations(f.view, func(n *onnx.Node) bool { return f.claimed[n] })
	f.near = append(f.near, misses...)
	var found []*Match
	for _, n := range rotations {
		if f.written[n.Y] {
			continue
		}
		r := f.newReplacement(d, n.Y.Producer)
		x := r.input(NoRole, "x", n.X)
		out := r.fused([]*onnx.Value{x, r.table("cos", n.Cos, n), r.table("sin", n.Sin, n)}, []string{"y"},
			onnx.IntAttr("interleaved", boolToInt(n.Interleaved)), onnx.IntAttr("rotary_dim", int64(n.RotaryDim)),
			onnx.StringAttr("rotated_side", n.RotatedSide), onnx.StringAttr("output_layout", n.OutputLayout))
		r.output(n.Y, out[0])
		found = append(found, r.match(n.Nodes))
	}
	return found
}

// table gives a table the axes of x.
func (r *replacementBuilder) table(name string, t fit.Table, n *fit.Rotation) *onnx.Value {
	facts := r.f.view.Facts
	v := r.cast(r.input(NoRole, name, t.Value), t.Value, facts.DataType(n.X))
	rank, _ := facts.Rank(t.Value)
	if d, _ := facts.Dim(t.Value, t.Axis); int(d) != len(t.Channels) || !slices.IsSorted(t.Channels) {
		list := make([]int64, len(t.Channels))
		for i, c := range t.Channels {
			list[i] = int64(c)
		}
		v = r.node("Gather", name+"_channels", []*onnx.Value{v, r.integers("channels", list...)},
			onnx.IntAttr("axis", int64(t.Axis)))
	}
	// The axes that stay, by the axes of x, and the channels last.
	var axes []int
	for axis := rank - 1; axis >= 0; axis-- {
		place, fixed := t.Fixed[axis]
		if !fixed {
			continue
		}
		c := onnx.NewInt64s("", []int64{int64(place)})
		c.Dims = []int64{}
		v = r.node("Gather", name+"_part", []*onnx.Value{v, r.constant("place", c)},
			onnx.IntAttr("axis", int64(axis)))
	}
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
		v = r.transposed(name+"_axes", v, perm)
	}
	xRank, _ := facts.Rank(n.X)
	var missing []int64
	first := xRank
	for _, at := range t.Rows {
		first = min(first, at)
	}
	has := slices.Collect(maps.Values(t.Rows))
	for axis := first; axis < xRank-1; axis++ {
		if !slices.Contains(has, axis) {
			missing = append(missing, int64(axis-first))
		}
	}
	if len(missing) > 0 {
		v = r.node("Unsqueeze", name+"_rows", []*onnx.Value{v, r.integers("missing", missing...)})
	}
	if t.Negative {
		v = r.node("Neg", name+"_negated", []*onnx.Value{v})
	}
	return v
}
