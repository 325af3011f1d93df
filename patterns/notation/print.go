package notation

import (
	"fmt"
	"strconv"
	"strings"
)

// String returns the pattern as in a pattern file, with views expanded.
func (pat *Pattern) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "pattern %s(%s) -> %s {\n", pat.Name, strings.Join(pat.Params, ", "),
		strings.Join(pat.Results, ", "))
	if len(pat.Anchors) > 0 {
		fmt.Fprintf(&b, "  anchor %s\n", strings.Join(pat.Anchors, ", "))
	}
	for _, s := range pat.Body {
		fmt.Fprintf(&b, "  %s = %s\n", strings.Join(s.Names, ", "), s.Expr)
	}
	for i, c := range pat.Where {
		text := c.Expr.String()
		if e, ok := c.Expr.(*CondBinary); ok && e.Op == "||" && len(pat.Where) > 1 {
			text = "(" + text + ")"
		}
		b.WriteString([]string{"  where ", " && "}[min(i, 1)] + text)
	}
	if len(pat.Where) > 0 {
		b.WriteByte('\n')
	}
	fmt.Fprintf(&b, "} => %s\n", pat.Target.Call)
	return b.String()
}

// String returns the name.
func (e *Name) String() string { return e.Name }

// String returns the number.
func (e *Number) String() string { return strconv.FormatFloat(e.Value, 'g', -1, 64) }

// String returns the integers in brackets.
func (e *Ints) String() string { return strings.ReplaceAll(fmt.Sprint(e.Values), " ", ", ") }

// String returns $ and the name.
func (e *Capture) String() string { return "$" + e.Name }

// String returns an underscore.
func (Wildcard) String() string { return "_" }

// String returns the branches as in a pattern file.
func (e *Alternatives) String() string {
	s := make([]string, len(e.Branches))
	for i, b := range e.Branches {
		if s[i] = b.Expr.String(); b.As == "" {
			continue
		}
		if _, alt := b.Expr.(*Alternatives); alt {
			s[i] = "(" + s[i] + ")"
		}
		s[i] += " as " + b.As
	}
	return strings.Join(s, " | ")
}

// String returns the node as in a pattern file.
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

// Head returns the op with its attributes.
func (e *Call) Head() string {
	s := e.Op
	if e.Domain != "" {
		s = e.Domain + "." + s
	}
	if len(e.Attrs) > 0 {
		s += "<" + joined(e.Attrs) + ">"
	}
	return s
}

// String returns the demand as in a pattern file.
func (a AttrPattern) String() string {
	switch {
	case a.Number != nil:
		return a.Name + "=" + strconv.FormatFloat(*a.Number, 'g', -1, 64)
	case a.Text != nil:
		if nameLen(*a.Text) == len(*a.Text) && *a.Text != "" {
			return a.Name + "=" + *a.Text
		}
		return a.Name + `="` + *a.Text + `"`
	case a.Ints != nil:
		return a.Name + "=" + (&Ints{a.Ints}).String()
	}
	return a.Name + "=$" + a.As
}

// String returns the call as in a pattern file.
func (c *TargetCall) String() string {
	s := c.Name() + "(" + joined(c.Args)
	for i, a := range c.Attrs {
		sep := ", "
		if i == 0 {
			sep = "; "
		}
		s += sep + a.Name + "=" + a.Expr.String()
	}
	return s + ")"
}

// String returns the list as in a pattern file.
func (e *List) String() string { return e.List.String() }

// String returns the name.
func (e *CondName) String() string { return e.Name }

// String returns the number, with a point if it is a FLOAT.
func (e *CondNumber) String() string {
	s := (&Number{e.Value}).String()
	if e.Float && !strings.ContainsAny(s, ".e") {
		s += ".0"
	}
	return s
}

// String returns the text in quotes.
func (e *CondString) String() string { return strconv.Quote(e.Value) }

// String returns the operator and its operand.
func (e *CondUnary) String() string {
	if _, binary := e.X.(*CondBinary); binary {
		return e.Op + "(" + e.X.String() + ")"
	}
	return e.Op + e.X.String()
}

// String returns the operands with the operator between them, in parentheses if necessary.
func (e *CondBinary) String() string {
	within := func(x Cond, least int) string {
		if b, ok := x.(*CondBinary); ok && precedence[b.Op] < least {
			return "(" + b.String() + ")"
		}
		return x.String()
	}
	return within(e.X, precedence[e.Op]) + " " + e.Op + " " + within(e.Y, precedence[e.Op]+1)
}

// String returns the call as in a pattern file.
func (e *CondCall) String() string { return e.Name + "(" + joined(e.Args) + ")" }

// String returns the list as in a pattern file.
func (e *CondList) String() string { return "[" + joined(e.Items) + "]" }

// joined joins expressions with commas.
func joined[E interface{ String() string }](list []E) string {
	s := make([]string, len(list))
	for i, e := range list {
		s[i] = e.String()
	}
	return strings.Join(s, ", ")
}
