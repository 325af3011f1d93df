package match

import (
	"maps"

	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/patterns/notation"
)

// productExpr is a part of a product or sum of several arguments, all of which whole has.
type productExpr struct {
	*notation.Call
	whole *notation.Call
}

// attrExpr is the demand of a call on one attribute.
type attrExpr struct {
	call *notation.Call
	attr notation.AttrPattern
	node *onnx.Node
}

// String writes the op with the attribute.
func (e *attrExpr) String() string { return e.call.Op + " with " + e.attr.String() }

// plain returns the expression behind what exists for explanations alone.
func plain(e notation.Expr) notation.Expr {
	if p, ok := e.(*productExpr); ok {
		return p.Call
	}
	return e
}

// knownExprs holds what lenient attempts need to know of expressions. It is computed once for all attempts in a model.
type knownExprs struct {
	steps    int // that the attempts took
	sizes    map[notation.Expr]int
	anchored map[notation.Expr][]*notation.Call
	products map[callArgs]*productExpr
}

// callArgs are some arguments of a call.
type callArgs struct {
	call *notation.Call
	args argSet
}

// knownKey names the known expressions of an index in the memory of a model's facts.
type knownKey struct{ index *Index }

func (g *View) knownExprs() *knownExprs {
	return g.Facts.Memo(knownKey{g.index}, func() any {
		return &knownExprs{sizes: map[notation.Expr]int{}, anchored: map[notation.Expr][]*notation.Call{},
			products: map[callArgs]*productExpr{}}
	}).(*knownExprs)
}

// product returns the product (or sum) of some arguments of a call.
func (k *knownExprs) product(whole *notation.Call, args argSet) *productExpr {
	key := callArgs{whole, args}
	p := k.products[key]
	if p == nil {
		part := &notation.Call{Op: whole.Op}
		for i, a := range whole.Args {
			if args&(1<<i) != 0 {
				part.Args = append(part.Args, a)
			}
		}
		p = &productExpr{part, whole}
		k.products[key] = p
	}
	return p
}

// size counts the nodes that an expression has at least.
func (s *Attempt) size(e notation.Expr) int {
	n, ok := s.known.sizes[e]
	if !ok {
		n = s.minNodes(e, map[*notation.Statement]bool{})
		s.known.sizes[e] = n
	}
	return n
}

// minNodes counts the nodes that an expression has at least.
func (s *Attempt) minNodes(e notation.Expr, seen map[*notation.Statement]bool) int {
	switch e := e.(type) {
	case *notation.Name:
		if e.Def == nil || seen[e.Def] {
			return 0
		}
		seen[e.Def] = true
		return s.minNodes(e.Def.Expr, seen)
	case *notation.Alternatives:
		least := -1
		for _, b := range e.Branches {
			if n := s.minNodes(b.Expr, maps.Clone(seen)); least < 0 || n < least {
				least = n
			}
		}
		return max(least, 0)
	case *productExpr:
		return s.minNodes(e.Call, seen)
	case *notation.Call:
		if e.Optional {
			return s.minNodes(e.Args[0], seen)
		}
		n := 1
		if view := s.g.index.language.views[e.Op]; view != nil && view.Roots == nil {
			n = 0 // it may be any value
		}
		if notation.Associative[e.Op] && len(e.Args) > 2 {
			n = len(e.Args) - 1
		}
		for _, a := range e.Args {
			n += s.minNodes(a, seen)
		}
		return n
	}
	return 0
}
