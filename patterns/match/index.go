package match

import (
	"fmt"
	"maps"
	"slices"

	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/patterns/notation"
)

// A Language defines the words of patterns besides ops: built-in views, and the functions of conditions, which all
// languages share.
type Language struct{ views map[string]*BuiltinView }

// NewLanguage returns the language with the built-in views Mean, Row, Channels, Filled and HalfTurn, and the given
// ones.
func NewLanguage(views map[string]*BuiltinView) *Language {
	l := &Language{views: map[string]*BuiltinView{
		"Mean": {1, meanRoots, meanView}, "Row": {1, nil, rowView},
		"Channels": {1, channelsRoots, channelsView},
		"Filled":   {0, nil, filledView}, "HalfTurn": {0, nil, halfTurnView},
	}}
	maps.Copy(l.views, views)
	return l
}

// Scope returns the names that a first pattern file in the language may use.
func (l *Language) Scope() *notation.Scope {
	views, conditions := map[string]int{}, map[string]int{}
	for name, v := range l.views {
		views[name] = v.Args
	}
	for name, f := range functions {
		conditions[name] = len(f.takes)
	}
	return notation.NewScope(views, conditions)
}

// An Index holds patterns by the ops that they may end at.
type Index struct {
	language *Language
	byRoot   map[string][]*notation.Pattern
	heads    []*head // of names, calls and alternatives in the patterns, by notation.ID
}

// head holds the ops that can be at the root of an expression.
type head struct {
	any  bool     // any value may match
	ops  []string // otherwise only these ops
	view *BuiltinView
}

// NewIndex returns an empty index of patterns in a language.
func NewIndex(l *Language) *Index {
	return &Index{l, map[string][]*notation.Pattern{}, nil}
}

// Add appends a pattern. It returns an error if no op can compute the pattern's first result.
func (x *Index) Add(p *notation.Pattern) error {
	ops := map[string]bool{}
	x.language.rootOps(p.Root(), ops)
	if len(ops) == 0 {
		return &notation.Error{Pos: p.Pos,
			Msg: fmt.Sprintf("no op computes the result %s of pattern %s", p.Results[0], p.Name)}
	}
	for op := range ops {
		x.byRoot[op] = append(x.byRoot[op], p)
	}
	for _, st := range p.Body {
		x.head(st.Expr)
	}
	return nil
}

// head finds the ops at the root of an expression and of all its parts.
func (x *Index) head(e notation.Expr) *head {
	if h := x.headOf(e); h != nil {
		return h
	}
	h := &head{}
	if id := notation.ID(e); id > 0 {
		if more := id + 1 - len(x.heads); more > 0 {
			x.heads = append(x.heads, make([]*head, more)...)
		}
		x.heads[id] = h
	}
	add := func(o *head) {
		h.any = h.any || o.any
		h.ops = append(h.ops, o.ops...)
	}
	switch e := e.(type) {
	case *notation.Call:
		h.view = x.language.views[e.Op]
		h.any = h.view != nil
		h.ops = append(h.ops, e.Op)
		if e.Op == "Add" {
			h.ops = append(h.ops, "Sum") // isOpType
		}
		for i, a := range e.Args {
			if o := x.head(a); e.Optional && i == 0 {
				add(o)
			}
		}
	case *notation.Name:
		if h.any = e.Def == nil; !h.any {
			add(x.head(e.Def.Expr))
		}
	case *notation.Alternatives:
		for _, b := range e.Branches {
			add(x.head(b.Expr))
		}
	default:
		h.any = true
	}
	return h
}

// headOf returns the head of an expression in a pattern, nil for other expressions.
func (x *Index) headOf(e notation.Expr) *head {
	if id := notation.ID(e); id < len(x.heads) {
		return x.heads[id] // nil for 0
	}
	return nil
}

// may reports whether an op at the root of an expression may compute v: a quick check that avoids most attempts.
func (s *Attempt) may(e notation.Expr, v *onnx.Value) bool {
	h := s.g.index.headOf(e)
	if h == nil || h.any || s.lenient > 0 || v == nil {
		return true
	}
	n := s.g.Resolve(v).Producer
	return n != nil && slices.Contains(h.ops, n.OpType)
}

// At returns the patterns that may end at a node, in the order they were added.
func (x *Index) At(n *onnx.Node) []*notation.Pattern { return x.byRoot[n.OpType] }

// rootOps collects the ops that can be at the root of an expression.
func (l *Language) rootOps(e notation.Expr, ops map[string]bool) {
	switch e := e.(type) {
	case *notation.Call:
		if b := l.views[e.Op]; b != nil {
			for _, op := range b.Roots {
				ops[op] = true
			}
			return
		}
		ops[e.Op] = true
		if e.Op == "Add" {
			ops["Sum"] = true // isOpType
		}
		if e.Optional {
			l.rootOps(e.Args[0], ops)
		}
	case *notation.Name:
		if e.Def != nil {
			l.rootOps(e.Def.Expr, ops)
		}
	case *notation.Alternatives:
		for _, b := range e.Branches {
			l.rootOps(b.Expr, ops)
		}
	}
}

// productExpr is part of a product or sum with several arguments, called whole.
type productExpr struct {
	*notation.Call
	whole *notation.Call
}

// attrExpr is a call's demand on one attribute.
type attrExpr struct {
	call *notation.Call
	attr notation.AttrPattern
	node *onnx.Node
}

// String formats the op with the attribute.
func (e *attrExpr) String() string { return e.call.Op + " with " + e.attr.String() }

// plain returns the expression without wrappers that only explanations need.
func plain(e notation.Expr) notation.Expr {
	if p, ok := e.(*productExpr); ok {
		return p.Call
	}
	return e
}

// knownExprs holds facts about expressions that lenient attempts need. It is computed once for all attempts in a model.
type knownExprs struct {
	steps    int // of the attempts
	sizes    map[notation.Expr]int
	anchored map[notation.Expr][]*notation.Call
	products map[callArgs]*productExpr
}

// callArgs identifies some arguments of a call.
type callArgs struct {
	call *notation.Call
	args argSet
}

// knownKey is the key of an index's knownExprs in the facts of a model.
type knownKey struct{ index *Index }

func (g *View) knownExprs() *knownExprs {
	return g.Facts.Memo(knownKey{g.index}, func() any {
		return &knownExprs{sizes: map[notation.Expr]int{}, anchored: map[notation.Expr][]*notation.Call{},
			products: map[callArgs]*productExpr{}}
	}).(*knownExprs)
}

// product returns the product or sum of some arguments of a call.
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

// size returns the least number of nodes of an expression.
func (s *Attempt) size(e notation.Expr) int {
	n, ok := s.known.sizes[e]
	if !ok {
		n = s.minNodes(e, map[*notation.Statement]bool{})
		s.known.sizes[e] = n
	}
	return n
}

// minNodes counts the least number of nodes of an expression.
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
