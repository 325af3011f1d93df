package patterns

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/patterns/match"
	"github.com/mojo-patch/mojo-patch/patterns/moe"
	"github.com/mojo-patch/mojo-patch/patterns/reason"
	"github.com/mojo-patch/mojo-patch/patterns/router"
)

// moeForm finds the experts of a mixture: what becomes of tokens between the router's choice and the weighted sum.
var moeForm = &goForm{name: "MoE", op: "MoE", find: findExperts}

func findExperts(f *finder, d *goForm) []*Match {
	g := f.view
	var matches []*Match
	for _, r := range router.All(g) {
		e, why := moe.Behind(g, r)
		if e == nil {
			if why.Code != reason.Limit {
				f.note(d.name, r.TopK, why)
			}
			continue
		}
		matches = append(matches, f.expertsMatch(d, e))
	}
	return matches
}

// expertsMatch returns the match that experts make.
func (f *finder) expertsMatch(d *goForm, e *moe.Experts) *Match {
	b := &expertsBuilder{replacementBuilder: f.newReplacement(d, e.Result.Producer), e: e}
	x, weights, ids := b.tokens(), b.weights(), b.ids()
	if e.Scaled {
		x, weights, ids = b.scaled(x, weights, ids)
	}
	inputs := []*onnx.Value{x, weights, ids, b.gateUp(), b.placed(Matrix, "down", e.Down), b.gateUpBias(),
		b.placed(Bias, "down_bias", e.DownBias)}
	for len(inputs) > 0 && inputs[len(inputs)-1] == nil {
		inputs = inputs[:len(inputs)-1]
	}
	y := b.fused(inputs, []string{"moe"}, append(e.Unit.Attributes(),
		onnx.StringAttr("gate_up_layout", layout(cmp.Or(e.GateUp, e.Gate))),
		onnx.StringAttr("down_layout", layout(e.Down)))...)[0]
	if e.Scaled {
		y = b.node("ReduceSum", "moe_sum", []*onnx.Value{y, b.integers("chosen", 1)}, onnx.IntAttr("keepdims", 0))
	}
	y = b.shaped(y)
	if e.Base() != nil {
		y = b.onto(y)
	}
	b.output(e.Result, y)
	return b.match(e.Nodes)
}

// expertsBuilder makes the op's inputs of what a region has for them.
type expertsBuilder struct {
	*replacementBuilder
	e *moe.Experts
}

func (b *expertsBuilder) typeOf(v *onnx.Value) onnx.DataType { return b.f.view.Facts.DataType(v) }

func (b *expertsBuilder) cast(v *onnx.Value, to onnx.DataType) *onnx.Value {
	return b.node("Cast", v.Name+"_cast", []*onnx.Value{v}, onnx.IntAttr("to", int64(to)))
}

// tokens returns x, in the type of y where that is wider: the op's result is of its type.
func (b *expertsBuilder) tokens() *onnx.Value {
	x := b.input(Tokens, "x", b.e.X())
	if t := b.tokenType(); t != b.typeOf(b.e.X()) {
		return b.cast(x, t)
	}
	return x
}

// tokenType is the type of the op's tokens and of its result.
func (b *expertsBuilder) tokenType() onnx.DataType {
	if t := b.typeOf(b.e.Result); match.Widens(b.typeOf(b.e.X()), t) {
		return t
	}
	return b.typeOf(b.e.X())
}

// scaled returns a token for each choice, multiplied with its weight; each goes to one expert with weight 1.
func (b *expertsBuilder) scaled(x, weights, ids *onnx.Value) (tokens, ones, experts *onnx.Value) {
	column := func(name string, v *onnx.Value) *onnx.Value {
		return b.node("Reshape", name, []*onnx.Value{v, b.integers(name+"_shape", -1, b.e.Routing.K, 1)})
	}
	rows := b.node("Reshape", "x_rows", []*onnx.Value{x, b.integers("x_shape", -1, 1, b.e.Hidden)})
	factor := column("weights_column", weights)
	one := b.node("ConstantOfShape", "ones", []*onnx.Value{b.node("Shape", "weights_shape", []*onnx.Value{factor})},
		onnx.TensorAttr("value", onnx.NewFloat32s("", []int64{1}, []float32{1})))
	tokens = b.node("Mul", "x_scaled", []*onnx.Value{rows, b.cast(factor, b.tokenType())})
	return tokens, one, column("ids_column", ids)
}

