package fit

import (
	"slices"

	"github.com/mojo-patch/mojo-patch/fused"
	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/patterns/match"
	"github.com/mojo-patch/mojo-patch/patterns/site"
)

// site returns the site at which mojo.RMSNorm, or for a centered norm the standard's LayerNormalization, replaces the
// norm.
func (n *Norm) site(g *match.View) *site.Site {
	op := fused.RMSNormName
	if n.Centered {
		op = layerNorm
	}
	s := site.New(g, op, n.Y.Producer)
	perm, back := n.channelsLast(g)
	x := s.Input(fused.NoRole, "x", n.X).Transpose("x_rows", perm...)
	inputs := []*site.Operand{x, n.vector(s, g, "scale", n.Scale)}
	if n.Bias != nil {
		inputs = append(inputs, n.vector(s, g, "bias", *n.Bias))
	}
	s.Output(n.Y, s.ComputeAs(n.attributes(), []string{"y"}, inputs...)[0].Transpose("y_axes", back...))
	s.Nodes = n.Nodes
	return s
}

// withSum joins the site of a norm with the addition before it; nil unless it adds two tensors of one shape.
func (n *Norm) withSum(g *match.View, others site.Others, norm *site.Site) *site.Site {
	facts, sum := g.Facts, n.X
	add := sum.Producer
	if perm, _ := n.channelsLast(g); perm != nil || !add.Is("Add") || len(add.Inputs) != 2 || others.Have(add) ||
		others.Write(sum) || add.Graph != g.Graph || slices.ContainsFunc(add.Inputs, func(v *onnx.Value) bool {
		return !g.IsData(v) || !facts.SameShape(v, sum) || facts.DataType(v) != facts.DataType(sum)
	}) {
		return nil
	}
	op, attributes := fused.AddRMSNormName, n.attributes()
	if n.Centered {
		if len(n.Axes) > 1 || n.Scale.Wide || n.Bias != nil && n.Bias.Wide {
			return nil
		}
		op, attributes = fused.AddLayerNormName, fused.AddLayerNorm{Epsilon: float32(n.Epsilon)}.Attributes()
	}
	s := site.New(g, op, n.Y.Producer)
	x, residual := s.Input(fused.NoRole, "x", add.Inputs[0]), s.Input(fused.NoRole, "residual", add.Inputs[1])
	inputs := []*site.Operand{x, residual, n.vector(s, g, "scale", n.Scale)}
	if n.Centered {
		bias := Vector{Numbers: []float64{0}}
		if n.Bias != nil {
			bias = *n.Bias
		}
		inputs = append(inputs, n.vector(s, g, "bias", bias))
	}
	out := s.ComputeAs(attributes, []string{"y", "sum"}, inputs...)
	s.Output(n.Y, out[0])
	s.Output(sum, out[1])
	s.Nodes, s.Parts = append(slices.Clone(n.Nodes), add), []*site.Site{norm}
	return s
}

// attributes returns the attributes of the op.
func (n *Norm) attributes() []*onnx.Attribute {
	op := fused.RMSNorm{Axis: -int64(len(n.Axes)), Epsilon: float32(n.Epsilon), ScaleAfterCast: n.ScaleAfterCast}
	if n.Centered {
		return append(op.Attributes()[:2], onnx.IntAttr("stash_type", 1)) // axis and epsilon have the same names
	}
	return op.Attributes()
}

// channelsLast returns the order of axes that moves the channels last, and its inverse; nil if they are last.
func (n *Norm) channelsLast(g *match.View) (perm, back []int64) {
	rank, _ := g.Facts.Rank(n.X)
	for axis := range rank {
		if !slices.Contains(n.Axes, axis) {
			perm = append(perm, int64(axis))
		}
	}
	for _, axis := range n.Axes {
		perm = append(perm, int64(axis))
	}
	if slices.IsSorted(perm) {
		return nil, nil
	}
	back = make([]int64, rank)
	for i, axis := range perm {
		back[axis] = int64(i)
	}
	return perm, back
}

// vector returns the numbers of a norm's channels, in their shape.
func (n *Norm) vector(s *site.Site, g *match.View, name string, v Vector) *site.Operand {
	dims := make([]int64, len(n.Axes))
	size := int64(1)
	for i, axis := range n.Axes {
		dims[i], _ = g.Facts.Dim(n.X, axis)
		size *= dims[i]
	}
	t := g.Facts.DataType(n.Y)
	switch {
	case v.Value == nil && len(v.Numbers) == 1:
		return s.Number(v.Numbers[0], t).With("Expand", name, "channels", dims...)
	case v.Value == nil:
		list := make([]float32, size)
		for c, x := range v.Numbers {
			list[c] = float32(x)
		}
		w := s.Constant(name, onnx.NewFloat32s("", dims, list))
		if v.Wide {
			return w
		}
		return w.Cast(t)
	}
	w := s.Input(fused.NoRole, name, v.Value)
	if shape, ok := g.Facts.Shape(v.Value, 0); !ok || !slices.Equal(shape, dims) {
		w = w.With("Reshape", name+"_channels", "channels", dims...)
	}
	if v.Wide {
		w = w.Cast(onnx.Float)
	}
	if v.Factor != 1 {
		w = w.Then("Mul", name+"_times", []*site.Operand{s.Number(v.Factor, w.Type)})
	}
	if v.Offset != 0 {
		w = w.Then("Add", name+"_more", []*site.Operand{s.Number(v.Offset, w.Type)})
	}
	return w
}
