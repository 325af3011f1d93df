package patterns

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/mojo-patch/mojo-patch/onnx"
)

// explain says what stands where a condition does not hold: the phrase of the function it calls, or else the values that
// it compares.
func (s *state) explain(c cond) string {
	e := c.expr
	if n, ok := e.(*condUnary); ok && n.op == "!" {
		e = n.x
	}
	if call, ok := e.(*condCall); ok {
		if text := s.phrase(call); text != "" {
			return text
		}
	}
	if b, ok := e.(*condBinary); ok && precedence[b.op] == precedence["=="] {
		x, ok1 := b.x.(*condCall)
		y, ok2 := b.y.(*condCall)
		if ok1 && ok2 && x.name == "type" && y.name == "type" {
			return s.text(x) + " and " + s.text(y)
		}
	}
	var parts []string
	seen := map[string]bool{}
	e.walk(func(e condExpr) {
		text := ""
		switch e := e.(type) {
		case *condCall:
			if text = s.phrase(e); text == "" {
				text = e.String() + " is " + s.text(e)
			}
			text = strings.TrimPrefix(text, "that ")
		case *condName:
			if x, err := e.eval(s); err == nil {
				if _, isValue := x.(*onnx.Value); !isValue {
					text = e.name + " is " + formatAny(x)
				}
			}
		}
		if text != "" && !seen[text] {
			seen[text] = true
			parts = append(parts, text)
		}
	})
	if len(parts) == 0 {
		return "that it does not hold"
	}
	return "that " + strings.Join(parts, ", ")
}

// phrase says in words what a function that answers yes or no found; "" when it has no words for that.
func (s *state) phrase(call *condCall) string {
	if call.fn.phrase == nil {
		return ""
	}
	args := make([]any, len(call.args))
	names := make([]string, len(call.args))
	for i, a := range call.args {
		x, err := a.eval(s)
		if err != nil {
			return err.Error()
		}
		args[i], names[i] = x, a.String()
	}
	x, err := call.fn.call(s.g, args)
	if err != nil {
		return err.Error()
	}
	return call.fn.phrase(s.g, args, names, truth(x))
}

// text writes the value of a function call; negative numbers of rank and dim stand for what is not known.
func (s *state) text(call *condCall) string {
	x, err := call.eval(s)
	switch f, isNumber := x.(float64); {
	case err != nil:
		return "not known: " + err.Error()
	case isNumber && f < 0 && call.name == "rank", x == onnx.Undefined.String():
		return "unknown"
	case isNumber && f < 0 && call.name == "dim":
		return "unknown or not constant"
	}
	return formatAny(x)
}

// wantsCondition says in words what a condition demands.
func (s *state) wantsCondition(c cond) string {
	e, not := c.expr, false
	if n, ok := e.(*condUnary); ok && n.op == "!" {
		e, not = n.x, true
	}
	call, ok := e.(*condCall)
	if !ok {
		return c.text
	}
	key := call.name
	if not {
		key = "!" + key
	}
	demand, ok := demands[key]
	if !ok {
		return c.text
	}
	args := make([]any, len(call.args))
	for i, a := range call.args {
		args[i] = a.String()
	}
	return fmt.Sprintf(demand, args...)
}

// demands are the functions that answer yes or no, in words.
var demands = map[string]string{
	"sameshape":  "%s and %s of one shape",
	"broadcasts": "%s that broadcasts to %s",
	"!reads":     "%s that is not computed from %s",
	"!is":        "%s that is not the result of a pattern: %s",
	"!centered":  "%s that is no difference from its own mean",
	"!routed":    "%s of a dense layer",
}

// bound says which values the names of a condition stand for.
func (s *state) bound(c cond) string {
	var parts []string
	seen := map[string]bool{}
	c.expr.walk(func(e condExpr) {
		n, ok := e.(*condName)
		if !ok || seen[n.name] {
			return
		}
		seen[n.name] = true
		if x, err := n.eval(s); err == nil {
			if v, ok := x.(*onnx.Value); ok {
				parts = append(parts, fmt.Sprintf("%s is %q, %s", n.name, v.Name, s.g.typeText(v)))
			}
		}
	})
	if len(parts) == 0 {
		return ""
	}
	return " (" + strings.Join(parts, "; ") + ")"
}

// twoShapes is the phrase of functions that compare shapes.
func twoShapes(g *graphView, args []any, _ []string, _ bool) string {
	v, w := g.shapeText(args[0]), g.shapeText(args[1])
	if v != w {
		return "shapes " + v + " and " + w
	}
	// The dimensions that are not known differ: as the numbers that stand for the inputs' symbolic dimensions say.
	a, _ := args[0].(*onnx.Value)
	b, _ := args[1].(*onnx.Value)
	x, ok1 := g.facts.Shape(a, 0)
	y, ok2 := g.facts.Shape(b, 0)
	if !ok1 || !ok2 {
		return "shapes of which not enough is known: " + v + " and " + w
	}
	return fmt.Sprintf("shapes %s and %s that differ (%v and %v, for example)", v, w, x, y)
}

