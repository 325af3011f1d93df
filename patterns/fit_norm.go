package patterns

import (
	"slices"

	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/patterns/fit"
	"github.com/mojo-patch/mojo-patch/patterns/match"
)

// The forms of ops that are fitted to what regions compute. A norm that a sum goes into is one op with that.
var (
	fitNormForm    = &goForm{name: "fit:RMSNorm", op: "RMSNorm", joins: true, find: findFittedNorms}
	fitAddNormForm = &goForm{name: "fit:AddRMSNorm", op: "AddRMSNorm", joins: true, find: none}
	fitLayerForm   = &goForm{name: "fit:LayerNorm", op: "LayerNormalization", standard: true, joins: true,
		find: none}
)

// none is for forms that are found with others.
func none(*finder, *goForm) []*Match { return nil }

func findFittedNorms(f *finder, d *goForm) []*Match {
	norms, misses := fit.Norms(f.view, func(n *onnx.Node) bool { return f.claimed[n] })
	f.near = append(f.near, misses...)
	var found []*Match
	sums := map[*onnx.Value]bool{} // that a norm makes as well
	for _, n := range norms {
		if f.written[n.Y] {
			continue
		}
		if n.Centered {
			found = append(found, f.fittedLayerNorm(n))
			continue
		}
		m := f.fittedNorm(d, n)
		if sum := f.fittedAddNorm(n, m); sum != nil && !sums[n.X] {
			m, sums[n.X] = sum, true
		}
		found = append(found, m)
	}
	return found
}

// fittedNorm has the op compute a norm.
func (f *finder) fittedNorm(d *goForm, n *fit.Norm) *Match {
	r := f.newReplacement(d, n.Y.Producer)
	x := r.input(NoRole, "x", n.X)
	x, back := r.channelsLast(x, n)
	y := r.fused([]*onnx.Value{x, r.vector("scale", n.Scale, n)}, []string{"y"}, normAttributes(n)...)[0]
	r.output(n.Y, r.transposed("y_axes", y, back))
	return r.match(n.Nodes)
}

// fittedAddNorm joins a norm with the addition before it; nil where there is none of two tensors of one shape.
func (f *finder) fittedAddNorm(n *fit.Norm, norm *Match) *Match {
	facts, sum := f.view.Facts, n.X
	add := sum.Producer
	if !add.Is("Add") || len(add.Inputs) != 2 ||
		f.claimed[add] || f.written[sum] || add.Graph != f.view.Graph || mainNode(norm) == nil ||
		slices.ContainsFunc(add.Inputs, func(v *onnx.Value) bool {
			return !f.view.IsData(v) || !facts.SameShape(v, sum) || facts.DataType(v) != facts.DataType(sum)
		}) || mainNode(norm).Inputs[0] != norm.Replacement.Inputs[0] {
		return nil
	}
	r := f.newReplacement(fitAddNormForm, n.Y.Producer)
	out := r.fused([]*onnx.Value{r.input(NoRole, "x", add.Inputs[0]), r.input(NoRole, "residual", add.Inputs[1]),
		r.vector("scale", n.Scale, n)}, []string{"y", "sum"}, normAttributes(n)...)
	r.output(n.Y, out[0])
	r.output(sum, out[1])
	r.m.Parts = []*Match{norm}
	return r.match(append(slices.Clone(n.Nodes), add))
}

// noteFits notes what came near to an op that was fitted, but for what a pattern says more of.
func (f *finder) noteFits(told []*match.Miss) {
	said := map[*onnx.Node]bool{}
	for _, m := range told {
		said[m.Anchor] = true
	}
	for _, m := range f.near {
		if !slices.ContainsFunc(m.Nodes, func(n *onnx.Node) bool { return f.claimed[n] || said[n] }) {
			f.note("fit:"+m.Op, m.Anchor, m.Why)
		}
	}
}

