package match

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/patterns/notation"
	"github.com/mojo-patch/mojo-patch/patterns/reason"
)

// explain tells why a condition does not hold: by the phrase of the function that it calls, or by the values that it
// compares.
func (s *Attempt) explain(c notation.Condition) string {
	e := c.Expr
	if n, ok := e.(*notation.CondUnary); ok && n.Op == "!" {
		e = n.X
	}
	if call, ok := e.(*notation.CondCall); ok {
		if text := s.phrase(call); text != "" {
			return text
		}
	}
	if b, ok := e.(*notation.CondBinary); ok && b.Compares() {
		x, ok1 := b.X.(*notation.CondCall)
		y, ok2 := b.Y.(*notation.CondCall)
		if ok1 && ok2 && x.Name == "type" && y.Name == "type" {
			return s.text(x) + " and " + s.text(y)
		}
	}
	var parts []string
	seen := map[string]bool{}
	notation.Walk(e, func(e notation.Cond) {
		text := ""
		switch e := e.(type) {
		case *notation.CondCall:
			if text = s.phrase(e); text == "" {
				text = e.String() + " is " + s.text(e)
			}
			text = strings.TrimPrefix(text, "that ")
		case *notation.CondName:
			if x, err := s.Eval(e); err == nil {
				if _, isValue := x.(*onnx.Value); !isValue {
					text = e.Name + " is " + Format(x)
				}
			}
		}
		if text != "" && !seen[text] {
			seen[text] = true
			parts = append(parts, text)
		}
	})
	if len(parts) == 0 {
		return "that it is false"
	}
	return "that " + strings.Join(parts, ", ")
}

// phrase describes the finding of a function that answers yes or no; "" if the function has no phrase.
func (s *Attempt) phrase(call *notation.CondCall) string {
	fn := functions[call.Name]
	if fn.phrase == nil {
		return ""
	}
	args, err := s.evalAll(call.Args)
	if err != nil {
		return err.Error()
	}
	names := make([]string, len(args))
	for i, a := range call.Args {
		names[i] = a.String()
	}
	x, err := fn.call(s.g, args)
	if err != nil {
		return err.Error()
	}
	return fn.phrase(s.g, args, names, truth(x))
}

// text formats the result of a function call. Negative results of rank and dim mean unknown.
func (s *Attempt) text(call *notation.CondCall) string {
	x, err := s.Eval(call)
	switch f, isNumber := x.(float64); {
	case err != nil:
		return "not known: " + err.Error()
	case isNumber && f < 0 && call.Name == "rank", x == onnx.Undefined.String():
		return "unknown"
	case isNumber && f < 0 && call.Name == "dim":
		return "unknown or not constant"
	}
	return Format(x)
}

// wantsCondition describes the demand of a condition.
func (s *Attempt) wantsCondition(c notation.Condition) string {
	e, not := c.Expr, false
	if n, ok := e.(*notation.CondUnary); ok && n.Op == "!" {
		e, not = n.X, true
	}
	call, ok := e.(*notation.CondCall)
	if !ok {
		return c.Text
	}
	key := call.Name
	if not {
		key = "!" + key
	}
	demand, ok := demands[key]
	if !ok {
		return c.Text
	}
	args := make([]any, len(call.Args))
	for i, a := range call.Args {
		args[i] = a.String()
	}
	return fmt.Sprintf(demand, args...)
}

// demands describes the functions that answer yes or no.
var demands = map[string]string{
	"sameshape":  "%s and %s of the same shape",
	"broadcasts": "%s that broadcasts to %s",
	"!reads":     "%s that is not computed from %s",
	"!is":        "%s that is not the result of a pattern: %s",
	"!centered":  "%s without its mean subtracted",
	"!routed":    "%s of a dense layer",
}

// bound describes the values that the names of a condition are bound to.
func (s *Attempt) bound(c notation.Condition) string {
	var parts []string
	seen := map[string]bool{}
	notation.Walk(c.Expr, func(e notation.Cond) {
		n, ok := e.(*notation.CondName)
		if !ok || seen[n.Name] {
			return
		}
		seen[n.Name] = true
		if x, err := s.Eval(n); err == nil {
			if v, ok := x.(*onnx.Value); ok {
				parts = append(parts, fmt.Sprintf("%s is %q, %s", n.Name, v.Name, s.g.typeText(v)))
			}
		}
	})
	if len(parts) == 0 {
		return ""
	}
	return " (" + strings.Join(parts, "; ") + ")"
}

