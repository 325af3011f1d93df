package notation

import (
	"fmt"
	"strconv"
	"strings"
)

func (e *Name) String() string    { return e.Name }
func (e *Number) String() string  { return strconv.FormatFloat(e.Value, 'g', -1, 64) }
func (e *Ints) String() string    { return strings.ReplaceAll(fmt.Sprint(e.Values), " ", ", ") }
func (e *Capture) String() string { return "$" + e.Name }
func (Wildcard) String() string   { return "_" }

func (e *Alternatives) String() string {
	s := make([]string, len(e.Branches))
	for i, b := range e.Branches {
		s[i] = b.Expr.String()
	}
	return strings.Join(s, " | ")
}

func (e *Call) String() string {
	args := make([]string, len(e.Args))
	for i, a := range e.Args {
		args[i] = a.String()
		if _, alt := a.(*Alternatives); alt {
			args[i] = "(" + args[i] + ")"
		}
	}
	opt := ""
	if e.Optional {
		opt = "?"
	}
	return e.Head() + opt + "(" + strings.Join(args, ", ") + ")"
}

// Head is the op with its attributes.
func (e *Call) Head() string {
	s := e.Op
	if e.Domain != "" {
		s = e.Domain + "." + s
	}
	if len(e.Attrs) > 0 {
		as := make([]string, len(e.Attrs))
		for i, a := range e.Attrs {
			as[i] = a.String()
		}
		s += "<" + strings.Join(as, ", ") + ">"
	}
	return s
}

func (a AttrPattern) String() string {
	switch {
	case a.Number != nil:
		return a.Name + "=" + strconv.FormatFloat(*a.Number, 'g', -1, 64)
	case a.Text != nil:
		return a.Name + "=" + *a.Text
	case a.Ints != nil:
		return a.Name + "=" + (&Ints{a.Ints}).String()
	}
	return a.Name + "=$"
}