func normAttributes(n *fit.Norm) []*onnx.Attribute {
	return []*onnx.Attribute{onnx.IntAttr("axis", -int64(len(n.Axes))),
		onnx.FloatAttr("epsilon", float32(n.Epsilon)), onnx.IntAttr("scale_after_cast", boolToInt(n.ScaleAfterCast))}
}

// fittedLayerNorm has the standard's op compute a norm whose mean is taken away.
func (f *finder) fittedLayerNorm(n *fit.Norm) *Match {
	r := f.newReplacement(fitLayerForm, n.Y.Producer)
	r.m.Problem = inOpset(r.m.Op, r.opset)
	x := r.input(NoRole, "x", n.X)
	x, back := r.channelsLast(x, n)
	inputs := []*onnx.Value{x, r.vector("scale", n.Scale, n)}
	if n.Bias != nil {
		inputs = append(inputs, r.vector("bias", *n.Bias, n))
	}
	y := r.fused(inputs, []string{"y"}, onnx.IntAttr("axis", -int64(len(n.Axes))),
		onnx.FloatAttr("epsilon", float32(n.Epsilon)), onnx.IntAttr("stash_type", 1))[0]
	r.output(n.Y, r.transposed("y_axes", y, back))
	if r.m.Problem != nil {
		r.m.Replacement = nil
	}
	return r.match(n.Nodes)
}

// channelsLast moves the channels behind all other axes, and returns the order that moves them back; nil where they are
// there.
func (r *replacementBuilder) channelsLast(x *onnx.Value, n *fit.Norm) (moved *onnx.Value, back []int64) {
	rank, _ := r.f.view.Facts.Rank(n.X)
	var perm []int64
	for axis := range rank {
		if !slices.Contains(n.Axes, axis) {
			perm = append(perm, int64(axis))
		}
	}
	for _, axis := range n.Axes {
		perm = append(perm, int64(axis))
	}
	if slices.IsSorted(perm) {
		return x, nil
	}
	back = make([]int64, rank)
	for i, axis := range perm {
		back[axis] = int64(i)
	}
	return r.transposed("x_rows", x, perm), back
}

func (r *replacementBuilder) transposed(name string, v *onnx.Value, perm []int64) *onnx.Value {
	if perm == nil {
		return v
	}
	return r.node("Transpose", name, []*onnx.Value{v}, onnx.IntsAttr("perm", perm))
}

// vector makes the numbers of a norm's channels, in the shape of these.
func (r *replacementBuilder) vector(name string, v fit.Vector, n *fit.Norm) *onnx.Value {
	facts := r.f.view.Facts
	dims := make([]int64, len(n.Axes))
	size := int64(1)
	for i, axis := range n.Axes {
		dims[i], _ = facts.Dim(n.X, axis)
		size *= dims[i]
	}
	t := facts.DataType(n.Y)
	number := func(x float64) *onnx.Value {
		c, err := r.number(x, t)
		if err != nil { // no number of the type is so great
			r.m.Problem = err
		}
		return c
	}
	if v.Value == nil {
		if len(v.Numbers) == 1 {
			return r.node("Expand", name, []*onnx.Value{number(v.Numbers[0]), r.integers("channels", dims...)})
		}
		list := make([]float32, size)
		for c, x := range v.Numbers {
			list[c] = float32(x)
		}
		w := r.constant(name, onnx.NewFloat32s("", dims, list))
		if v.Wide {
			return w
		}
		return r.cast(w, nil, t)
	}
	w := r.input(NoRole, name, v.Value)
	t = facts.DataType(v.Value)
	if shape, ok := facts.Shape(v.Value, 0); !ok || !slices.Equal(shape, dims) {
		w = r.node("Reshape", name+"_channels", []*onnx.Value{w, r.integers("channels", dims...)})
	}
	if v.Wide {
		w, t = r.cast(w, nil, onnx.Float), onnx.Float
	}
	if v.Factor != 1 {
		w = r.node("Mul", name+"_times", []*onnx.Value{w, number(v.Factor)})
	}
	if v.Offset != 0 {
		w = r.node("Add", name+"_more", []*onnx.Value{w, number(v.Offset)})
	}
	return w
}
