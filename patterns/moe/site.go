package moe

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/mojo-patch/mojo-patch/fused"
	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/patterns/match"
	"github.com/mojo-patch/mojo-patch/patterns/reason"
	"github.com/mojo-patch/mojo-patch/patterns/router"
	"github.com/mojo-patch/mojo-patch/patterns/site"
)

// Find finds the experts of mixtures: the nodes between a router's choice and the weighted sum.
func Find(g *match.View, _ site.Others) (sites []*site.Site, misses []*match.Miss) {
	for _, r := range router.All(g) {
		e, why := Behind(g, r)
		switch {
		case e != nil:
			sites = append(sites, e.site(g))
		case why.Code != reason.Limit:
			misses = append(misses, &match.Miss{Pattern: fused.MoEName, Anchor: r.TopK, Reason: why})
		}
	}
	return sites, misses
}

// builder makes the op's inputs from the values of a region.
type builder struct {
	*site.Site
	*Experts
	g *match.View
}

// site returns the site at which mojo.MoE replaces the experts.
func (e *Experts) site(g *match.View) *site.Site {
	b := &builder{site.New(g, fused.MoEName, e.Result.Producer), e, g}
	t, result := b.tokenType(), b.typeOf(e.Result)
	x := b.Input(fused.RoleTokens, "x", e.X()).Cast(t)
	weights, ids := b.weights(), b.ids()
	if e.Scaled {
		x, weights, ids = b.scaled(x, weights, ids)
	}
	gateUp, down := b.gateUp(), b.placed(fused.RoleMatrix, "down", e.Down)
	gateUpBias, downBias := b.gateUpBias(), b.placed(fused.RoleBias, "down_bias", e.DownBias)
	y := b.Compute(e.Unit.op(layout(cmp.Or(e.GateUp, e.Gate)), layout(e.Down)), []string{"moe"}, x, weights, ids,
		gateUp, down, gateUpBias, downBias)[0]
	y.Type = t
	if e.Scaled {
		y = y.Then("ReduceSum", "moe_sum", []*site.Operand{b.Integers("chosen", 1)}, onnx.IntAttr("keepdims", 0))
	}
	y = y.Cast(result)
	if e.Shape != nil {
		y = y.With("Reshape", "rows", "shape", e.Shape...)
	}
	if e.Base() != nil {
		y = b.onto(y)
	}
	b.Output(e.Result, y)
	b.Nodes = e.Nodes
	return b.Site
}

func (b *builder) typeOf(v *onnx.Value) onnx.DataType { return b.g.Facts.DataType(v) }

// tokenType returns the type of the op's tokens and result: y's type if it is wider than x's.
func (b *builder) tokenType() onnx.DataType {
	if t := b.typeOf(b.Result); match.Widens(b.typeOf(b.X()), t) {
		return t
	}
	return b.typeOf(b.X())
}

// scaled returns a token for each choice, multiplied by its weight; each goes to one expert with weight 1.
func (b *builder) scaled(x, weights, ids *site.Operand) (tokens, ones, experts *site.Operand) {
	column := func(name string, v *site.Operand) *site.Operand {
		return v.With("Reshape", name, name+"_shape", -1, b.Routing.K, 1)
	}
	rows := x.With("Reshape", "x_rows", "x_shape", -1, 1, b.Hidden)
	factor := column("weights_column", weights)
	one := factor.Then("Shape", "weights_shape", nil).Then("ConstantOfShape", "ones", nil,
		onnx.TensorAttr("value", onnx.NewFloat32s("", []int64{1}, []float32{1})))
	cast := factor.Then("Cast", "weights_column_cast", nil, onnx.IntAttr("to", int64(b.tokenType())))
	tokens = rows.Then("Mul", "x_scaled", []*site.Operand{cast})
	return tokens, one, column("ids_column", ids)
}

// onto adds the result to the base, in the type and the shape of the result.
func (b *builder) onto(y *site.Operand) *site.Operand {
	base := b.Input(fused.RoleBase, "base", b.Base()).Cast(b.typeOf(b.Result))
	if !b.g.Facts.SameShape(b.Base(), b.Result) {
		base = base.Then("Reshape", "base_rows", []*site.Operand{y.Then("Shape", "shape", nil)})
	}
	return base.Then("Add", "sum", []*site.Operand{y})
}

// weights returns the factors of the chosen experts, in float32 or the type of the tokens.
func (b *builder) weights() *site.Operand {
	var w *site.Operand
	if r := b.Routing; r.Weights == nil {
		w = b.Input(fused.RoleGates, "gates", r.Dense).Then("GatherElements", "weights", []*site.Operand{b.ids()},
			onnx.IntAttr("axis", -1))
	} else {
		w = b.chosen(fused.RoleWeights, "weights", r.Weights)
	}
	if w.Type == b.tokenType() {
		return w
	}
	return w.Cast(onnx.Float)
}

