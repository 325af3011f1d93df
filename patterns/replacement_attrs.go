package patterns

import (
	"fmt"
	"maps"
	"slices"

	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/patterns/match"
	"github.com/mojo-patch/mojo-patch/patterns/notation"
)

// attributes evaluates the attributes of a call.
func (b *builder) attributes(c *notation.TargetCall) ([]*onnx.Attribute, error) {
	var attrs []*onnx.Attribute
	for _, a := range c.Attrs {
		x, err := b.eval(a.Expr)
		if err != nil {
			b.unbound = true
			return nil, err
		}
		attr, err := attribute(c, a, x)
		if err != nil {
			return nil, fmt.Errorf("attribute %s of %s: %w", a.Name, c.Name(), err)
		}
		attrs = append(attrs, attr)
	}
	return attrs, nil
}

// attribute makes an attribute of the op's type. For ops of domain mojo, the spelling of the number decides.
func attribute(c *notation.TargetCall, a notation.TargetAttr, x any) (*onnx.Attribute, error) {
	switch v := x.(type) {
	case attributeRef:
		return onnx.RefAttr(a.Name, notation.AttributeType(a.Name), string(v)), nil
	case []int64:
		return onnx.IntsAttr(a.Name, v), nil
	case string:
		if a.Name == "to" && c.Op == "Cast" { // Cast(x; to=type(y))
			t, err := onnx.ParseDataType(v)
			return onnx.IntAttr(a.Name, int64(t)), err
		}
		return onnx.StringAttr(a.Name, v), nil
	case bool:
		if v {
			return onnx.IntAttr(a.Name, 1), nil
		}
		return onnx.IntAttr(a.Name, 0), nil
	case int64:
		return onnx.IntAttr(a.Name, v), nil
	case float64:
		integral := isIntegral(a.Expr)
		switch {
		case c.Function != nil:
			integral = c.Function.Types[a.Name] == onnx.AttrInt
		case c.Domain != "mojo":
			integral = notation.AttributeType(a.Name) == onnx.AttrInt
		}
		if !integral {
			return onnx.FloatAttr(a.Name, float32(v)), nil
		}
		if v != float64(int64(v)) {
			return nil, fmt.Errorf("%v is not an integer", v)
		}
		return onnx.IntAttr(a.Name, int64(v)), nil
	}
	return nil, fmt.Errorf("expected a number, a string or a list, found %s", match.Format(x))
}

// isIntegral reports whether an expression is always an integer: functions are, captures may not be.
func isIntegral(e notation.Cond) bool {
	switch e := e.(type) {
	case *notation.CondNumber:
		return !e.Float
	case *notation.CondName:
		return e.IsTag
	case *notation.CondUnary:
		return isIntegral(e.X)
	case *notation.CondBinary:
		return e.Op != "/" && isIntegral(e.X) && isIntegral(e.Y)
	}
	return true
}

// form adapts a standard call to the opset: values that are attributes in some versions and inputs in others, and the
// number of parts of a Split.
func (b *builder) form(c *notation.TargetCall, args []operand, attrs []*onnx.Attribute,
	outputs int) ([]operand, []*onnx.Attribute, error) {
	asInputs := b.opset >= inputsSince(c.Op)
	byAttr := match.AttributeInputs[c.Op]
	for _, name := range slices.Sorted(maps.Keys(byAttr)) { // in a fixed order, for reproducible results
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
				return nil, nil, fmt.Errorf("%s of %s is an input since opset %d and cannot be an attribute of "+
					"the function", name, c.Op, inputsSince(c.Op))
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
					return nil, nil, fmt.Errorf("%s takes %s as an input since opset %d; the model imports %d", c.Op,
						name, inputsSince(c.Op), b.opset)
				}
			}
			args[i] = operand{}
		}
	}
	if c.Op == "Split" {
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
