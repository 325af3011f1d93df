package rules

import (
	"math"

	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/reference/infer/term"
)

// operation computes an element from elements of the inputs.
type operation func(c *Call, of []term.Number) term.Number

// elementwise are the ops on expressions, element by element; nil for ops that are never polynomials.
var elementwise = map[string]operation{
	"Abs": func(c *Call, of []term.Number) term.Number {
		if c.table().Natural(of[0]) {
			return of[0]
		}
		return c.table().Result("abs", of...)
	},
	"Add":            func(c *Call, of []term.Number) term.Number { return c.table().Add(of[0], of[1]) },
	"And":            logic(0),
	"Cast":           cast,
	"CastLike":       func(c *Call, of []term.Number) term.Number { return cast(c, of[:1]) },
	"Ceil":           whole,
	"Clip":           clip,
	"Div":            divide,
	"Equal":          equals,
	"Floor":          whole,
	"Greater":        func(c *Call, of []term.Number) term.Number { return less(c, of[1], of[0]) },
	"GreaterOrEqual": func(c *Call, of []term.Number) term.Number { return lessOrEqual(c, of[1], of[0]) },
	"Less":           func(c *Call, of []term.Number) term.Number { return less(c, of[0], of[1]) },
	"LessOrEqual":    func(c *Call, of []term.Number) term.Number { return lessOrEqual(c, of[0], of[1]) },
	"Max":            greatest,
	"Min":            least,
	"Mod":            modulo,
	"Mul":            func(c *Call, of []term.Number) term.Number { return c.table().Mul(of[0], of[1]) },
	"Neg":            func(c *Call, of []term.Number) term.Number { return c.table().Sub(0, of[0]) },
	"Not": func(c *Call, of []term.Number) term.Number {
		if !c.table().Open(of[0]) {
			return 1 - of[0]
		}
		return c.table().Result("is not", of...)
	},
	"Or":    logic(1),
	"Pow":   power,
	"Relu":  func(c *Call, of []term.Number) term.Number { return greatest(c, []term.Number{of[0], 0}) },
	"Round": whole,
	"Sub":   func(c *Call, of []term.Number) term.Number { return c.table().Sub(of[0], of[1]) },
	"Sum":   add,
	"Where": where,

	"Acos": nil, "Asin": nil, "Atan": nil, "Cos": nil, "Elu": nil, "Erf": nil, "Exp": nil, "HardSigmoid": nil,
	"IsInf": nil, "IsNaN": nil, "LeakyRelu": nil, "Log": nil, "Mean": nil, "Reciprocal": nil, "Sigmoid": nil,
	"Sign": nil, "Sin": nil, "Softplus": nil, "Sqrt": nil, "Tan": nil, "Tanh": nil, "Xor": nil,
}

// folds are the reductions of a list.
var folds = map[string]operation{"ReduceMax": greatest, "ReduceMin": least,
	"ReduceProd": func(c *Call, of []term.Number) term.Number { return c.table().Mul(of[0], of[1]) }, "ReduceSum": add}

func add(c *Call, of []term.Number) term.Number {
	n := term.Number(0)
	for _, x := range of {
		n = c.table().Add(n, x)
	}
	return n
}

func least(c *Call, of []term.Number) term.Number {
	n := of[0]
	for _, x := range of[1:] {
		n = c.table().Least(n, x)
	}
	return n
}

func greatest(c *Call, of []term.Number) term.Number {
	n := of[0]
	for _, x := range of[1:] {
		n = c.table().Greatest(n, x)
	}
	return n
}

func clip(c *Call, of []term.Number) term.Number {
	n := of[0]
	if len(of) > 1 && of[1] != missing {
		n = c.table().Greatest(n, of[1])
	}
	if len(of) > 2 && of[2] != missing {
		n = c.table().Least(n, of[2])
	}
	if len(of) == 1 { // with its bounds as attributes
		return c.table().Result(c.name(), of...)
	}
	return n
}

