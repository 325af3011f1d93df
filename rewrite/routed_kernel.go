package rewrite

import (
	"slices"

	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/patterns"
	"github.com/mojo-patch/mojo-patch/reference"
)

// The sizes at which the kernel of a great site is tried: neither is a multiple of a register's width.
const (
	smallHidden = 52
	smallInner  = 36
	smallTokens = 5
)

// smallKernel compares the kernel with the op's definition as kernel does, where the weights of the site are too
// great to be handed over: on few experts of the same types and attributes, with small matrices.
func (x *routed) smallKernel() error {
	if x.config.kernelCheck == nil || isDefinition(x.r.call.kernel) {
		return nil
	}
	call := *x.r.call
	small := *x.r
	small.experts = x.r.chosen + 3
	t := &trial{size: size{tokens: smallTokens}, kind: kinds[0], hits: small.chosen + 1}
	g := onnx.NewFunction("", "", "", x.model.Opset("")).Body
	values := map[*onnx.Value]*reference.Tensor{}
	inputs := slices.Clone(call.node.Inputs)
	for i, v := range inputs {
		if v == nil {
			continue
		}
		var err error
		shape, typ := small.shape(i), call.site.Types[i]
		in := g.AddInput(call.op.Inputs[i].Name, onnx.Type{})
		switch patterns.RolesOf(experts)[i] {
		case patterns.IDs:
			values[in] = reference.NewInts(typ, ints(shape), small.route(t.tokens, t.hits, 0))
		case patterns.Weights:
			values[in] = reference.NewFloats(typ, ints(shape),
				weightsOf(t, typ, int(t.tokens*small.chosen), small.chosen))
		case patterns.Matrix:
			var t *reference.Tensor
			if t, err = reference.NewLazy(typ, ints(shape), randomNumbers(i, matrixScale(shape), typ)); err == nil {
				values[in], err = t.Dense()
			}
		default:
			values[in], err = makeInput(kinds[0], i, typ, shape)
		}
		if err != nil {
			return &evalError{err}
		}
		inputs[i] = in
	}
	out := g.NewValue(call.op.Outputs[0].Name)
	n := g.AddNode(call.node.OpType, inputs, []*onnx.Value{out}, call.node.Attributes...)
	n.Domain, n.Overload = call.node.Domain, call.node.Overload
	call.node = n
	e := reference.NewForOpset(x.model.Opset(""), x.c.functions, reference.Options{})
	if err := e.Eval(g.Nodes, values); err != nil {
		return &evalError{err}
	}
	return x.kernel(x.c, &call, t.kind, values, x.out, nil)
}

// shape returns the shape of an input of MoE at the small sizes.
func (r *routing) shape(input int) []int64 {
	wide := int64(2 * smallInner)
	if r.call.site.Attr("packing").String == "none" {
		wide = smallInner
	}
	matrix := func(layout string, out, in int64) []int64 {
		if r.call.site.Attr(layout).String == "in_out" {
			out, in = in, out
		}
		return []int64{r.experts, out, in}
	}
	return [][]int64{{smallTokens, smallHidden}, {smallTokens, r.chosen}, {smallTokens, r.chosen},
		matrix("gate_up_layout", wide, smallHidden), matrix("down_layout", smallHidden, smallInner), {r.experts, wide},
		{r.experts, smallHidden}}[input]
}
