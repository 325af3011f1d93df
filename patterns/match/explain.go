package match

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/patterns/notation"
)

// explain says what stands where a condition does not hold: the phrase of the function it calls, or else the values that
// it compares.
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
		return "that it does not hold"
	}
	return "that " + strings.Join(parts, ", ")
}

// phrase says in words what a function that answers yes or no found; "" when it has no words for that.
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

// text writes the value of a function call; negative numbers of rank and dim stand for what is not known.
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

// wantsCondition says in words what a condition demands.
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
	// The dimensions that are not known differ: as the numbers that stand for the inputs' symbolic dimensions say.
	a, _ := args[0].(*onnx.Value)
	b, _ := args[1].(*onnx.Value)
	x, ok1 := g.Facts.Shape(a, 0)
	y, ok2 := g.Facts.Shape(b, 0)
	if !ok1 || !ok2 {
		return "shapes of which not enough is known: " + v + " and " + w
	}
	return fmt.Sprintf("shapes %s and %s that differ (%v and %v, for example)", v, w, x, y)
}

// shapeText writes a shape: numbers, names of symbolic dimensions, ? for what is computed.
func (g *View) shapeText(x any) string {
	v, _ := x.(*onnx.Value)
	rank, ok := g.Facts.Rank(v)
	if !ok {
		return "unknown"
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
	return "[" + strings.Join(dims, ", ") + "]"
}

// Describe says what stands at a value that is not as expected.
func (g *View) Describe(v *onnx.Value) string {
	if v == nil {
		return "an omitted input"
	}
	if x, _, ok := g.Scalar(v); ok {
		return "the constant " + Format(x)
	}
	v = g.Resolve(v)
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
func (g *View) typeText(v *onnx.Value) string {
	if shape := g.shapeText(v); shape != "unknown" {
		return g.Facts.DataType(v).String() + shape
	}
	return g.Facts.DataType(v).String() + " of unknown shape"
}

// wants says in a few words what the expression looks for, one text for each way to write it. b is what it is bound to.
func (s *Attempt) wants(e notation.Expr, b Binding) []string {
	switch e := e.(type) {
	case *productExpr:
		factors := make([]string, len(e.whole.Args))
		for i, a := range e.whole.Args {
			factors[i] = s.brief(a)
		}
		return []string{fmt.Sprintf("another %s (for the %s of %s)", e.Op, map[string]string{"Mul": "product", "Add": "sum"}[e.Op], join(factors, "and"))}
	case *notation.Call:
		if w, ok := viewWords[e.Op]; ok {
			return []string{w}
		}
		if e.Optional {
			return append([]string{e.Head()}, s.wants(e.Args[0], Binding{})...)
		}
		return []string{e.Head()}
	case *notation.Name:
		if v := b.Value; v != nil {
			return []string{fmt.Sprintf("the value that is %s elsewhere in the block (%q)", e.Name, v.Name)}
		}
		if e.Def != nil {
			return s.wants(e.Def.Expr, Binding{})
		}
		return []string{"a value (" + e.Name + ")"}
	case *notation.Alternatives:
		var all []string
		for _, b := range e.Branches {
			all = union(all, s.wants(b.Expr, Binding{}))
		}
		return all
	case *notation.Number:
		return []string{"the constant " + e.String()}
	case *notation.Capture:
		if x := b.Captured; x != nil {
			return []string{fmt.Sprintf("the constant %s, which is %s elsewhere in the block", Format(x), e.Name)}
		}
		return []string{"a constant of one element (" + e.Name + ")"}
	case *notation.Ints:
		return []string{"the constant list " + e.String()}
	}
	return []string{e.String()}
}

// brief is an expression as an item of a list.
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

// Format writes a number, a text, a list or a value for a message.
func Format(x any) string {
	switch v := x.(type) {
	case float64:
		if float64(float32(v)) == v { // as the graph's float32 is written
			return strconv.FormatFloat(v, 'g', -1, 32)
		}
		return strconv.FormatFloat(v, 'g', -1, 64)
	case *onnx.Value:
		return strconv.Quote(v.Name)
	}
	return fmt.Sprint(x)
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
func (s *Attempt) foundAttribute(n *onnx.Node, a notation.AttrPattern) string {
	x := s.attribute(n, a.Name)
	switch {
	case x != nil:
		return fmt.Sprintf("%s with %s=%s", n.OpType, a.Name, strings.ReplaceAll(Format(x), " ", ", "))
	case n.Attr(a.Name) != nil:
		return fmt.Sprintf("%s whose %s is not known", n.OpType, a.Name)
	}
	if i, ok := AttributeInputs[n.OpType][a.Name]; ok && n.Input(i) != nil {
		return fmt.Sprintf("%s whose %s are no constant (%s)", n.OpType, a.Name, s.g.Describe(n.Input(i)))
	}
	return n.OpType + " without " + a.Name
}
