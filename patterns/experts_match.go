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
	inputs := []*onnx.Value{x, weights, ids, b.gateUp(), b.stacked("down", e.down), b.gateUpBias(), b.bias("down_bias", e.downBias)}
	for len(inputs) > 0 && inputs[len(inputs)-1] == nil {
		inputs = inputs[:len(inputs)-1]
	}
	y := b.fused(inputs, []string{"moe"}, onnx.StringAttr("activation", e.act.name), onnx.FloatAttr("alpha", e.act.alpha),
		onnx.FloatAttr("limit", e.act.limit), onnx.FloatAttr("up_offset", e.act.upOffset), onnx.StringAttr("packing", e.packing),
		onnx.StringAttr("gate_up_layout", gateUpLayout), onnx.StringAttr("down_layout", layout(e.down)))[0]
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
		return b.gateFirst(b.stacked("gate_up", e.gateUp), outAxis(e.gateUp))
	}
	return b.concat("gate_up", outAxis(e.gate), b.stacked("gate", e.gate), b.stacked("up", e.up))
}

func (b *expertsBuilder) gateUpBias() *onnx.Value {
	e := b.e
	switch {
	case e.gateUp != nil && e.gateUpBias != nil:
		return b.gateFirst(b.bias("gate_up_bias", e.gateUpBias), 1)
	case e.gateBias != nil && e.upBias != nil:
		return b.concat("gate_up_bias", 1, b.bias("gate_bias", e.gateBias), b.bias("up_bias", e.upBias))
	}
	return nil
}

// gateFirst swaps the halves of a packed weight where up comes first.
func (b *expertsBuilder) gateFirst(v *onnx.Value, axis int64) *onnx.Value {
	if !b.e.upFirst {
		return v
	}
	g := b.m.Replacement
	up, gate := g.NewValue("up"), g.NewValue("gate")
	inputs, attrs := []*onnx.Value{v}, []*onnx.Attribute{onnx.IntAttr("axis", axis)}
	if b.b.opset >= 18 {
		attrs = append(attrs, onnx.IntAttr("num_outputs", 2))
	}
	g.AddNode("Split", inputs, []*onnx.Value{up, gate}, attrs...)
	return b.concat("gate_up", axis, gate, up)
}

func (b *expertsBuilder) concat(name string, axis int64, parts ...*onnx.Value) *onnx.Value {
	return b.node("Concat", name, parts, onnx.IntAttr("axis", axis))
}

// stacked returns the weight of all experts as one value.
func (b *expertsBuilder) stacked(name string, s *stack) *onnx.Value {
	if s.blocks != nil {
		return b.placed(name, s.blocks, s.dims...)
	}
	if len(s.parts) == 1 {
		v := b.constant(name, s.parts[0])
		if p := s.part; p != nil {
			v = b.node("Slice", name+"_part", []*onnx.Value{v, b.integers("start", p.from), b.integers("end", p.from+(p.n-1)*p.step+1),
				b.integers("axis", int64(p.axis)), b.integers("step", p.step)})
		}
		return v
	}
	rows := make([]*onnx.Value, len(s.parts))
	for i, p := range s.parts {
		v := b.constant(fmt.Sprintf("%s_%d", name, i), p)
		rows[i] = b.node("Unsqueeze", fmt.Sprintf("%s_row_%d", name, i), []*onnx.Value{v, b.integers("axis", 0)})
	}
	return b.concat(name, 0, rows...)
}

// bias returns the bias of all experts as [experts, out]; nil where there is none.
func (b *expertsBuilder) bias(name string, s *stack) *onnx.Value {
	if s == nil {
		return nil
	}
	v := b.stacked(name, s)
	if s.blocks != nil {
		return v
	}
	rank, ok := b.f.view.Facts.Rank(s.parts[0])
	if ok && len(s.parts) == 1 && rank > 2 {
		v = b.node("Reshape", name+"_rows", []*onnx.Value{v, b.integers("shape", b.reg.routing.experts, -1)})
	}
	return v
}

// constant returns a value that follows from constants alone: an initializer as it is, what nodes make of one by these nodes.
func (b *expertsBuilder) constant(name string, v *onnx.Value) *onnx.Value {
	if w := b.stands[v]; w != nil {
		return w
	}
	if v.IsConstant() || v.Producer == nil || v.Graph != b.f.view.Graph {
		return b.input(name, v)
	}
	if list, ok := b.f.view.Ints(v); ok && b.typeOf(v) == onnx.Int64 {
		if rank, _ := b.f.view.Facts.Rank(v); rank == 1 {
			return b.integers(name, list...)
		}
	}
	if v.Constant() != nil {
		return b.input(name, v)
	}
	n, g := v.Producer, b.m.Replacement
	inputs := make([]*onnx.Value, len(n.Inputs))
	for i, in := range n.Inputs {
		if in != nil {
			inputs[i] = b.constant(name, in)
		}
	}
	outs := make([]*onnx.Value, len(n.Outputs))
	for i, out := range n.Outputs {
		if out != nil {
			outs[i] = g.NewValue(name)
			b.stands[out] = outs[i]
		}
	}
	g.AddNode(n.OpType, inputs, outs, n.Attributes...).Domain = n.Domain
	return b.stands[v]
}
