package patterns

import (
	"fmt"
	"strconv"
	"strings"
)

func (e *nameExpr) String() string    { return e.name }
func (e *numberExpr) String() string  { return strconv.FormatFloat(e.value, 'g', -1, 64) }
func (e *intsExpr) String() string    { return strings.ReplaceAll(fmt.Sprint(e.values), " ", ", ") }
func (e *captureExpr) String() string { return "$" + e.name }
func (wildcardExpr) String() string   { return "_" }

func (e *altExpr) String() string {
	s := make([]string, len(e.branches))
	for i, b := range e.branches {
		s[i] = b.expr.String()
	}
	return strings.Join(s, " | ")
}

func (e *callExpr) String() string {
	args := make([]string, len(e.args))
	for i, a := range e.args {
		args[i] = a.String()
		if _, alt := a.(*altExpr); alt {
			args[i] = "(" + args[i] + ")"
		}
	}
	opt := ""
	if e.optional {
		opt = "?"
	}
	return e.head() + opt + "(" + strings.Join(args, ", ") + ")"
}

// head is the op with its attributes.
func (e *callExpr) head() string {
	s := e.op
	if e.domain != "" {
		s = e.domain + "." + s
	}
	if len(e.attrs) > 0 {
		as := make([]string, len(e.attrs))
		for i, a := range e.attrs {
			as[i] = a.String()
		}
		s += "<" + strings.Join(as, ", ") + ">"
	}
	return s
}

func (a attrPat) String() string {
	switch {
	case a.number != nil:
		return a.name + "=" + strconv.FormatFloat(*a.number, 'g', -1, 64)
	case a.text != nil:
		return a.name + "=" + *a.text
	case a.ints != nil:
		return a.name + "=" + (&intsExpr{a.ints}).String()
	}
	return a.name + "=$"
}