// shapeText writes a shape: numbers, names of symbolic dimensions, ? for what is computed.
func (g *graphView) shapeText(x any) string {
	v, _ := x.(*onnx.Value)
	rank, ok := g.facts.Rank(v)
	if !ok {
		return "unknown"
	}
	declared, _ := v.Type()
	dims := make([]string, rank)
	for i := range dims {
		dims[i] = "?"
		if d, ok := g.facts.Dim(v, i); ok {
			dims[i] = strconv.FormatInt(d, 10)
		} else if i < len(declared.Dims) && declared.Dims[i].Param != "" {
			dims[i] = declared.Dims[i].Param
		}
	}
	return "[" + strings.Join(dims, ", ") + "]"
}

// describe says what stands at a value that is not as expected.
func (g *graphView) describe(v *onnx.Value) string {
	if v == nil {
		return "an omitted input"
	}
	if x, _, ok := g.scalar(v); ok {
		return "the constant " + formatAny(x)
	}
	v = g.resolve(v)
	switch {
	case v.Producer != nil && !v.Producer.Is("Constant"):
		return v.Producer.OpType
	case v.Constant() != nil:
		return fmt.Sprintf("the constant tensor %q %s", v.Name, g.typeText(v))
	case v.IsInput:
		return fmt.Sprintf("the graph input %q %s", v.Name, g.typeText(v))
	}
	return fmt.Sprintf("the value %q of an enclosing graph", v.Name)
}

// typeText writes the type and shape of a value.
func (g *graphView) typeText(v *onnx.Value) string {
	if shape := g.shapeText(v); shape != "unknown" {
		return g.facts.DataType(v).String() + shape
	}
	return g.facts.DataType(v).String() + " of unknown shape"
}

// wants says in a few words what the expression looks for, one text for each way to write it. b is what it is bound to.
func (s *state) wants(e expr, b binding) []string {
	switch e := e.(type) {
	case *productExpr:
		factors := make([]string, len(e.whole.args))
		for i, a := range e.whole.args {
			factors[i] = brief(a)
		}
		return []string{fmt.Sprintf("another %s (for the %s of %s)", e.op, map[string]string{"Mul": "product", "Add": "sum"}[e.op], join(factors, "and"))}
	case *callExpr:
		if w, ok := viewWords[e.op]; ok {
			return []string{w}
		}
		if e.optional {
			return append([]string{e.head()}, s.wants(e.args[0], binding{})...)
		}
		return []string{e.head()}
	case *nameExpr:
		if v := b.value; v != nil {
			return []string{fmt.Sprintf("the value that is %s elsewhere in the block (%q)", e.name, v.Name)}
		}
		if e.def != nil {
			return s.wants(e.def.expr, binding{})
		}
		return []string{"a value (" + e.name + ")"}
	case *altExpr:
		var all []string
		for _, b := range e.branches {
			all = union(all, s.wants(b.expr, binding{}))
		}
		return all
	case *numberExpr:
		return []string{"the constant " + e.String()}
	case *captureExpr:
		if x := b.captured; x != nil {
			return []string{fmt.Sprintf("the constant %s, which is %s elsewhere in the block", formatAny(x), e.name)}
		}
		return []string{"a constant of one element (" + e.name + ")"}
	case *intsExpr:
		return []string{"the constant list " + e.String()}
	}
	return []string{e.String()}
}

// brief is an expression as an item of a list.
func brief(e expr) string {
	switch e := e.(type) {
	case *callExpr:
		if view := builtinViews[e.op]; e.optional || view != nil && view.roots == nil {
			return brief(e.args[0])
		}
		return e.op
	case *altExpr:
		return brief(e.branches[0].expr)
	}
	return e.String()
}

func join(words []string, last string) string {
	if len(words) < 2 {
		return strings.Join(words, "")
	}
	return strings.Join(words[:len(words)-1], ", ") + " " + last + " " + words[len(words)-1]
}

// viewWords are the built-in views in words.
var viewWords = map[string]string{
	"FirstHalf":  "the first half of the last axis",
	"SecondHalf": "the second half of the last axis",
	"Mean":       "the mean over the last axis",
	"Rotation":   "a rotation of pairs of channels",
	"Row":        "one number for each channel",
}

// foundAttribute says which value an attribute has that the pattern wants to be another.
func (s *state) foundAttribute(n *onnx.Node, a attrPat) string {
	x := s.attribute(n, a.name)
	switch {
	case x != nil:
		return fmt.Sprintf("%s with %s=%s", n.OpType, a.name, strings.ReplaceAll(formatAny(x), " ", ", "))
	case n.Attr(a.name) != nil:
		return fmt.Sprintf("%s whose %s is not known", n.OpType, a.name)
	}
	if i, ok := attributeInputs[n.OpType][a.name]; ok && n.Input(i) != nil {
		return fmt.Sprintf("%s whose %s are no constant (%s)", n.OpType, a.name, s.g.describe(n.Input(i)))
	}
	return n.OpType + " without " + a.name
}
