package patterns

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/patterns/notation"
	"github.com/mojo-patch/mojo-patch/patterns/site"
)

// builder writes the nodes of a replacement, or of a function's body, for one version of the standard.
type builder struct {
	g     *onnx.Graph
	opset int64
	names map[string]operand
	refs  map[string]*onnx.Value // attributes of the function as values
	eval  func(notation.Cond) (any, error)
	// typeOf returns the type of a value made so far, Undefined if only CastLike can tell.
	typeOf func(*onnx.Value) onnx.DataType
	define func(c *notation.TargetCall, inputs []*onnx.Value) (*onnx.Function, error)

	main    *notation.TargetCall
	attrs   []*onnx.Attribute // of the node of main
	unbound bool              // an attribute reads a name that this match does not bind
}

// operand is an argument of a node: a value, the function's attribute ref, a literal (float64 or []int64), or nothing.
type operand struct {
	value   *onnx.Value
	ref     string
	literal any
	name    string // of a literal, if it has one
}

// call adds the nodes of a call; its outputs are named after results.
func (b *builder) call(c *notation.TargetCall, results []string) ([]*onnx.Value, error) {
	args := make([]operand, len(c.Args))
	for i, a := range c.Args {
		switch a := a.(type) {
		case *notation.Name:
			args[i] = b.names[a.Name]
		case *notation.Number:
			args[i].literal = a.Value
		case *notation.List:
			list, err := b.eval(a.List)
			if err != nil {
				b.unbound = true
				return nil, err
			}
			args[i].literal = list
		case *notation.TargetCall:
			vs, err := b.call(a, []string{strings.ToLower(a.Op)})
			if err != nil {
				return nil, err
			}
			args[i].value = vs[0]
		}
	}
	attrs, err := b.attributes(c)
	if err != nil {
		return nil, err
	}
	if onnx.IsStandardDomain(c.Domain) {
		if err := inOpset(c.Op, b.opset); err != nil {
			return nil, err
		}
		if args, attrs, err = b.form(c, args, attrs, len(results)); err != nil {
			return nil, err
		}
	}
	inputs, err := b.values(c, args)
	if err != nil {
		return nil, err
	}
	outputs := make([]*onnx.Value, len(results))
	for i, name := range results {
		outputs[i] = b.g.NewValue(name)
	}
	overload := ""
	if c.Function != nil {
		f, err := b.define(c, inputs)
		if err != nil {
			return nil, err
		}
		overload = f.Overload
	}
	n := b.g.AddNode(c.Op, inputs, outputs, attrs...)
	n.Domain, n.Overload = c.Domain, overload
	if c == b.main {
		b.attrs = attrs
	}
	return outputs, nil
}

// values converts literal operands to constants.
func (b *builder) values(c *notation.TargetCall, args []operand) ([]*onnx.Value, error) {
	var like *onnx.Value // numbers get its type
	for i, a := range args {
		if a.value != nil && !(i == 0 && c.Op == "Where") {
			like = a.value
			break
		}
	}
	inputs := make([]*onnx.Value, len(args))
	for i, a := range args {
		var err error
		switch x := a.literal.(type) {
		case []int64:
			inputs[i] = b.constant(cmp.Or(a.name, "ints"), onnx.NewInt64s("", x))
		case float64:
			if integerAt(c, i) {
				inputs[i], err = b.number(x, onnx.Int64)
			} else {
				inputs[i], err = b.numberLike(x, like)
			}
		case nil:
			if inputs[i] = a.value; a.ref != "" {
				inputs[i], err = b.castLike(b.attribute(a.ref), like)
			}
		default:
			err = fmt.Errorf("%s takes numbers, not %v", c.Name(), x)
		}
		if err != nil {
			return nil, err
		}
	}
	for len(inputs) > 0 && inputs[len(inputs)-1] == nil {
		inputs = inputs[:len(inputs)-1]
	}
	return inputs, nil
}

func integerAt(c *notation.TargetCall, i int) bool {
	at, ok := integerInputs[c.Op]
	return ok && at == i && onnx.IsStandardDomain(c.Domain)
}

// numberLike makes a constant with the type of another value.
func (b *builder) numberLike(x float64, like *onnx.Value) (*onnx.Value, error) {
	if like == nil {
		return b.number(x, onnx.Float)
	}
	if t := b.typeOf(like); t != onnx.Undefined {
		return b.number(x, t)
	}
	v, err := b.number(x, onnx.Float)
	if err != nil {
		return nil, err
	}
	return b.castLike(v, like)
}

// castLike casts a float32 constant to the type of another value.
func (b *builder) castLike(v, like *onnx.Value) (*onnx.Value, error) {
	switch {
	case like == nil:
		return v, nil
	case b.opset >= castLikeSince:
		return b.node("CastLike", v.Name+"_like", []*onnx.Value{v, like}), nil
	}
	switch t := b.typeOf(like); t {
	case onnx.Undefined:
		return nil, fmt.Errorf("the number next to %q needs its type, which is not known, and opset %d has no CastLike",
			like.Name, b.opset)
	case onnx.Float:
		return v, nil
	default:
		return b.node("Cast", v.Name+"_cast", []*onnx.Value{v}, onnx.IntAttr("to", int64(t))), nil
	}
}

// node adds a standard node with one output.
func (b *builder) node(opType, name string, inputs []*onnx.Value, attrs ...*onnx.Attribute) *onnx.Value {
	v := b.g.NewValue(name)
	b.g.AddNode(opType, inputs, []*onnx.Value{v}, attrs...)
	return v
}

// attribute returns the FLOAT attribute of the function as a value, which is created once.
func (b *builder) attribute(ref string) *onnx.Value {
	if b.refs[ref] == nil {
		b.refs[ref] = b.node("Constant", ref, nil, onnx.RefAttr("value_float", onnx.AttrFloat, ref))
	}
	return b.refs[ref]
}

func (b *builder) constant(name string, t *onnx.Tensor) *onnx.Value {
	return b.node("Constant", name, nil, onnx.TensorAttr("value", t))
}

func (b *builder) number(x float64, t onnx.DataType) (*onnx.Value, error) {
	c, err := site.Scalar(x, t)
	if err != nil {
		return nil, err
	}
	return b.constant("number", c), nil
}
