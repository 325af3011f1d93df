package match

import (
	"fmt"
	"math"
	"sort"
	"strconv"
	"strings"

	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/patterns/notation"
	"github.com/mojo-patch/mojo-patch/reference/infer"
)

// number gives every value of the graph a number, equal for equal computations.
func (g *View) number() {
	g.numbers = map[*onnx.Value]int{}
	g.byKey = map[string]int{}
	var key strings.Builder
	for _, n := range g.Graph.Nodes {
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
			if w := g.Resolve(v); w != v {
				g.numbers[v] = g.numberOf(w)
				continue
			}
			g.numbers[v] = g.lookup(prefix + "#" + strconv.Itoa(i))
		}
	}
}

func (g *View) lookup(key string) int {
	id, ok := g.byKey[key]
	if !ok {
		id = len(g.byKey) + 1
		g.byKey[key] = id
	}
	return id
}

func (g *View) fresh(v *onnx.Value) { g.numbers[v] = g.lookup(fmt.Sprintf("%p", v)) }

func (g *View) numberOf(v *onnx.Value) int {
	v = g.Resolve(v)
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
func (g *View) writeKey(b *strings.Builder, n *onnx.Node) bool {
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
	lastAxis := reductions[n.OpType] && g.ReducesLastAxis(n) // which has two names
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
	if notation.Commutative[n.OpType] && onnx.IsStandardDomain(n.Domain) {
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
func (g *View) writeReshape(b *strings.Builder, n *onnx.Node) bool {
	if OpKind(n) != "Reshape" {
		return false
	}
	var shapes [infer.Worlds][]int64
	for w := range shapes {
		var ok bool
		if shapes[w], ok = g.Facts.Shape(n.OutputValue(0), w); !ok {
			return false
		}
	}
	v := g.Resolve(n.Input(0))
	for range MaxDetour {
		p := Producer(v)
		if p == nil || OpKind(p) != "Reshape" {
			break
		}
		v = g.Resolve(p.Input(0))
	}
	if v == nil {
		return false
	}
	fmt.Fprint(b, "reshape", shapes, ",", g.numberOf(v))
	return true
}

// OpKind is the op of a node, one for all ops that only reshape.
func OpKind(n *onnx.Node) string {
	switch n.OpType {
	case "Flatten", "Squeeze", "Unsqueeze", "Reshape":
		if onnx.IsStandardDomain(n.Domain) {
			return "Reshape"
		}
	}
	return n.OpType
}
