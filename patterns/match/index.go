package match

import (
	"fmt"
	"maps"

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
}

// NewIndex returns an empty index of patterns in a language.
func NewIndex(l *Language) *Index { return &Index{l, map[string][]*notation.Pattern{}} }

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
	return nil
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
