package patterns

import (
	"fmt"

	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/patterns/match"
)

// expertsMatch returns the match that a region and its experts make; why not otherwise.
func (f *finder) expertsMatch(reg *region, e *experts) (m *Match, why string) {
	b := &expertsBuilder{replacementBuilder: f.newReplacement(moeForm, reg.y.Producer), reg: reg, e: e}
	gateUpLayout, why := b.gateUpLayout()
	if why != "" {
		return nil, why
	}
	x, weights, ids := b.tokens(), b.weights(), b.ids()
	if e.scaled {
		x, weights, ids = b.scaled(x, weights, ids)
	}
	if r := reg.routing; r.weights == nil && !gatesHold(f.view, r) {
		return nil, "the gates of the experts are not known to be zero for those that a token does not go to"
	}
	inputs := []*onnx.Value{x, weights, ids, b.gateUp(), b.placed("down", e.down), b.gateUpBias(), b.placed("down_bias", e.downBias)}
	for len(inputs) > 0 && inputs[len(inputs)-1] == nil {
		inputs = inputs[:len(inputs)-1]
	}
	y := b.fused(inputs, []string{"moe"}, append(e.unit.attributes(),
		onnx.StringAttr("gate_up_layout", gateUpLayout), onnx.StringAttr("down_layout", layout(e.down)))...)[0]
	if e.scaled {
		y = b.node("ReduceSum", "moe_sum", []*onnx.Value{y, b.integers("chosen", 1)}, onnx.IntAttr("keepdims", 0))
	}
	if y, why = b.shaped(y); why != "" {
		return nil, why
	}
	if reg.base != nil {
		y = b.onto(y)
	}
	b.output(reg.y, y)
	return b.match(reg.nodes), ""
}

// expertsBuilder makes the op's inputs of what a region has for them.
type expertsBuilder struct {
	*replacementBuilder
	reg *region
	e   *experts
}

func (b *expertsBuilder) typeOf(v *onnx.Value) onnx.DataType { return b.f.view.Facts.DataType(v) }

func (b *expertsBuilder) cast(v *onnx.Value, to onnx.DataType) *onnx.Value {
	return b.node("Cast", v.Name+"_cast", []*onnx.Value{v}, onnx.IntAttr("to", int64(to)))
}

// tokens returns x, in the type of y where that is wider: the op's result is of its type.
func (b *expertsBuilder) tokens() *onnx.Value {
	x := b.input("x", b.reg.x)
	if t := b.tokenType(); t != b.typeOf(b.reg.x) {
		return b.cast(x, t)
	}
	return x
}

// tokenType is the type of the op's tokens and of its result.
func (b *expertsBuilder) tokenType() onnx.DataType {
	if t := b.typeOf(b.reg.y); match.Widens(b.typeOf(b.reg.x), t) {
		return t
	}
	return b.typeOf(b.reg.x)
}

// scaled returns a token for each choice, multiplied with its weight; each goes to one expert with weight 1.
func (b *expertsBuilder) scaled(x, weights, ids *onnx.Value) (tokens, ones, experts *onnx.Value) {
	column := func(name string, v *onnx.Value) *onnx.Value {
		return b.node("Reshape", name, []*onnx.Value{v, b.integers(name+"_shape", -1, b.reg.routing.k, 1)})
	}
	rows := b.node("Reshape", "x_rows", []*onnx.Value{x, b.integers("x_shape", -1, 1, b.reg.hidden)})
	factor := column("weights_column", weights)
	one := b.node("ConstantOfShape", "ones", []*onnx.Value{b.node("Shape", "weights_shape", []*onnx.Value{factor})},
		onnx.TensorAttr("value", onnx.NewFloat32s("", []int64{1}, []float32{1})))
	tokens = b.node("Mul", "x_scaled", []*onnx.Value{rows, b.cast(factor, b.tokenType())})
	return tokens, one, column("ids_column", ids)
}

