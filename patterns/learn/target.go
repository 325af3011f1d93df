package learn

import (
	"fmt"

	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/patterns/notation"
	"github.com/mojo-patch/mojo-patch/reference"
)

// target returns the operand of the right side for a value of the replacement.
func (w *writer) target(v *onnx.Value) (notation.Expr, error) {
	for i, in := range w.m.Replacement.Inputs {
		if v == in {
			return &notation.Name{Name: w.params[i]}, nil
		}
	}
	if v == nil {
		return notation.Wildcard{}, nil
	}
	if c := v.Constant(); c != nil {
		return w.literal(v)
	}
	n := v.Producer
	if n == nil {
		return nil, fmt.Errorf("its replacement reads %q, which is not an operand", v.Name)
	}
	if n.Is("Reshape") {
		for i, in := range w.m.Replacement.Inputs {
			if n.Inputs[0] == in && w.rows[w.params[i]] { // Row makes it a list
				return &notation.Name{Name: w.params[i]}, nil
			}
		}
	}
	call := &notation.TargetCall{Op: n.OpType, Domain: n.Domain}
	for _, in := range n.Inputs {
		arg, err := w.target(in)
		if err != nil {
			return nil, err
		}
		call.Args = append(call.Args, arg)
	}
	for _, a := range n.Attributes {
		e, err := w.attributeOf(n, a)
		if err != nil {
			return nil, err
		}
		call.Attrs = append(call.Attrs, notation.TargetAttr{Name: a.Name, Expr: e})
	}
	return call, nil
}

// attributeOf returns the expression of an attribute of the replacement.
func (w *writer) attributeOf(n *onnx.Node, a *onnx.Attribute) (notation.Cond, error) {
	switch {
	case a.Type == onnx.AttrFloat:
		if tells := w.teller(a.Name); tells != "" && n.Domain == w.m.Domain && n.OpType == w.m.Op {
			return w.expression(tells)
		}
		return &notation.CondNumber{Value: short(float64(a.Float)), Float: true}, nil
	case a.Type == onnx.AttrInt && n.Is("Cast") && a.Name == "to":
		return w.expression(fmt.Sprintf("type(%s)", w.typedAs(onnx.DataType(a.Int))))
	case a.Name == rotaryDim && w.teller(rotaryDim) != "":
		return w.expression(w.teller(rotaryDim))
	case a.Name == rotaryDim && w.whole():
		return w.expression(fmt.Sprintf("dim(%s, -1)", w.params[0]))
	case a.Type == onnx.AttrInt:
		return &notation.CondNumber{Value: float64(a.Int)}, nil
	case a.Type == onnx.AttrString:
		return &notation.CondString{Value: a.String}, nil
	case a.Type == onnx.AttrInts:
		return w.list(a.Ints, false), nil
	}
	return nil, fmt.Errorf("attribute %s of %s in its replacement is not a number, text or list", a.Name, n.OpType)
}

// whole reports whether all channels are rotated.
func (w *writer) whole() bool {
	all, ok := w.Facts.Dim(w.m.Inputs[0], -1)
	return ok && float64(all) == w.rotary
}

func (w *writer) expression(text string) (notation.Cond, error) {
	c, err := w.set.Condition(text)
	return c.Expr, err
}

// typedAs returns the name of an input of the type, or else of the first result.
func (w *writer) typedAs(t onnx.DataType) string {
	for i, v := range w.m.Inputs {
		if w.Facts.DataType(v) == t && w.IsData(v) {
			return w.params[i]
		}
	}
	return w.results[0]
}

// maxLiteral bounds the integers in a list of the replacement.
const maxLiteral = 8

// literal returns the operand for a constant of the replacement.
func (w *writer) literal(v *onnx.Value) (notation.Expr, error) {
	t, err := reference.FromONNX(v.Constant())
	switch {
	case err != nil:
		return nil, err
	case len(t.F) == 1 && len(t.Shape) == 0:
		return w.factor(t.F[0]), nil
	case len(t.I) == 1 && len(t.Shape) == 0:
		return &notation.Number{Value: float64(t.I[0])}, nil
	case len(t.Shape) == 1 && len(t.F) == 0 && len(t.I) <= maxLiteral:
		return &notation.List{List: w.list(t.I, true)}, nil
	}
	return nil, fmt.Errorf("its replacement reads a constant of %d elements, which the notation cannot express",
		t.Len())
}

// factor returns the operand for a number of the replacement: a number of the region if they are equal.
func (w *writer) factor(x float64) notation.Expr {
	for _, n := range w.numbers {
		if near(n.Value, x) {
			return &notation.Name{Name: n.Name}
		}
	}
	w.fixed = w.fixed || w.x != nil && !plain[x]
	return &notation.Number{Value: short(x)}
}

// list returns a list of integers; with sizes, those that equal sizes of the row become dims.
func (w *writer) list(values []int64, sizes bool) *notation.CondList {
	l := &notation.CondList{}
	w.fixed = w.fixed || sizes && w.rotary > 0 && len(values) > 1
	for _, x := range values {
		var e notation.Cond = &notation.CondNumber{Value: float64(x)}
		for axis := -1; sizes && x > 1 && w.x != nil && axis >= int(w.axis()); axis-- {
			at := w.axisOfX(axis)
			if d, ok := w.Facts.Dim(w.x, at); ok && d == x {
				e = &notation.CondCall{Name: "dim", Args: []notation.Cond{
					&notation.CondName{Name: w.params[0]}, &notation.CondNumber{Value: float64(at)}}}
				break
			}
		}
		l.Items = append(l.Items, e)
	}
	return l
}
