package match

import (
	"fmt"
	"maps"
	"slices"

	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/patterns/notation"
)

// Language is what patterns may say besides ops: the functions of conditions, which are the same in all languages,
// and built-in views.
type Language struct{ views map[string]*BuiltinView }

// NewLanguage returns the language with the built-in views Mean, Row, Channels, Filled and HalfTurn, and these.
func NewLanguage(views map[string]*BuiltinView) *Language {
	l := &Language{views: map[string]*BuiltinView{
		"Mean": {1, meanRoots, meanView}, "Row": {1, nil, rowView},
		"Channels": {1, channelsRoots, channelsView},
		"Filled":   {0, nil, filledView}, "HalfTurn": {0, nil, halfTurnView},
	}}
	maps.Copy(l.views, views)
	return l
}

// Scope returns what a first pattern file in the language may use.
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

// Index is a list of patterns by the ops that they may end at.
type Index struct {
	language *Language
	byRoot   map[string][]*notation.Pattern
	heads    []*head // of the names, calls and alternatives in the patterns, by notation.ID
}

// head says which ops can stand at the root of an expression.
type head struct {
	any  bool     // it may be another value as well
	ops  []string // else these
	view *BuiltinView
}

// NewIndex returns an empty index of patterns in a language.
func NewIndex(l *Language) *Index {
	return &Index{l, map[string][]*notation.Pattern{}, nil}
}

// Add appends a pattern, whose first result some op must make.
func (x *Index) Add(p *notation.Pattern) error {
	ops := map[string]bool{}
	x.language.rootOps(p.Root(), ops)
	if len(ops) == 0 {
		return &notation.Error{Pos: p.Pos,
			Msg: fmt.Sprintf("result %s of pattern %s is made by no op", p.Results[0], p.Name)}
	}
	for op := range ops {
		x.byRoot[op] = append(x.byRoot[op], p)
	}
	for _, st := range p.Body {
		x.head(st.Expr)
	}
	return nil
}

// head finds the ops at the root of an expression, and at those of all that it holds.
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

// headOf returns the ops at the root of an expression in a pattern, nil for other expressions.
func (x *Index) headOf(e notation.Expr) *head {
	if id := notation.ID(e); id < len(x.heads) {
		return x.heads[id] // nil for 0
	}
	return nil
}

// may reports whether an op at the root of an expression makes a value: a look that saves most attempts.
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

// rootOps collects the op types that can stand at the root of an expression.
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
