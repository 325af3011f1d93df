package patterns

import (
	"maps"

	"github.com/mojo-patch/mojo-patch/onnx"
)

// productExpr is a part of a product or sum of several arguments, all of which whole has.
type productExpr struct {
	*callExpr
	whole *callExpr
}

// attrExpr is the demand of a call on one attribute.
type attrExpr struct {
	call *callExpr
	attr attrPat
	node *onnx.Node
}

// String writes the op with the attribute.
func (e *attrExpr) String() string { return e.call.op + " with " + e.attr.String() }

// plain returns the expression behind what exists for explanations alone.
func plain(e expr) expr {
	if p, ok := e.(*productExpr); ok {
		return p.callExpr
	}
	return e
}

// size counts the nodes that an expression has at least.
func (s *state) size(e expr) int {
	n, ok := s.sizes[e]
	if !ok {
		n = minNodes(e, map[*stmt]bool{})
		s.sizes[e] = n
	}
	return n
}

// minNodes counts the nodes that an expression has at least.
func minNodes(e expr, seen map[*stmt]bool) int {
	switch e := e.(type) {
	case *nameExpr:
		if e.def == nil || seen[e.def] {
			return 0
		}
		seen[e.def] = true
		return minNodes(e.def.expr, seen)
	case *altExpr:
		least := -1
		for _, b := range e.branches {
			if n := minNodes(b.expr, maps.Clone(seen)); least < 0 || n < least {
				least = n
			}
		}
		return max(least, 0)
	case *productExpr:
		return minNodes(e.callExpr, seen)
	case *callExpr:
		if e.optional {
			return minNodes(e.args[0], seen)
		}
		n := 1
		if view := builtinViews[e.op]; view != nil && view.roots == nil {
			n = 0 // it may be any value
		}
		if associative[e.op] && len(e.args) > 2 {
			n = len(e.args) - 1
		}
		for _, a := range e.args {
			n += minNodes(a, seen)
		}
		return n
	}
	return 0
}
