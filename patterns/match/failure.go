package match

import (
	"slices"
	"strings"

	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/patterns/notation"
	"github.com/mojo-patch/mojo-patch/patterns/reason"
)

// A Miss tells why a node that looked like part of a pattern did not match.
type Miss struct {
	// Pattern is the name of the pattern that came nearest; Anchor is the node that looked like part of it.
	Pattern string
	Anchor  *onnx.Node
	// Reason describes the difference. Its Node is the node that departs from the pattern, or else the anchor.
	Reason *reason.Reason
	// Expected describes the node that a text pattern expects there, Found the node that is there. Both are empty for a
	// pattern without text, which does not expect a certain node.
	Expected, Found string
	// Matched counts the nodes that match, Size the nodes of the pattern. Both are 0 for a built-in view, whose number
	// of nodes varies.
	Matched, Size int
	// Condition is set if all nodes match and a condition does not hold.
	Condition bool
	// Region holds nodes that nearly compute a fitted op. The miss is reported only if no match has one of them and no
	// pattern explains one better.
	Region []*onnx.Node
	// Further is a second difference, or nil.
	Further *Miss
}

// failure is a difference between the graph and a pattern.
type failure struct {
	want    notation.Expr
	at      *onnx.Value // the unexpected value
	depth   int         // number of nodes matched before
	bound   Binding     // the binding of a name or capture at that time
	between bool        // an extra node, which computes at, is between the right ones
	missing int         // the least number of nodes of want that were not found
	where   bool        // a condition
	view    bool        // a built-in view with several operands, whose nodes are not counted

	// In words, set by explain:
	expected []expectation
	found    string
	foundOp  string      // the op that found names, if any
	stands   standing    // the kind of at, if found describes it
	code     reason.Code // the kind of difference, if known
	reader   *onnx.Node  // the matched node that reads at (nil at the root)
}

var anotherOutput = reason.New("", nil, "another output")

// fail ends a branch: v does not match e. found describes v if that is not obvious; its node is the one that it names.
//
// A lenient attempt forgives the failure: it continues with k as if e had matched.
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

// failAttribute is fail for an attribute of n that e expects to differ.
func (s *Attempt) failAttribute(e *notation.Call, a notation.AttrPattern, n *onnx.Node, k func() bool) bool {
	return s.lenient > 0 && s.fail(n.OutputValue(0), &attrExpr{e, a, n}, nil, k)
}

// failProduct is fail for a value that is not a product or sum of the given arguments of e.
func (s *Attempt) failProduct(e *notation.Call, args argSet, v *onnx.Value, k func() bool) bool {
	return s.lenient > 0 && s.fail(v, s.known.product(e, args), nil, k)
}

// goOn continues after a failure in all possible ways: the node may be an extra one between the right ones, it may
// replace the nodes before one that the pattern is recognized by, or all of want may be missing.
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
		// the nodes that the view was found in exist, but compute another function of the view's operand
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

// fixed reports whether a certain value of the graph was expected; other attempts may expect another one.
func (f *failure) fixed() bool { return f.bound.Value != nil || f.bound.Captured != nil }

// explain describes the failure of a lenient attempt, while the attempt lasts.
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
		f.found += ", which is in between"
	}
}

// node returns the node to show for the failure: the one that computes the unexpected value, or else the one that reads
// it.
func (f *failure) node() *onnx.Node {
	if n := Producer(f.at); n != nil && !n.Is("Constant") {
		return n
	}
	return f.reader
}

// maxExpected bounds the alternatives that an explanation lists.
const maxExpected = 4

// would returns the expectations, at most maxExpected+1, without those that a longer one repeats.
func (f *failure) would() []expectation {
	list := slices.DeleteFunc(slices.Clone(f.expected), func(x expectation) bool {
		return slices.ContainsFunc(f.expected, func(y expectation) bool {
			return strings.HasPrefix(y.words, "another "+x.words+" ")
		})
	})
	return list[:min(len(list), maxExpected+1)]
}

// alternatives describes the expectations.
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

// anchored lists the calls within e whose ops the pattern is recognized by.
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

// holdsAnchor reports whether a call is a built-in view that such an op may end.
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

// unmet returns the failure of a condition.
func (s *Attempt) unmet(c notation.Condition, root *onnx.Value, err error) *failure {
	f := &failure{at: root, expected: []expectation{{words: s.wantsCondition(c)}}, where: true, code: s.kindOf(c)}
	if f.found = s.explain(c); err != nil {
		f.found = err.Error()
	}
	f.found += s.bound(c)
	return f
}
