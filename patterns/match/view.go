// Package match finds patterns of package notation in a graph. A View is a graph as patterns see it; packages that read
// graphs in other ways, such as rotary, router and moe, use it too. An Attempt matches one pattern at one value, and
// NearMisses tells why nodes that looked like part of a pattern did not match.
package match

import (
	"math"
	"reflect"
	"slices"

	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/reference/infer"
)

// A View is a graph as patterns see it: it skips nodes that change nothing, and recognizes values that are computed
// twice. It does not change the graph.
type View struct {
	Graph *onnx.Graph
	Facts *infer.Facts // types, shapes and small integers of its values

	index   *Index
	through map[*onnx.Value]*onnx.Value  // memo of Resolve
	numbers map[*onnx.Value]int          // memo of numberOf
	byKey   map[string]int               // numbers by key
	types   map[*onnx.Value]string       // memo of WriteType
	order   map[*onnx.Node]int           // positions in g.Nodes; nil until needed
	near    map[*onnx.Value][]*onnx.Node // memo of upstream
	memos   map[reflect.Type]any         // see Memo

	dataflow *dataflow // nil until needed: see flow
	budgets  []*Budget // of the searches
}

// New returns the view of a graph. The condition is(...) may name the patterns of the index x.
func New(g *onnx.Graph, facts *infer.Facts, x *Index) *View {
	return &View{index: x, Graph: g, Facts: facts, through: make(map[*onnx.Value]*onnx.Value, len(g.Nodes)),
		numbers: map[*onnx.Value]int{}, byKey: map[string]int{}, types: map[*onnx.Value]string{},
		memos: map[reflect.Type]any{}}
}

// Memo returns g's memo of type T, at first zero. It holds results that are computed once for each graph.
func Memo[T any](g *View) *T {
	key := reflect.TypeFor[T]()
	m, ok := g.memos[key].(*T)
	if !ok {
		m = new(T)
		g.memos[key] = m
	}
	return m
}

// Same reports whether two values are the same value or are made by equal computations from the same values.
func (g *View) Same(a, b *onnx.Value) bool {
	a, b = g.Resolve(a), g.Resolve(b)
	if a == b {
		return true
	}
	if a == nil || b == nil {
		return false
	}
	if (a.Producer == nil) != (b.Producer == nil) && (a.Constant() == nil || b.Constant() == nil) {
		return false
	}
	return g.numberOf(a) == g.numberOf(b)
}

// Alike is Same for values of two different nodes.
func (g *View) Alike(v, w *onnx.Value) bool {
	a, b := g.Resolve(v), g.Resolve(w)
	m, n := Producer(a), Producer(b)
	return m != nil && n != nil && m != n && OpKind(m) == OpKind(n) &&
		(OpKind(n) == "Reshape" || slices.Equal(g.inputOps(m), g.inputOps(n))) &&
		!slices.ContainsFunc(n.Inputs, func(v *onnx.Value) bool { return g.Resolve(v) == a }) && g.Same(a, b)
}

// inputOps returns the sorted ops of the nodes before n: a quick check that often avoids numbering values.
func (g *View) inputOps(n *onnx.Node) []string {
	ops := make([]string, len(n.Inputs))
	for i, v := range n.Inputs {
		if p := Producer(g.Resolve(v)); p != nil && !p.Is("Constant") {
			ops[i] = OpKind(p)
		}
	}
	slices.Sort(ops)
	return ops
}

// Position returns the index of a node in the graph; -1 for nil and for nodes of other graphs.
func (g *View) Position(n *onnx.Node) int {
	if g.order == nil {
		g.order = make(map[*onnx.Node]int, len(g.Graph.Nodes))
		for i, n := range g.Graph.Nodes {
			g.order[n] = i
		}
	}
	if i, ok := g.order[n]; ok {
		return i
	}
	return -1
}

// Scalar returns the element of a constant of one element, and its type.
func (g *View) Scalar(v *onnx.Value) (x float64, t onnx.DataType, ok bool) {
	c, ok := g.Facts.Constant(v)
	if !ok {
		return 0, 0, false
	}
	switch {
	case len(c.F) == 1:
		return c.F[0], c.DataType, true
	case len(c.I) == 1:
		return float64(c.I[0]), c.DataType, true
	}
	return 0, 0, false
}

// Ints returns the elements of a constant list of integers.
func (g *View) Ints(v *onnx.Value) ([]int64, bool) {
	c, ok := g.Facts.Constant(v)
	if !ok || c.I == nil && len(c.F) > 0 {
		return nil, false
	}
	return c.I, true
}

// holds reports whether x, a constant of type t, is the number want, perhaps rounded to t.
func holds(x float64, t onnx.DataType, want float64) bool {
	if x == want {
		return true
	}
	eps := map[onnx.DataType]float64{onnx.Float: 1e-6, onnx.Float16: 1.0 / 1024, onnx.BFloat16: 1.0 / 128,
		onnx.Double: 1e-6}[t]
	if want == math.Trunc(want*1024)/1024 { // exact in every type (0.5, 2, -1): only rounding excuses a difference
		return false
	}
	return math.Abs(x-want) <= eps*math.Abs(want)
}

// Standing returns a function that maps each value of was to the value at the same index of is, and other values to
// nil. Layers of one form have such lists.
func Standing(was, is []*onnx.Value) func(*onnx.Value) *onnx.Value {
	return func(v *onnx.Value) *onnx.Value {
		if i := slices.Index(was, v); i >= 0 && v != nil {
			return is[i]
		}
		return nil
	}
}
