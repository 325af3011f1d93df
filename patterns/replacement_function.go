package patterns

import (
	"fmt"
	"strings"

	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/patterns/match"
	"github.com/mojo-patch/mojo-patch/patterns/notation"
	"github.com/mojo-patch/mojo-patch/reference/infer"
)

// build writes the function for a version of the standard. Without CastLike, its numbers have the types of the call's
// inputs, which the overload names.
func build(d *notation.Definition, facts *infer.Facts, inputs []*onnx.Value) (*onnx.Function, error) {
	opset := facts.Opset()
	f := onnx.NewFunction(d.Domain, d.Name, overload(d, facts, inputs), opset)
	f.Attributes = d.Attributes
	b := &builder{g: f.Body, opset: opset, names: map[string]operand{}, refs: map[string]*onnx.Value{}}
	b.typeOf = func(v *onnx.Value) onnx.DataType {
		if opset >= castLikeSince {
			return onnx.Undefined
		}
		return facts.Within(f.Body, inputs).DataType(v)
	}
	for _, n := range d.Params {
		b.names[n] = operand{value: f.Body.AddInput(n, onnx.Type{})}
	}
	for _, n := range d.Attributes {
		b.names[n] = operand{ref: n}
	}
	b.eval = func(e notation.Cond) (any, error) {
		if n, ok := e.(*notation.CondName); ok {
			return attributeRef(n.Name), nil
		}
		return (*match.Attempt)(nil).Eval(e)
	}
	for _, s := range d.Body {
		outs, err := b.call(s.Call, s.Names)
		if err != nil {
			return nil, fmt.Errorf("function %s.%s: %w", d.Domain, d.Name, err)
		}
		for i, n := range s.Names {
			b.names[n] = operand{value: outs[i]}
		}
	}
	for _, n := range d.Results {
		f.Body.AddOutput(b.names[n].value)
	}
	return f, nil
}

// attributeRef is the value of an attribute that refers to the function's.
type attributeRef string

func overload(d *notation.Definition, facts *infer.Facts, inputs []*onnx.Value) string {
	if facts.Opset() >= castLikeSince {
		return ""
	}
	types := make([]string, len(inputs))
	for i, v := range inputs {
		types[i] = facts.DataType(v).String()
	}
	return strings.Join(types, "_")
}