// twoShapes is the phrase of functions that compare shapes.
func twoShapes(g *View, args []any, _ []string, _ bool) string {
	v, w := g.shapeText(args[0]), g.shapeText(args[1])
	if v != w {
		return "shapes " + v + " and " + w
	}
	// Unknown dimensions differ: show them at the example sizes of the inputs' symbolic dimensions.
	a, _ := args[0].(*onnx.Value)
	b, _ := args[1].(*onnx.Value)
	x, ok1 := g.Facts.Shape(a, 0)
	y, ok2 := g.Facts.Shape(b, 0)
	if !ok1 || !ok2 {
		return "shapes that are not fully known: " + v + " and " + w
	}
	return fmt.Sprintf("shapes %s and %s that differ (%v and %v, for example)", v, w, x, y)
}

// lacksShapes returns Unknown if the shapes are not known well enough to compare them, and Computed if a computed
// dimension prevents it.
func lacksShapes(g *View, args []any, _ any) reason.Code {
	a, b := g.dims(args[0]), g.dims(args[1])
	v, _ := args[0].(*onnx.Value)
	w, _ := args[1].(*onnx.Value)
	_, ok1 := g.Facts.Shape(v, 0)
	_, ok2 := g.Facts.Shape(w, 0)
	switch {
	case a == nil || b == nil || slices.Equal(a, b) && (!ok1 || !ok2):
		return reason.Unknown
	case slices.Contains(a, "?") || slices.Contains(b, "?"):
		return reason.Computed
	}
	return ""
}

// shapeText formats a shape.
func (g *View) shapeText(x any) string {
	dims := g.dims(x)
	if dims == nil {
		return "unknown"
	}
	return "[" + strings.Join(dims, ", ") + "]"
}

// dims formats the dimensions of a shape: numbers, names of symbolic dimensions, or ? for computed ones. It returns nil
// for an unknown shape.
func (g *View) dims(x any) []string {
	v, _ := x.(*onnx.Value)
	rank, ok := g.Facts.Rank(v)
	if !ok {
		return nil
	}
	declared, _ := v.Type()
	dims := make([]string, rank)
	for i := range dims {
		dims[i] = "?"
		if d, ok := g.Facts.Dim(v, i); ok {
			dims[i] = strconv.FormatInt(d, 10)
		} else if i < len(declared.Dims) && declared.Dims[i].Param != "" {
			dims[i] = declared.Dims[i].Param
		}
	}
	return dims
}

// standing is the kind of a value.
type standing int

const (
	asOther  standing = iota // nothing, or a value of an enclosing graph
	asNumber                 // a constant of one element
	asTensor                 // another constant
	asInput                  // an input of the graph
	asOutput                 // the output of a node
)

// standing returns the kind of a value.
func (g *View) standing(v *onnx.Value) standing {
	if v == nil {
		return asOther
	}
	if _, _, ok := g.Scalar(v); ok {
		return asNumber
	}
	v = g.Resolve(v)
	switch {
	case v.Producer != nil && !v.Producer.Is("Constant"):
		return asOutput
	case v.Constant() != nil:
		return asTensor
	case v.IsInput:
		return asInput
	}
	return asOther
}

// Describe describes a value that is not as expected.
func (g *View) Describe(v *onnx.Value) string {
	stands, w := g.standing(v), g.Resolve(v)
	switch {
	case v == nil:
		return "an omitted input"
	case stands == asNumber:
		x, _, _ := g.Scalar(v)
		return "the constant " + Format(x)
	case stands == asOutput:
		return w.Producer.OpType
	case stands == asTensor:
		return fmt.Sprintf("the constant tensor %q %s", w.Name, g.typeText(w))
	case stands == asInput:
		return fmt.Sprintf("the graph input %q %s", w.Name, g.typeText(w))
	}
	return fmt.Sprintf("the value %q of the outer graph", w.Name)
}

