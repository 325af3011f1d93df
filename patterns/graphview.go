package patterns

import (
	"fmt"
	"math"
	"slices"
	"sort"
	"strconv"
	"strings"

	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/reference/infer"
)

// graphView is a graph as patterns see it: without the nodes that change nothing, and with values that are computed
// twice recognised as one. The graph itself is not touched.
type graphView struct {
	set   *Set
	g     *onnx.Graph
	facts *infer.Facts

	through map[*onnx.Value]*onnx.Value // memo of resolve
	numbers map[*onnx.Value]int         // value numbers; nil until needed
	byKey   map[string]int
	order   map[*onnx.Node]int           // positions in g.Nodes; nil until needed
	near    map[*onnx.Value][]*onnx.Node // memo of upstream
	routers []*routing                   // memo of routings; nil until needed

	dataflow *dataflow                // nil until needed, by flow
	weights  map[string][]*onnx.Value // of storedOnce: those of one type, shape and beginning
}

func newGraphView(set *Set, g *onnx.Graph, facts *infer.Facts) *graphView {
	return &graphView{set: set, g: g, facts: facts, through: map[*onnx.Value]*onnx.Value{}}
}

// same reports whether two values are one: the very same, or made by equal computations from the same values.
func (g *graphView) same(a, b *onnx.Value) bool {
	a, b = g.resolve(a), g.resolve(b)
	if a == b {
		return true
	}
	if a == nil || b == nil {
		return false
	}
	if (a.Producer == nil) != (b.Producer == nil) && (a.Constant() == nil || b.Constant() == nil) {
		return false
	}
	if g.numbers == nil {
		g.number()
	}
	return g.numberOf(a) == g.numberOf(b)
}

// alike is same for values of two nodes.
func (g *graphView) alike(v, w *onnx.Value) bool {
	a, b := g.resolve(v), g.resolve(w)
	m, n := producer(a), producer(b)
	return m != nil && n != nil && m != n && opKind(m) == opKind(n) && (opKind(n) == "Reshape" || slices.Equal(g.inputOps(m), g.inputOps(n))) &&
		!slices.ContainsFunc(n.Inputs, func(v *onnx.Value) bool { return g.resolve(v) == a }) && g.same(a, b)
}

// inputOps returns the sorted op types of the nodes before n: a look that saves to number all values where it can tell.
func (g *graphView) inputOps(n *onnx.Node) []string {
	ops := make([]string, len(n.Inputs))
	for i, v := range n.Inputs {
		if p := producer(g.resolve(v)); p != nil && !p.Is("Constant") {
			ops[i] = opKind(p)
		}
	}
	slices.Sort(ops)
	return ops
}

// number gives every value of the graph a number, equal for equal computations.
func (g *graphView) number() {
	g.numbers = map[*onnx.Value]int{}
	g.byKey = map[string]int{}
	var key strings.Builder
	for _, n := range g.g.Nodes {
		if len(n.Outputs) == 0 || n.Is("Constant") {
			continue // constants are numbered by what they hold
		}
		key.Reset()
		if !g.writeKey(&key, n) {
			for _, v := range n.Outputs {
				if v != nil {
					g.fresh(v)
				}
			}
			continue
		}
		prefix := key.String()
		for i, v := range n.Outputs {
			if v == nil {
				continue
			}
			if w := g.resolve(v); w != v {
				g.numbers[v] = g.numberOf(w)
				continue
			}
			g.numbers[v] = g.lookup(prefix + "#" + strconv.Itoa(i))
		}
	}
}

func (g *graphView) lookup(key string) int {
	id, ok := g.byKey[key]
	if !ok {
		id = len(g.byKey) + 1
		g.byKey[key] = id
	}
	return id
}

func (g *graphView) fresh(v *onnx.Value) { g.numbers[v] = g.lookup(fmt.Sprintf("%p", v)) }

func (g *graphView) numberOf(v *onnx.Value) int {
	v = g.resolve(v)
	if id, ok := g.numbers[v]; ok {
		return id
	}
	if t := v.Constant(); t != nil && t.Len() >= 0 && t.Len() <= 64 {
		if b, err := t.Bytes(); err == nil {
			g.numbers[v] = g.lookup(fmt.Sprint("const", t.DataType, t.Dims, b))
			return g.numbers[v]
		}
	}
	g.fresh(v)
	return g.numbers[v]
}

