package quantized

import (
	"fmt"
	"slices"

	"github.com/mojo-patch/mojo-patch/fused"
	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/patterns/reason"
)

// tryHalf compares the product with the op, both with the first outputs of the weight, and the kernel with the op.
func (q *quantizer) tryHalf(p *half) error {
	n := min(p.n, sampleRows, sampleBytes/(4*p.k))
	if n == 0 {
		return reason.New(reason.Unchecked, nil, "cannot be checked: an output has %d weights", p.k)
	}
	dims, strides := []int64{p.k, n}, []int64{p.n, 1}
	if !p.inOut {
		dims, strides = []int64{n, p.k}, []int64{p.k, 1}
	}
	sample, err := p.weight.Const.View("weight", dims, 0, strides)
	if err != nil {
		return fmt.Errorf("cannot be checked: %w", err)
	}
	shape := []onnx.Dim{{Value: 2}, {Value: 3}, {Value: p.k}}
	if p.node.Is("Gemm") {
		shape = shape[1:]
	}
	b := &bench{q: q, site: p.reader, activations: "float",
		x: onnx.Type{DataType: p.typ, HasShape: true, Dims: shape}}
	if p.bias != nil {
		if b.bias, err = p.bias.Constant().View("bias", []int64{n}, 0, []int64{1}); err != nil {
			return fmt.Errorf("cannot be checked: %w", err)
		}
	}
	b.op = func(g *onnx.Graph, x *onnx.Value, _ string) *onnx.Node {
		inputs := []*onnx.Value{x, b.constant(g, sample)}
		if b.bias != nil {
			inputs = append(inputs, b.constant(g, b.bias))
		}
		made := g.AddNode(fused.HalfLinearName, inputs, []*onnx.Value{g.NewValue("made")}, p.attributes()...)
		made.Domain = fused.Domain
		return made
	}
	return b.run(func(g *onnx.Graph, x *onnx.Value, _ string) (*onnx.Node, error) {
		w := b.constant(g, sample)
		for _, view := range slices.Backward(p.views) {
			out := g.NewValue("view")
			g.AddNode(view.OpType, []*onnx.Value{w}, []*onnx.Value{out}, view.Attributes...)
			w = out
		}
		inputs := []*onnx.Value{x, w}
		if b.bias != nil && p.added == nil {
			inputs = append(inputs, b.constant(g, b.bias))
		}
		y := g.AddNode(p.node.OpType, inputs, []*onnx.Value{g.NewValue("y")}, p.node.Attributes...)
		y.Domain = p.node.Domain
		if p.added != nil {
			y = g.AddNode("Add", []*onnx.Value{y.Outputs[0], b.constant(g, b.bias)},
				[]*onnx.Value{g.NewValue("y_biased")})
		}
		return y, nil
	}, false)
}
