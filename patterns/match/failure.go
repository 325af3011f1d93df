package match

import (
	"slices"
	"strings"

	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/patterns/notation"
	"github.com/mojo-patch/mojo-patch/patterns/reason"
)

// Miss says why a node that looked like part of a pattern did not match.
type Miss struct {
	// Pattern is the name of the pattern that came nearest, Anchor the node that raised the suspicion.
	Pattern string
	Anchor  *onnx.Node
	// Reason says what is different there; its Node is where the graph leaves the pattern, the anchor at worst.
	Reason *reason.Reason
	// Expected is what a pattern of text wants there, Found what stands there. Both are empty for a pattern without
	// text, which expects no certain node.
	Expected, Found string
	// Matched counts the nodes that are as the pattern wants them, Size those that it has in all; both are 0 where a
	// built-in view was tried, which has no fixed number.
	Matched, Size int
	// Condition says that all nodes are as they should be, and that a condition on them does not hold.
	Condition bool
	// Region is what nearly computes what an op does, for an op that is fitted: it is told only if no match has one of
	// the nodes and no pattern says more about one.
	Region []*onnx.Node
	// Further is a second difference, nil if there is one alone.
	Further *Miss
}

// failure is a place where the graph is not what a pattern wants.
type failure struct {
	want    notation.Expr
	at      *onnx.Value // that is not as expected
	depth   int         // of the nodes that were matched before
	bound   Binding     // what a name or capture stood for then
	between bool        // the node that makes at stands between the right ones
	missing int         // the nodes that want has at least and that were not found
	where   bool        // a condition
	view    bool        // a built-in view with several operands, whose nodes are not counted

	// In words, once they are needed:
	expected []expectation
	found    string
	foundOp  string      // that found names, if it names one
	stands   standing    // what stands at at, where found says that
	code     reason.Code // what is known of the kind of difference
	reader   *onnx.Node  // the matched node that reads at (nil at the root)
}

var anotherOutput = reason.New("", nil, "another output")

// fail ends a branch: v is not what e wants. found says what is there, if it is not plain to see; its node is the one
// that it names.
//
// A lenient attempt forgives that: it goes on with k, as if e had matched.
func (s *Attempt) fail(v *onnx.Value, e notation.Expr, found *reason.Reason, k ...func() bool) bool {
	if len(s.forgiven) >= s.lenient || len(s.Nodes) == 0 || len(k) == 0 {
		return false
	}
	f := &failure{want: e, at: v, depth: len(s.Nodes), missing: s.size(e)}
	if found != nil {
		f.found, f.code = found.Error(), found.Code
		if found.Node != nil {
			f.foundOp = found.Node.OpType
		}
	}
	switch e := e.(type) {
	case *notation.Name:
		f.bound = s.Slots[e.Slot]
	case *notation.Capture:
		f.bound = s.Slots[e.Slot]
	case *notation.Call:
		f.view = s.isView(e) && len(e.Args) > 1
	}
	s.forgiven = append(s.forgiven, f)
	ok := s.goOn(f, k[0])
	s.forgiven = s.forgiven[:len(s.forgiven)-1]
	return ok
}

// failAttribute is fail for an attribute of n that e wants to be another.
func (s *Attempt) failAttribute(e *notation.Call, a notation.AttrPattern, n *onnx.Node, k func() bool) bool {
	return s.lenient > 0 && s.fail(n.OutputValue(0), &attrExpr{e, a, n}, nil, k)
}

// failProduct is fail for a value that is no product (or sum) of these arguments, some of those of e.
func (s *Attempt) failProduct(e *notation.Call, args argSet, v *onnx.Value, k func() bool) bool {
	return s.lenient > 0 && s.fail(v, s.known.product(e, args), nil, k)
}

// goOn goes on behind a failure, in the ways that there are: the node may stand between the right ones, it may be the
// wrong one before a node that the pattern is recognised by, or all that is wanted may be missing.
func (s *Attempt) goOn(f *failure, k func() bool) bool {
	missing := f.missing
	switch f.want.(type) {
	case *notation.Call, *notation.Name, *productExpr:
		if n := Producer(s.g.Resolve(f.at)); n != nil && !f.view && !n.Is("Constant") && len(n.Inputs) <= 3 {
			f.missing, f.between = 0, true
			for _, in := range n.Inputs {
				if in != nil && in.Constant() == nil && s.match(plain(f.want), in, k) {
					return true
				}
			}
		}
	}
	f.between = false
	if c, ok := f.want.(*notation.Call); ok && s.isView(c) && len(c.Args) == 1 && f.depth > 0 {
		// what the view was found in is there, and is another function of what the view wants
		f.missing = 0
		if n := s.Nodes[f.depth-1]; s.match(c.Args[0], n.Input(0), k) {
			return true
		}
	}
	if missing > 1 && !f.view {
		for _, sub := range s.anchored(f.want) {
			f.missing = max(missing-s.size(sub), 0)
			for _, n := range s.g.upstream(f.at) {
				if (n.OpType == sub.Op || s.holdsAnchor(sub)) && slices.Contains(s.Pattern.Anchors, n.OpType) &&
					len(n.Outputs) > 0 &&
					s.match(sub, n.Outputs[0], k) {
					return true
				}
			}
		}
	}
	f.missing = missing
	return k()
}