// ids returns the numbers of the chosen experts as int64.
func (b *builder) ids() *site.Operand {
	return b.chosen(fused.RoleIDs, "ids", b.Routing.IDs).Cast(onnx.Int64)
}

// chosen returns a value of the choice with a last axis for the k experts, which ArgMax may drop.
func (b *builder) chosen(what fused.Role, name string, v *onnx.Value) *site.Operand {
	in := b.Input(what, name, v)
	rank, ok1 := b.g.Facts.Rank(v)
	full, ok2 := b.g.Facts.Rank(b.Routing.Logits)
	if ok1 && ok2 && rank < full {
		return in.With("Unsqueeze", name+"_column", "axis", -1)
	}
	return in
}

func layout(s *Stack) string {
	if s.InOut {
		return "in_out"
	}
	return "out_in"
}

// outAxis returns the axis of the outputs in the stacked weight.
func outAxis(s *Stack) int64 {
	if s.InOut {
		return 2
	}
	return 1
}

// gateUp returns the first product's weight, with gate before up.
func (b *builder) gateUp() *site.Operand {
	e := b.Experts
	if e.GateUp != nil {
		return b.placed(fused.RoleMatrix, "gate_up", e.GateUp)
	}
	return b.concat("gate_up", outAxis(e.Gate), b.placed(fused.RoleMatrix, "gate", e.Gate),
		b.placed(fused.RoleMatrix, "up", e.Up))
}

func (b *builder) gateUpBias() *site.Operand {
	e := b.Experts
	if e.GateUp == nil && e.GateBias != nil && e.UpBias != nil {
		return b.concat("gate_up_bias", 1, b.placed(fused.RoleBias, "gate_bias", e.GateBias),
			b.placed(fused.RoleBias, "up_bias", e.UpBias))
	}
	return b.placed(fused.RoleBias, "gate_up_bias", e.GateUpBias)
}

func (b *builder) concat(name string, axis int64, parts ...*site.Operand) *site.Operand {
	return b.Node("Concat", name, parts, onnx.IntAttr("axis", axis))
}

// placed returns the blocks of all experts as one value; nil without a stack.
func (b *builder) placed(what fused.Role, name string, s *Stack) *site.Operand {
	if s == nil {
		return nil
	}
	list, dims, first := s.Blocks, s.Dims, s.Blocks[0]
	source, total := b.Input(what, name, first.Source), first.Source.Constant().Len()
	steps := list[min(1, len(list)-1)].Row - first.Row // rows of the table between two experts
	even := total == first.Length*steps*int64(len(list)) && first.Row+first.Rows <= steps
	for e, w := range list {
		even = even && w.Source == first.Source && w.Length == first.Length && w.By == first.By &&
			w.Column == first.Column && w.Row == first.Row+int64(e)*steps
	}
	if even && first.Rows == steps && first.Columns == first.Length { // all of it
		return b.reshaped(name, source, first.Source.Constant().Dims, dims)
	}
	parts := make([]*site.Operand, len(list))
	one := append([]int64{1}, dims[1:]...)
	for e, w := range list {
		part := fmt.Sprintf("%s_%d", name, e)
		v, have := b.Input(what, part, w.Source), w.Source.Constant().Dims
		if total := w.Source.Constant().Len(); w.Size < total {
			v = b.reshaped(part+"_table", v, have, []int64{total / w.Length, w.Length})
			v = b.sliced(part+"_part", v, []int64{w.Row, w.Column}, []int64{w.Rows, w.Columns}, w.By)
			have = []int64{w.Rows, w.Columns}
		}
		if slices.Equal(have, one[1:]) {
			parts[e] = v.With("Unsqueeze", part+"_row", "axis", 0)
		} else {
			parts[e] = b.reshaped(part+"_row", v, have, one)
		}
	}
	return b.concat(name, 0, parts...)
}

func (b *builder) reshaped(name string, v *site.Operand, have, want []int64) *site.Operand {
	if slices.Equal(have, want) {
		return v
	}
	return v.With("Reshape", name, "shape", want...)
}

// sliced takes n[i] elements from index from[i] on along axis i, those of the last axis in steps of by.
func (b *builder) sliced(name string, v *site.Operand, from, n []int64, by int64) *site.Operand {
	ends, axes, steps := slices.Clone(n), slices.Clone(n), slices.Clone(n)
	for i := range ends {
		steps[i] = 1
		if i == len(n)-1 {
			steps[i] = by
		}
		ends[i] = from[i] + (n[i]-1)*steps[i] + 1
		axes[i] = int64(i)
	}
	places := []*site.Operand{b.Integers("starts", from...), b.Integers("ends", ends...), b.Integers("axes", axes...)}
	if by > 1 {
		places = append(places, b.Integers("steps", steps...))
	}
	return v.Then("Slice", name, places)
}
