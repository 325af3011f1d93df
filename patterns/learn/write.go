package learn

import "github.com/mojo-patch/mojo-patch/patterns/notation"

// maxWidth is the length of an expression above which part of it becomes another statement.
const maxWidth = 72

// body returns the statements, operands before their readers.
func (w *writer) body() []*notation.Statement {
	var list []*notation.Statement
	exprs := map[*term]notation.Expr{}
	of := func(t *term) notation.Expr {
		if t.name != "" {
			return &notation.Name{Name: t.name}
		}
		if t.leaf != nil {
			return t.leaf
		}
		return exprs[t]
	}
	state := func(t *term) {
		if t.name == "" {
			t.name = w.letter()
		}
		list = append(list, &notation.Statement{Names: []string{t.name}, Expr: exprs[t]})
	}
	for _, t := range w.order {
		call := t.call
		for {
			call.Args = nil
			var longest *term
			for _, a := range t.args {
				call.Args = append(call.Args, of(a))
				if a.leaf == nil && a.name == "" && len(a.args) > 0 &&
					(longest == nil || len(of(a).String()) > len(of(longest).String())) {
					longest = a
				}
			}
			if len(call.String()) <= maxWidth || longest == nil {
				break
			}
			state(longest)
		}
		exprs[t] = &call
		if t.name != "" || t.uses > 1 && call.Op != "Row" && len(call.Args) > 0 {
			state(t)
		}
	}
	return list
}

// letter returns a name for a statement.
func (w *writer) letter() string {
	for c := 'a'; c < 'x'; c++ {
		if name := string(c); w.fresh(name) == name {
			return name
		}
	}
	return w.fresh("v")
}