// fixed reports whether a value of the graph was expected, where another attempt may expect another one.
func (f *failure) fixed() bool { return f.bound.Value != nil || f.bound.Captured != nil }

// explain puts the failure of a lenient attempt into words, while the attempt lasts.
func (f *failure) explain(s *Attempt) {
	if f.where || f.expected != nil {
		return
	}
	f.expected = s.wants(f.want, f.bound)
	for i := f.depth - 1; i >= 0 && f.reader == nil; i-- {
		reads := func(in *onnx.Value) bool { return in == f.at || s.g.Resolve(in) == s.g.Resolve(f.at) }
		if slices.ContainsFunc(s.Nodes[i].Inputs, reads) {
			f.reader = s.Nodes[i]
		}
	}
	a, isAttr := f.want.(*attrExpr)
	switch {
	case f.found != "":
	case isAttr:
		f.found, f.foundOp = s.foundAttribute(a.node, a.attr), a.node.OpType
		if s.attribute(a.node, a.attr.Name) == nil && a.node.Attr(a.attr.Name) != nil {
			f.code = reason.Unknown
		}
	default:
		f.found, f.stands = s.g.Describe(f.at), s.g.standing(f.at)
		if f.stands == asOutput {
			f.foundOp = s.g.Resolve(f.at).Producer.OpType
		}
	}
	if f.between {
		f.found += ", which stands between"
	}
}

// node is the node to show for the failure: the one that makes the unexpected value, or reads it if it is no node's.
func (f *failure) node() *onnx.Node {
	if n := Producer(f.at); n != nil && !n.Is("Constant") {
		return n
	}
	return f.reader
}

// maxExpected bounds the alternatives that an explanation lists.
const maxExpected = 4

// would returns what would have done, without what is said with more words as well, and no more than maxExpected of it.
func (f *failure) would() []expectation {
	list := slices.DeleteFunc(slices.Clone(f.expected), func(x expectation) bool {
		return slices.ContainsFunc(f.expected, func(y expectation) bool {
			return strings.HasPrefix(y.words, "another "+x.words+" ")
		})
	})
	return list[:min(len(list), maxExpected+1)]
}

// alternatives returns what would have done in words.
func (f *failure) alternatives() string {
	var words []string
	for _, x := range f.would() {
		words = append(words, x.words)
	}
	if len(words) > maxExpected {
		return strings.Join(words[:maxExpected], " or ") + " or the like"
	}
	return strings.Join(words, " or ")
}

// anchored lists the calls within e of the ops that the pattern is recognised by.
func (s *Attempt) anchored(e notation.Expr) []*notation.Call {
	if list, ok := s.known.anchored[e]; ok {
		return list
	}
	var list []*notation.Call
	seen := map[*notation.Statement]bool{}
	var walk func(e notation.Expr)
	walk = func(e notation.Expr) {
		switch e := e.(type) {
		case *notation.Name:
			if e.Def != nil && !seen[e.Def] {
				seen[e.Def] = true
				walk(e.Def.Expr)
			}
		case *notation.Alternatives:
			for _, b := range e.Branches {
				walk(b.Expr)
			}
		case *productExpr:
			walk(e.Call)
		case *notation.Call:
			if slices.Contains(s.Pattern.Anchors, e.Op) || s.holdsAnchor(e) {
				list = append(list, e)
				return
			}
			for _, a := range e.Args {
				walk(a)
			}
		}
	}
	walk(e)
	s.known.anchored[e] = list
	return list
}

// holdsAnchor reports whether a call is a built-in view that such an op makes.
func (s *Attempt) holdsAnchor(e *notation.Call) bool {
	view := s.g.index.language.views[e.Op]
	return view != nil && slices.ContainsFunc(view.Roots,
		func(op string) bool { return slices.Contains(s.Pattern.Anchors, op) })
}

// holdsWhere reports whether all conditions of the where clause hold.
func (s *Attempt) holdsWhere() bool {
	for _, c := range s.Pattern.Where {
		if x, err := s.Eval(c.Expr); err != nil || !truth(x) {
			return false
		}
	}
	return true
}

// unmet is the failure of a condition.
func (s *Attempt) unmet(c notation.Condition, root *onnx.Value, err error) *failure {
	f := &failure{at: root, expected: []expectation{{words: s.wantsCondition(c)}}, where: true, code: s.kindOf(c)}
	if f.found = s.explain(c); err != nil {
		f.found = err.Error()
	}
	f.found += s.bound(c)
	return f
}