// writeKey writes what the node computes; false for nodes that are never equal to others.
func (g *graphView) writeKey(b *strings.Builder, n *onnx.Node) bool {
	if strings.HasPrefix(n.OpType, "Random") || n.OpType == "Multinomial" || n.OpType == "Bernoulli" {
		return false
	}
	if !onnx.IsStandardDomain(n.Domain) {
		b.WriteString(n.Domain)
	}
	if g.writeReshape(b, n) {
		return true
	}
	b.WriteByte(':')
	b.WriteString(n.OpType)
	b.WriteByte(':')
	b.WriteString(n.Overload)
	lastAxis := reductions[n.OpType] && g.reducesLastAxis(n) // which has two names
	attrs := append([]*onnx.Attribute(nil), n.Attributes...)
	sort.Slice(attrs, func(i, j int) bool { return attrs[i].Name < attrs[j].Name })
	for _, a := range attrs {
		if lastAxis && (a.Name == "axes" || a.Name == "noop_with_empty_axes") {
			continue
		}
		if a.RefName != "" {
			fmt.Fprintf(b, "<%s=@%s>", a.Name, a.RefName)
			continue
		}
		switch a.Type {
		case onnx.AttrInt:
			fmt.Fprintf(b, "<%s=%d>", a.Name, a.Int)
		case onnx.AttrFloat:
			fmt.Fprintf(b, "<%s=%x>", a.Name, math.Float32bits(a.Float))
		case onnx.AttrString:
			fmt.Fprintf(b, "<%s=%q>", a.Name, a.String)
		case onnx.AttrInts:
			fmt.Fprintf(b, "<%s=%v>", a.Name, a.Ints)
		case onnx.AttrFloats:
			fmt.Fprintf(b, "<%s=%v>", a.Name, a.Floats)
		default:
			return false
		}
	}
	ids := make([]int, len(n.Inputs))
	for i, v := range n.Inputs {
		if v != nil && !(lastAxis && i == 1) {
			ids[i] = g.numberOf(v)
		}
	}
	if lastAxis {
		b.WriteString("<last axis>")
	}
	if commutative[n.OpType] && onnx.IsStandardDomain(n.Domain) {
		sort.Ints(ids)
	}
	for _, id := range ids {
		b.WriteByte(',')
		b.WriteString(strconv.Itoa(id))
	}
	return true
}

// writeReshape writes a reshape, whatever op it is, as the shape that it makes of the tensor before all reshapes; false for
// other nodes.
func (g *graphView) writeReshape(b *strings.Builder, n *onnx.Node) bool {
	if opKind(n) != "Reshape" {
		return false
	}
	var shapes [worlds][]int64
	for w := range shapes {
		var ok bool
		if shapes[w], ok = g.facts.Shape(n.OutputValue(0), w); !ok {
			return false
		}
	}
	v := g.resolve(n.Input(0))
	for range maxDetour {
		p := producer(v)
		if p == nil || opKind(p) != "Reshape" {
			break
		}
		v = g.resolve(p.Input(0))
	}
	if v == nil {
		return false
	}
	fmt.Fprint(b, "reshape", shapes, ",", g.numberOf(v))
	return true
}

// opKind is the op of a node, one for all ops that only reshape.
func opKind(n *onnx.Node) string {
	switch n.OpType {
	case "Flatten", "Squeeze", "Unsqueeze", "Reshape":
		if onnx.IsStandardDomain(n.Domain) {
			return "Reshape"
		}
	}
	return n.OpType
}

// position is the place of a node in the graph's order; -1 for nodes of enclosing graphs and for no node.
func (g *graphView) position(n *onnx.Node) int {
	if g.order == nil {
		g.order = make(map[*onnx.Node]int, len(g.g.Nodes))
		for i, n := range g.g.Nodes {
			g.order[n] = i
		}
	}
	if i, ok := g.order[n]; ok {
		return i
	}
	return -1
}

// scalar returns the element of a known constant of one element. float says that its type is a float type.
func (g *graphView) scalar(v *onnx.Value) (x float64, t onnx.DataType, ok bool) {
	c, ok := g.facts.Constant(v)
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

// ints returns the elements of a known constant list of integers.
func (g *graphView) ints(v *onnx.Value) ([]int64, bool) {
	c, ok := g.facts.Constant(v)
	if !ok || c.I == nil && len(c.F) > 0 {
		return nil, false
	}
	return c.I, true
}

// holds reports whether a constant of type t that holds x is the number want, which t may only hold rounded.
func holds(x float64, t onnx.DataType, want float64) bool {
	if x == want {
		return true
	}
	eps := map[onnx.DataType]float64{onnx.Float: 1e-6, onnx.Float16: 1.0 / 1024, onnx.BFloat16: 1.0 / 128, onnx.Double: 1e-6}[t]
	if want == math.Trunc(want*1024)/1024 { // exact in every type (0.5, 2, -1): only rounding excuses a difference
		return false
	}
	return math.Abs(x-want) <= eps*math.Abs(want)
}