// shaped returns the op's result, which is like x, in the type and the shape of y.
func (b *expertsBuilder) shaped(v *onnx.Value) *onnx.Value {
	if to := b.typeOf(b.e.Result); b.tokenType() != to {
		v = b.cast(v, to)
	}
	if b.e.Shape == nil {
		return v
	}
	return b.node("Reshape", "rows", []*onnx.Value{v, b.integers("shape", b.e.Shape...)})
}

// onto adds the result to the base, in the type and the shape of the result.
func (b *expertsBuilder) onto(v *onnx.Value) *onnx.Value {
	base := b.input(Base, "base", b.e.Base())
	if t := b.typeOf(b.e.Result); t != b.typeOf(b.e.Base()) {
		base = b.cast(base, t)
	}
	if !b.f.view.Facts.SameShape(b.e.Base(), b.e.Result) {
		base = b.node("Reshape", "base_rows", []*onnx.Value{base, b.node("Shape", "shape", []*onnx.Value{v})})
	}
	return b.node("Add", "sum", []*onnx.Value{base, v})
}

// weights returns the factors of the chosen experts, in float32 or the type of the tokens.
func (b *expertsBuilder) weights() *onnx.Value {
	r := b.e.Routing
	if r.Weights == nil {
		dense := b.input(Gates, "gates", r.Dense)
		w := b.node("GatherElements", "weights", []*onnx.Value{dense, b.ids()}, onnx.IntAttr("axis", -1))
		return b.weightsCast(w, r.Dense)
	}
	return b.weightsCast(b.chosen(Weights, "weights", r.Weights), r.Weights)
}

func (b *expertsBuilder) weightsCast(w, from *onnx.Value) *onnx.Value {
	if t := b.typeOf(from); t != onnx.Float && t != b.tokenType() {
		return b.cast(w, onnx.Float)
	}
	return w
}

// ids returns the numbers of the chosen experts, in int64.
func (b *expertsBuilder) ids() *onnx.Value {
	v := b.chosen(IDs, "ids", b.e.Routing.IDs)
	if b.typeOf(b.e.Routing.IDs) != onnx.Int64 {
		return b.cast(v, onnx.Int64)
	}
	return v
}

// chosen returns a value of the choice with a last axis for the k experts, which ArgMax may leave out.
func (b *expertsBuilder) chosen(what Role, name string, v *onnx.Value) *onnx.Value {
	in := b.input(what, name, v)
	rank, ok1 := b.f.view.Facts.Rank(v)
	full, ok2 := b.f.view.Facts.Rank(b.e.Routing.Logits)
	if ok1 && ok2 && rank < full {
		return b.node("Unsqueeze", name+"_column", []*onnx.Value{in, b.integers("axis", -1)})
	}
	return in
}

func layout(s *moe.Stack) string {
	if s.InOut {
		return "in_out"
	}
	return "out_in"
}

// outAxis is the axis of the outputs in the stacked weight.
func outAxis(s *moe.Stack) int64 {
	if s.InOut {
		return 2
	}
	return 1
}

// gateUp returns the first product's weight, in which gate comes before up.
func (b *expertsBuilder) gateUp() *onnx.Value {
	e := b.e
	if e.GateUp != nil {
		return b.placed(Matrix, "gate_up", e.GateUp)
	}
	return b.concat("gate_up", outAxis(e.Gate), b.placed(Matrix, "gate", e.Gate), b.placed(Matrix, "up", e.Up))
}