// logic is And (0) or Or (1): one operand decides, or leaves it to the other.
func logic(decides term.Number) operation {
	return func(c *Call, of []term.Number) term.Number {
		for i, x := range of {
			switch {
			case c.table().Open(x):
			case x == decides:
				return x
			default:
				return of[1-i]
			}
		}
		return c.table().Result("is "+c.Node.OpType, min(of[0], of[1]), max(of[0], of[1]))
	}
}

func equals(c *Call, of []term.Number) term.Number {
	a, b, t := of[0], of[1], c.table()
	switch {
	case a == b:
		return 1
	case t.AtLeast(a, t.Add(b, 1)), t.AtLeast(b, t.Add(a, 1)):
		return 0
	}
	return t.Result("is equal", min(a, b), max(a, b))
}

func less(c *Call, a, b term.Number) term.Number {
	switch t := c.table(); {
	case t.AtLeast(b, t.Add(a, 1)):
		return 1
	case t.AtLeast(a, b):
		return 0
	default:
		return t.Result("is less", a, b)
	}
}

func lessOrEqual(c *Call, a, b term.Number) term.Number {
	switch t := c.table(); {
	case t.AtLeast(b, a):
		return 1
	case t.AtLeast(a, t.Add(b, 1)):
		return 0
	default:
		return t.Result("is less or equal", a, b)
	}
}

func where(c *Call, of []term.Number) term.Number {
	switch {
	case of[1] == of[2]:
		return of[1]
	case c.table().Open(of[0]):
		return c.table().Result("where", of...)
	case of[0] != 0:
		return of[1]
	}
	return of[2]
}

// divide: integer division truncates, which is rounding down for nonnegative numbers.
func divide(c *Call, of []term.Number) term.Number {
	a, b, t := of[0], of[1], c.table()
	float := c.out[0].DataType.IsFloat()
	x, ok1 := t.Value(a)
	y, ok2 := t.Value(b)
	if ok1 && ok2 {
		switch {
		case float:
			return t.Real(x / y)
		case b == 0:
			return t.Result("div", a, b)
		}
		return a / b
	}
	if n, ok := t.Exact(a, b); ok {
		return n
	}
	if !float && t.Natural(a) && t.Natural(b) {
		return t.Floor(a, b)
	}
	if float {
		return t.Result("quotient", a, b)
	}
	return t.Result("div", a, b)
}

func modulo(c *Call, of []term.Number) term.Number {
	a, b, t := of[0], of[1], c.table()
	if c.out[0].DataType.IsFloat() || c.attrInt("fmod", 0) != 0 || !t.Natural(b) || b == 0 {
		return t.Result(c.name(), a, b)
	}
	return t.Mod(a, b)
}

// maxPower bounds the exponents of powers that are products.
const maxPower = 4

func power(c *Call, of []term.Number) term.Number {
	if of[1] < 0 || of[1] > maxPower {
		return c.table().Result("power", of...)
	}
	n := term.Number(1)
	for range of[1] {
		n = c.table().Mul(n, of[0])
	}
	return n
}

// whole is a rounding, which keeps integers.
func whole(c *Call, of []term.Number) term.Number {
	if c.table().Whole(of[0]) {
		return of[0]
	}
	if x, ok := c.table().Value(of[0]); ok {
		switch c.Node.OpType {
		case "Floor":
			return c.table().Real(math.Floor(x))
		case "Ceil":
			return c.table().Real(math.Ceil(x))
		}
	}
	return c.table().Result(c.Node.OpType, of...)
}

// short are the types that cannot hold every size.
var short = map[onnx.DataType]bool{onnx.Float16: true, onnx.BFloat16: true, onnx.Int4: true, onnx.Uint4: true,
	onnx.Int8: true, onnx.Uint8: true, onnx.Int16: true, onnx.Uint16: true}

// cast keeps numbers if the type can hold them.
func cast(c *Call, of []term.Number) term.Number {
	t := c.out[0].DataType
	switch {
	case t == onnx.Bool && !c.table().Open(of[0]):
		return min(of[0]*of[0], 1)
	case short[t] && c.table().Open(of[0]): // greater sizes are rounded, or wrap around
	case t != onnx.Bool && (t.IsFloat() || c.table().Whole(of[0])):
		return of[0]
	}
	return c.table().Result("cast "+t.String(), of...)
}
