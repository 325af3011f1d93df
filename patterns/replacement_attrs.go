package patterns

import (
	"fmt"
	"maps"
	"slices"

	"github.com/mojo-patch/mojo-patch/onnx"
)

// attributes evaluates the attributes of a call.
func (b *builder) attributes(c *targetCall) ([]*onnx.Attribute, error) {
	var attrs []*onnx.Attribute
	for _, a := range c.attrs {
		x, err := b.eval(a.expr)
		if err != nil {
			b.unbound = true
			return nil, err
		}
		attr, err := c.attribute(a, x)
		if err != nil {
			return nil, fmt.Errorf("attribute %s of %s: %w", a.name, c.name(), err)
		}
		attrs = append(attrs, attr)
	}
	return attrs, nil
}

// attribute makes an attribute of the type that the op wants; ops of domain mojo tell by how the number is written.
func (c *targetCall) attribute(a targetAttr, x any) (*onnx.Attribute, error) {
	switch v := x.(type) {
	case attributeRef:
		return onnx.RefAttr(a.name, attributeType(a.name), string(v)), nil
	case []int64:
		return onnx.IntsAttr(a.name, v), nil
	case string:
		if a.name == "to" && c.op == "Cast" { // Cast(x; to=type(y))
			t, err := onnx.ParseDataType(v)
			return onnx.IntAttr(a.name, int64(t)), err
		}
		return onnx.StringAttr(a.name, v), nil
	case bool:
		if v {
			return onnx.IntAttr(a.name, 1), nil
		}
		return onnx.IntAttr(a.name, 0), nil
	case int64:
		return onnx.IntAttr(a.name, v), nil
	case float64:
		integral := isIntegral(a.expr)
		switch {
		case c.function != nil:
			integral = c.function.types[a.name] == onnx.AttrInt
		case c.domain != "mojo":
			integral = attributeType(a.name) == onnx.AttrInt
		}
		if !integral {
			return onnx.FloatAttr(a.name, float32(v)), nil
		}
		if v != float64(int64(v)) {
			return nil, fmt.Errorf("%v is no integer", v)
		}
		return onnx.IntAttr(a.name, int64(v)), nil
	}
	return nil, fmt.Errorf("a number, a string or a list is wanted, found %s", formatAny(x))
}

// isIntegral reports whether an expression gives integers whatever it is applied to: functions do, captures may not.
func isIntegral(e condExpr) bool {
	switch e := e.(type) {
	case *condNumber:
		return !e.float
	case *condName:
		return e.isTag
	case *condUnary:
		return isIntegral(e.x)
	case *condBinary:
		return e.op != "/" && isIntegral(e.x) && isIntegral(e.y)
	}
	return true
}

// form brings a call of the standard into the form that the opset has: what is an attribute in some versions and an input in
// others, and the number of parts of a Split.
func (b *builder) form(c *targetCall, args []operand, attrs []*onnx.Attribute, outputs int) ([]operand, []*onnx.Attribute, error) {
	asInputs := b.opset >= inputsSince(c.op)
	byAttr := attributeInputs[c.op]
	for _, name := range slices.Sorted(maps.Keys(byAttr)) { // in one order, for one result
		i := byAttr[name]
		at := slices.IndexFunc(attrs, func(a *onnx.Attribute) bool { return a.Name == name })
		switch {
		case asInputs && at >= 0:
			for len(args) <= i {
				args = append(args, operand{})
			}
			args[i].name = name
			switch a := attrs[at]; {
			case a.RefName != "":
				return nil, nil, fmt.Errorf("%s of %s is an input from opset %d on and cannot be an attribute of the function", name, c.op, inputsSince(c.op))
			case a.Type == onnx.AttrInts:
				args[i].literal = a.Ints
			case a.Type == onnx.AttrFloat:
				args[i].literal = float64(a.Float)
			default:
				args[i].literal = []int64{a.Int}
			}
			attrs = slices.Delete(attrs, at, at+1)
		case !asInputs && at < 0 && i < len(args):
			switch x := args[i].literal.(type) {
			case []int64:
				attrs = append(attrs, onnx.IntsAttr(name, x))
			case float64:
				attrs = append(attrs, onnx.FloatAttr(name, float32(x)))
			case nil:
				if args[i].value != nil {
					return nil, nil, fmt.Errorf("%s takes %s as an input from opset %d on, the model imports %d", c.op, name, inputsSince(c.op), b.opset)
				}
			}
			args[i] = operand{}
		}
	}
	if c.op == "Split" {
		at := slices.IndexFunc(attrs, func(a *onnx.Attribute) bool { return a.Name == "num_outputs" })
		switch {
		case b.opset < splitPartsSince && at >= 0:
			attrs = slices.Delete(attrs, at, at+1)
		case b.opset >= splitPartsSince && at < 0 && len(args) < 2:
			attrs = append(attrs, onnx.IntAttr("num_outputs", int64(outputs)))
		}
	}
	return args, attrs, nil
}
