package match

import (
	"cmp"
	"slices"

	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/patterns/notation"
	"github.com/mojo-patch/mojo-patch/patterns/reason"
)

// expectation is one form that would have matched at the place where an attempt stopped.
type expectation struct {
	words string
	want  notation.Expr // not Alternatives; a Name only if it has no expression or is bound
	bound Binding       // of a Name or Capture

	factors []string // of a product or sum of several, in words
}

// op returns the expected op, "" if several would do.
func (x expectation) op() string {
	switch e := x.want.(type) {
	case *notation.Call:
		return e.Op
	case *productExpr:
		return e.Op
	}
	return ""
}

// attribute reports whether a node with an attribute of one of these names is expected.
func (x expectation) attribute(names ...string) bool {
	switch e := x.want.(type) {
	case *attrExpr:
		return slices.Contains(names, e.attr.Name)
	case *notation.Call:
		return slices.ContainsFunc(e.Attrs, func(a notation.AttrPattern) bool { return slices.Contains(names, a.Name) })
	}
	return false
}

// capture returns the name of an expected constant whose value is free, "" for other expectations.
func (x expectation) capture() string {
	if e, ok := x.want.(*notation.Capture); ok && x.bound.Captured == nil {
		return e.Name
	}
	return ""
}

// isConstant reports whether a constant of a certain value is expected.
func (x expectation) isConstant() bool {
	switch x.want.(type) {
	case *notation.Number, *notation.Ints:
		return true
	case *notation.Capture:
		return x.bound.Captured != nil
	}
	return false
}

// factor reports whether a product with name as a factor, or as the last factor, is expected.
func (x expectation) factor(name string, last bool) bool {
	at := slices.Index(x.factors, name)
	return at >= 0 && x.op() == "Mul" && (!last || at == len(x.factors)-1)
}

// elsewhere returns the name whose value is bound elsewhere in the block, or "".
func (x expectation) elsewhere() string {
	switch e := x.want.(type) {
	case *notation.Name:
		if x.bound.Value != nil {
			return e.Name
		}
	case *notation.Capture:
		if x.bound.Captured != nil {
			return e.Name
		}
	}
	return ""
}

// kind classifies a failure, to be shown at a node. The nodes found count more than the expectations.
func (f *failure) kind(at *onnx.Node) reason.Code {
	if f.where {
		return f.code
	}
	would := f.would()
	would = would[:min(len(would), maxExpected)] // only those that are shown
	some := func(is func(x expectation) bool) bool { return slices.ContainsFunc(would, is) }
	op := func(names ...string) bool {
		return some(func(x expectation) bool { return slices.Contains(names, x.op()) })
	}
	switch {
	case f.code == reason.Unknown:
		return f.code
	case f.foundOp == "Dropout":
		return reason.Dropout
	case f.foundOp == "Cast", f.foundOp == "CastLike":
		return reason.Cast
	case slices.Contains([]string{"DequantizeLinear", "QuantizeLinear", "MatMulNBits"}, f.foundOp):
		return reason.Quantized
	case f.between:
		return reason.Between
	case op("Sub") && f.foundOp == "ReduceMean", op("Add") && at.OpType == "ReduceMean":
		return reason.NoEpsilon
	case op("Sqrt", "Pow") && f.foundOp == "Add":
		return reason.EpsilonAfter
	case f.code != "":
		return f.code
	case some(func(x expectation) bool { return x.capture() == "epsilon" }) &&
		(f.stands == asInput || f.stands == asTensor):
		return reason.EpsilonTensor
	case some(func(x expectation) bool { return x.capture() != "" }):
		return reason.NotConstant
	case some(func(x expectation) bool { return x.attribute("axes", "axis") }):
		return reason.Axis
	case some(func(x expectation) bool { return x.attribute("keepdims") }):
		return reason.AxisDropped
	case op("Row"):
		return reason.ScaleShape
	case some(func(x expectation) bool { return x.factor("scale", false) }):
		return reason.NoScale
	case some(func(x expectation) bool { return x.factor("up", true) }):
		return reason.NotGated
	case some(func(x expectation) bool { return x.elsewhere() == "gate" }):
		return reason.GateDiffers
	case len(would) > 0 && would[0].isConstant() && (f.stands == asNumber || f.stands == asTensor):
		return reason.OtherConstant
	case some(func(x expectation) bool { return x.elsewhere() != "" }):
		return reason.Elsewhere
	}
	return reason.Other
}

// lacks returns the reason why a function has no answer, or "".
func (s *Attempt) lacks(f function, list []notation.Cond) reason.Code {
	args, err := s.evalAll(list)
	if err != nil {
		return reason.Unknown
	}
	found, err := f.call(s.g, args)
	if err != nil {
		return reason.Unknown
	}
	return f.lacks(s.g, args, found)
}

// kindOf classifies a condition that does not hold.
func (s *Attempt) kindOf(c notation.Condition) reason.Code {
	calls := map[string][]*notation.CondCall{}
	var missing reason.Code // why the condition cannot be decided
	compares := func(string) bool { return false }
	notation.Walk(c.Expr, func(e notation.Cond) {
		switch e := e.(type) {
		case *notation.CondCall:
			calls[e.Name] = append(calls[e.Name], e)
			if functions[e.Name].lacks != nil && missing != reason.Unknown {
				missing = cmp.Or(s.lacks(functions[e.Name], e.Args), missing)
			}
		case *notation.CondBinary:
			if before := compares; e.Compares() {
				compares = func(name string) bool { return before(name) || e.X.String() == name }
			}
		}
	})
	of := func(name string, functions ...string) bool {
		return slices.ContainsFunc(functions, func(f string) bool {
			return slices.ContainsFunc(calls[f], func(c *notation.CondCall) bool { return c.Args[0].String() == name })
		})
	}
	both := func(c *notation.CondCall) bool { return c.Args[0].String() == "gate" && c.Args[1].String() == "up" }
	switch {
	case missing != "":
		return missing
	case calls["centered"] != nil:
		return reason.Centered
	case compares("epsilon"):
		return reason.EpsilonZero
	case of("scale", "rank", "dim"), calls["weighted"] != nil:
		return reason.ScaleShape
	case of("bias", "rank", "dim"), of("beta", "rank", "dim"):
		return reason.BiasShape
	case calls["type"] != nil, compares("after"):
		return reason.MixedTypes
	case calls["routed"] != nil:
		return reason.Routed
	case slices.ContainsFunc(calls["sameshape"], both):
		return reason.UpShape
	}
	return reason.Other
}
