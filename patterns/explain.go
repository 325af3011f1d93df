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

// twoShapes is the phrase of functions that compare shapes.
func twoShapes(g *graphView, args []any, _ []string, _ bool) string {
	return "shapes " + g.shapeText(args[0]) + " and " + g.shapeText(args[1])
}

// shapeText writes a shape as it is in world 0, where small numbers stand for symbolic dimensions.
func (g *graphView) shapeText(x any) string {
	v, _ := x.(*onnx.Value)
	if s, ok := g.facts.Shape(v, 0); ok {
		return fmt.Sprint(s)
	}
	rank, ok := g.facts.Rank(v)
	if !ok {
		return "unknown"
	}
	dims := make([]string, rank)
	for i := range dims {
		dims[i] = "?"
		if d, ok := g.facts.Dim(v, i); ok {
			dims[i] = strconv.FormatInt(d, 10)
		}
	}
	return "[" + strings.Join(dims, " ") + "]"
}