// typeText formats the type and shape of a value.
func (g *View) typeText(v *onnx.Value) string {
	if shape := g.shapeText(v); shape != "unknown" {
		return g.Facts.DataType(v).String() + shape
	}
	return g.Facts.DataType(v).String() + " of unknown shape"
}

// wants lists the alternatives that the expression matches. b is its binding.
func (s *Attempt) wants(e notation.Expr, b Binding) []expectation {
	one := func(format string, args ...any) []expectation {
		return []expectation{{words: fmt.Sprintf(format, args...), want: e, bound: b}}
	}
	switch e := e.(type) {
	case *productExpr:
		factors := make([]string, len(e.whole.Args))
		for i, a := range e.whole.Args {
			factors[i] = s.brief(a)
		}
		kind := map[string]string{"Mul": "product", "Add": "sum"}[e.Op]
		list := one("another %s (for the %s of %s)", e.Op, kind, join(factors, "and"))
		list[0].factors = factors
		return list
	case *notation.Call:
		if w, ok := viewWords[e.Op]; ok {
			return one("%s", w)
		}
		if e.Optional {
			return append(one("%s", e.Head()), s.wants(e.Args[0], Binding{})...)
		}
		return one("%s", e.Head())
	case *notation.Name:
		if v := b.Value; v != nil {
			return one("the value that is %s elsewhere in the block (%q)", e.Name, v.Name)
		}
		if e.Def != nil {
			return s.wants(e.Def.Expr, Binding{})
		}
		return one("a value (%s)", e.Name)
	case *notation.Alternatives:
		var all []expectation
		for _, b := range e.Branches {
			all = union(all, s.wants(b.Expr, Binding{}))
		}
		return all
	case *notation.Number:
		return one("the constant %s", e)
	case *notation.Capture:
		if x := b.Captured; x != nil {
			return one("the constant %s, which is %s elsewhere in the block", Format(x), e.Name)
		}
		return one("a constant of one element (%s)", e.Name)
	case *notation.Ints:
		return one("the constant list %s", e)
	}
	return one("%s", e)
}

// brief formats an expression as an item of a list.
func (s *Attempt) brief(e notation.Expr) string {
	switch e := e.(type) {
	case *notation.Call:
		if view := s.g.index.language.views[e.Op]; e.Optional || view != nil && view.Roots == nil {
			return s.brief(e.Args[0])
		}
		return e.Op
	case *notation.Alternatives:
		return s.brief(e.Branches[0].Expr)
	}
	return e.String()
}

func join(words []string, last string) string {
	if len(words) < 2 {
		return strings.Join(words, "")
	}
	return strings.Join(words[:len(words)-1], ", ") + " " + last + " " + words[len(words)-1]
}

// Format formats a number, a text, a list or a value for a message.
func Format(x any) string {
	switch v := x.(type) {
	case float64:
		if float64(float32(v)) == v { // as a float32 of the graph
			return strconv.FormatFloat(v, 'g', -1, 32)
		}
		return strconv.FormatFloat(v, 'g', -1, 64)
	case *onnx.Value:
		return strconv.Quote(v.Name)
	}
	return fmt.Sprint(x)
}

// viewWords describes the built-in views.
var viewWords = map[string]string{
	"Mean":             "the mean over the last axis",
	"OppositeRotation": "a rotation of pairs of channels by the opposite angle",
	"Rotation":         "a rotation of pairs of channels",
	"Row":              "one number for each channel",
}

// foundAttribute describes the value of an attribute that the pattern expects to differ.
func (s *Attempt) foundAttribute(n *onnx.Node, a notation.AttrPattern) string {
	x := s.attribute(n, a.Name)
	switch {
	case x != nil:
		return fmt.Sprintf("%s with %s=%s", n.OpType, a.Name, strings.ReplaceAll(Format(x), " ", ", "))
	case n.Attr(a.Name) != nil:
		return fmt.Sprintf("%s whose %s is not known", n.OpType, a.Name)
	}
	if i, ok := AttributeInputs[n.OpType][a.Name]; ok && n.Input(i) != nil {
		return fmt.Sprintf("%s whose %s are not constant (%s)", n.OpType, a.Name, s.g.Describe(n.Input(i)))
	}
	return n.OpType + " without " + a.Name
}