// shaped returns the op's result, which is like x, the type and the shape of y.
func (b *expertsBuilder) shaped(v *onnx.Value) (w *onnx.Value, why string) {
	x, y, facts := b.reg.x, b.reg.y, b.f.view.Facts
	if to := b.typeOf(y); b.tokenType() != to {
		v = b.cast(v, to)
	}
	rank, _ := facts.Rank(y)
	if b.e.scaled && rank == 2 || !b.e.scaled && facts.SameShape(x, y) {
		return v, ""
	}
	shape, open := make([]int64, rank), 0
	for i := range shape {
		d, ok := facts.Dim(y, i)
		if shape[i] = d; !ok {
			shape[i] = -1
			open++
		}
	}
	if open > 1 || rank == 0 {
		return nil, fmt.Sprintf("the tokens %q and the result %q have different shapes", x.Name, y.Name)
	}
	return b.node("Reshape", "rows", []*onnx.Value{v, b.integers("shape", shape...)}), ""
}

// onto adds the result to the base, in the type and the shape of the result.
func (b *expertsBuilder) onto(v *onnx.Value) *onnx.Value {
	base := b.input("base", b.reg.base)
	if t := b.typeOf(b.reg.y); t != b.typeOf(b.reg.base) {
		base = b.cast(base, t)
	}
	if !b.f.view.Facts.SameShape(b.reg.base, b.reg.y) {
		base = b.node("Reshape", "base_rows", []*onnx.Value{base, b.node("Shape", "shape", []*onnx.Value{v})})
	}
	return b.node("Add", "sum", []*onnx.Value{base, v})
}

// weights returns the factors of the chosen experts, in float32 or the type of the tokens.
func (b *expertsBuilder) weights() *onnx.Value {
	r := b.reg.routing
	if r.weights == nil {
		dense := b.input("gates", r.dense)
		w := b.node("GatherElements", "weights", []*onnx.Value{dense, b.ids()}, onnx.IntAttr("axis", -1))
		return b.weightsCast(w, r.dense)
	}
	return b.weightsCast(b.chosen("weights", r.weights), r.weights)
}

func (b *expertsBuilder) weightsCast(w, from *onnx.Value) *onnx.Value {
	if t := b.typeOf(from); t != onnx.Float && t != b.tokenType() {
		return b.cast(w, onnx.Float)
	}
	return w
}

// ids returns the numbers of the chosen experts, in int64.
func (b *expertsBuilder) ids() *onnx.Value {
	v := b.chosen("ids", b.reg.routing.ids)
	if b.typeOf(b.reg.routing.ids) != onnx.Int64 {
		return b.cast(v, onnx.Int64)
	}
	return v
}

// chosen returns a value of the choice with a last axis for the k experts, which ArgMax may leave out.
func (b *expertsBuilder) chosen(name string, v *onnx.Value) *onnx.Value {
	in := b.input(name, v)
	rank, ok1 := b.f.view.Facts.Rank(v)
	full, ok2 := b.f.view.Facts.Rank(b.reg.routing.logits)
	if ok1 && ok2 && rank < full {
		return b.node("Unsqueeze", name+"_column", []*onnx.Value{in, b.integers("axis", -1)})
	}
	return in
}

func layout(s *stack) string {
	if s.inOut {
		return "in_out"
	}
	return "out_in"
}

func (b *expertsBuilder) gateUpLayout() (name, why string) {
	e := b.e
	if e.gateUp != nil {
		return layout(e.gateUp), ""
	}
	if e.gate.inOut != e.up.inOut {
		return "", "the weights of gate and up are stored in different layouts"
	}
	return layout(e.gate), ""
}

// outAxis is the axis of the outputs in the stacked weight.
func outAxis(s *stack) int64 {
	if s.inOut {
		return 2
	}
	return 1
}

// gateUp returns the first product's weight, in which gate comes before up.
func (b *expertsBuilder) gateUp() *onnx.Value {
	e := b.e
	if e.gateUp != nil {
		return b.placed("gate_up", e.gateUp)
	}
	return b.concat("gate_up", outAxis(e.gate), b.placed("gate", e.gate), b.placed("up", e.up))
}

func (b *expertsBuilder) gateUpBias() *onnx.Value {
	e := b.e
	if e.gateUp == nil && e.gateBias != nil && e.upBias != nil {
		return b.concat("gate_up_bias", 1, b.placed("gate_bias", e.gateBias), b.placed("up_bias", e.upBias))
	}
	return b.placed("gate_up_bias", e.gateUpBias)
}

func (b *expertsBuilder) concat(name string, axis int64, parts ...*onnx.Value) *onnx.Value {
	return b.node("Concat", name, parts, onnx.IntAttr("axis", axis))
}
