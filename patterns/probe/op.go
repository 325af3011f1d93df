package probe

import (
	"fmt"

	"github.com/mojo-patch/mojo-patch/fused"
	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/reference"
)

// opOpset is the opset of the definitions that regions are compared with.
const opOpset = 18

// Fused is Op for an op of the catalogue.
func Fused(op fused.Typed, spend func(steps int) error, inputs ...*reference.Tensor) ([]*reference.Tensor, error) {
	return Op(op.OpType(), op.Attributes(), spend, inputs...)
}

// Op evaluates a fused op by its definition in the catalogue, or a standard op with one output, without roundings.
// inputs are the first inputs of the op; absent ones are nil. spend receives the steps of the evaluation; it may be
// nil. Op returns an error if the op rejects its inputs or attributes.
func Op(name string, attributes []*onnx.Attribute, spend func(steps int) error, inputs ...*reference.Tensor,
) ([]*reference.Tensor, error) {
	g := onnx.NewFunction("", "", "", opOpset).Body
	site := fused.Site{Attributes: attributes, Opset: opOpset}
	env := Values{}
	var in []*onnx.Value
	for _, t := range inputs {
		if t == nil {
			in, site.Types, site.Dims = append(in, nil), append(site.Types, onnx.Undefined), append(site.Dims, nil)
			continue
		}
		v := g.AddInput("", onnx.Type{})
		in, env[v] = append(in, v), t
		site.Types, site.Dims = append(site.Types, t.DataType), append(site.Dims, t.Dims())
	}
	out := []*onnx.Value{g.NewValue("")}
	var functions []*onnx.Function
	op := fused.Lookup(name)
	if op != nil {
		f, err := op.Function(site)
		if err != nil {
			return nil, err
		}
		functions = append(functions, f)
		for range op.Outputs[1:] {
			out = append(out, g.NewValue(""))
		}
	}
	n := g.AddNode(name, in, out, attributes...)
	if op != nil {
		n.Domain, n.Overload = functions[0].Domain, functions[0].Overload
	}
	e := reference.NewForOpset(opOpset, functions, reference.Options{Exact: true, Spend: spend})
	if _, err := e.EvalFor([]*onnx.Node{n}, env, out); err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	results := make([]*reference.Tensor, len(out))
	for i, v := range out {
		results[i] = env[v]
	}
	return results, nil
}