func (b *expertsBuilder) gateUpBias() *onnx.Value {
	e := b.e
	if e.GateUp == nil && e.GateBias != nil && e.UpBias != nil {
		return b.concat("gate_up_bias", 1, b.placed(Bias, "gate_bias", e.GateBias), b.placed(Bias, "up_bias", e.UpBias))
	}
	return b.placed(Bias, "gate_up_bias", e.GateUpBias)
}

func (b *expertsBuilder) concat(name string, axis int64, parts ...*onnx.Value) *onnx.Value {
	return b.node("Concat", name, parts, onnx.IntAttr("axis", axis))
}

// placed returns the blocks of all experts as one value; nil where there is no stack.
func (b *expertsBuilder) placed(what Role, name string, s *moe.Stack) *onnx.Value {
	if s == nil {
		return nil
	}
	list, dims, first := s.Blocks, s.Dims, s.Blocks[0]
	source, total := b.source(what, name, first.Source), first.Source.Constant().Len()
	steps := list[min(1, len(list)-1)].Row - first.Row // rows of the table from one expert to the next
	even := total == first.Length*steps*int64(len(list)) && first.Row+first.Rows <= steps
	for e, w := range list {
		even = even && w.Source == first.Source && w.Length == first.Length && w.By == first.By &&
			w.Column == first.Column && w.Row == first.Row+int64(e)*steps
	}
	if even && first.Rows == steps && first.Columns == first.Length { // all of it
		return b.reshaped(name, source, first.Source.Constant().Dims, dims)
	}
	parts := make([]*onnx.Value, len(list))
	one := append([]int64{1}, dims[1:]...)
	for e, w := range list {
		part := fmt.Sprintf("%s_%d", name, e)
		v, have := b.source(what, part, w.Source), w.Source.Constant().Dims
		if total := w.Source.Constant().Len(); w.Size < total {
			v = b.reshaped(part+"_table", v, have, []int64{total / w.Length, w.Length})
			v = b.sliced(part+"_part", v, []int64{w.Row, w.Column}, []int64{w.Rows, w.Columns}, w.By)
			have = []int64{w.Rows, w.Columns}
		}
		if slices.Equal(have, one[1:]) {
			parts[e] = b.node("Unsqueeze", part+"_row", []*onnx.Value{v, b.integers("axis", 0)})
		} else {
			parts[e] = b.reshaped(part+"_row", v, have, one)
		}
	}
	return b.concat(name, 0, parts...)
}

// source returns an initializer; one that only the body of a loop or a branch knows is taken along.
func (b *expertsBuilder) source(what Role, name string, v *onnx.Value) *onnx.Value {
	if w := b.stands[v]; w != nil {
		return w
	}
	for g := b.f.view.Graph; g != nil; g = g.Parent {
		if v.Graph == g {
			return b.input(what, name, v)
		}
	}
	b.stands[v] = b.constant(name, v.Constant())
	return b.stands[v]
}

func (b *expertsBuilder) reshaped(name string, v *onnx.Value, have, want []int64) *onnx.Value {
	if slices.Equal(have, want) {
		return v
	}
	return b.node("Reshape", name, []*onnx.Value{v, b.integers("shape", want...)})
}

// sliced takes n[i] places from from[i] on of axis i, those of the last one by steps.
func (b *expertsBuilder) sliced(name string, v *onnx.Value, from, n []int64, by int64) *onnx.Value {
	ends, axes, steps := slices.Clone(n), slices.Clone(n), slices.Clone(n)
	for i := range ends {
		steps[i] = 1
		if i == len(n)-1 {
			steps[i] = by
		}
		ends[i] = from[i] + (n[i]-1)*steps[i] + 1
		axes[i] = int64(i)
	}
	inputs := []*onnx.Value{v, b.integers("starts", from...), b.integers("ends", ends...), b.integers("axes", axes...)}
	if by > 1 {
		inputs = append(inputs, b.integers("steps", steps...))
	}
	return b.node("Slice", name, inputs)
}
