package match

import (
	"bytes"
	"fmt"
	"io"
	"math"
	"sort"
	"strconv"
	"strings"

	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/patterns/notation"
)

// numberOf returns the number of a value, which is equal for equal computations. It numbers only the values that v is
// computed from, since most callers ask for a few values near the beginning of a graph. It does not recurse: a graph
// may be as deep as it has nodes.
func (g *View) numberOf(v *onnx.Value) int {
	v = g.Resolve(v)
	for stack := []*onnx.Value{v}; len(stack) > 0; {
		top := stack[len(stack)-1]
		if _, ok := g.numbers[top]; !ok {
			height := len(stack)
			n := g.computes(top)
			if n != nil {
				for _, in := range n.Inputs {
					if in = g.Resolve(in); in != nil && g.numbers[in] == 0 {
						stack = append(stack, in)
					}
				}
			}
			if len(stack) > height {
				continue
			}
			g.numbers[top] = g.lookup(g.key(top, n))
		}
		stack = stack[:len(stack)-1]
	}
	return g.numbers[v]
}

// Number returns a number that is equal for exactly the values that are the same.
func (g *View) Number(v *onnx.Value) int { return g.numberOf(v) }

// computes returns the node of this graph that computes v, or nil.
func (g *View) computes(v *onnx.Value) *onnx.Node {
	if n := v.Producer; n != nil && n.Graph == g.Graph && !n.Is("Constant") {
		return n
	}
	return nil
}

// lookup returns the number of a key; numbers begin at 1.
func (g *View) lookup(key string) int {
	id, ok := g.byKey[key]
	if !ok {
		id = len(g.byKey) + 1
		g.byKey[key] = id
	}
	return id
}

// key identifies v: by the element of a constant of one, by the node n and its numbered inputs, by the elements of a
// small constant, or else by its address.
func (g *View) key(v *onnx.Value, n *onnx.Node) string {
	if c, ok := g.Facts.Constant(v); ok && len(c.F)+len(c.I) == 1 {
		return fmt.Sprint("const", c.DataType, c.Shape, c.F, c.I)
	}
	if n != nil {
		var b strings.Builder
		if g.writeKey(&b, n) {
			b.WriteByte('#')
			b.WriteString(strconv.Itoa(v.Output))
			return b.String()
		}
	} else if t := v.Constant(); t != nil && t.Len() >= 0 && t.Len() <= 64 {
		if b, err := t.Bytes(); err == nil {
			return fmt.Sprint("const", t.DataType, t.Dims, b)
		}
	}
	return fmt.Sprintf("%p", v)
}

// writeKey writes the computation of a node. It returns false for nodes that never equal others.
func (g *View) writeKey(b *strings.Builder, n *onnx.Node) bool {
	if n.IsRandom() {
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
	lastAxis := reductions[n.OpType] && g.ReducesLastAxis(n) // the last axis has two names
	if !writeAttributes(b, n, func(name string) bool {
		return lastAxis && (name == "axes" || name == "noop_with_empty_axes")
	}) {
		return false
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

// WriteType writes the known type and shapes of a value, to find regions of the same form.
func (g *View) WriteType(w io.Writer, v *onnx.Value) {
	text, ok := g.types[v]
	if !ok {
		b := bytes.NewBuffer(strconv.AppendInt(nil, int64(g.Facts.DataType(v)), 10))
		g.Facts.WriteShape(b, v)
		text = b.String()
		g.types[v] = text
	}
	io.WriteString(w, text)
}

// AttributesKey returns a text that is equal for equal attributes of nodes; ok is false if they hold tensors or graphs.
func AttributesKey(n *onnx.Node) (key string, ok bool) {
	if len(n.Attributes) == 0 {
		return "", true
	}
	var b strings.Builder
	ok = writeAttributes(&b, n, func(string) bool { return false })
	return b.String(), ok
}

func writeAttributes(b *strings.Builder, n *onnx.Node, without func(name string) bool) bool {
	attrs := append([]*onnx.Attribute(nil), n.Attributes...)
	sort.Slice(attrs, func(i, j int) bool { return attrs[i].Name < attrs[j].Name })
	for _, a := range attrs {
		if without(a.Name) {
			continue
		}
		if a.RefName != "" {
			fmt.Fprintf(b, "<%s=@%s>", a.Name, a.RefName)
			continue
		}
		var x any
		switch a.Type {
		case onnx.AttrInt:
			x = a.Int
		case onnx.AttrFloat:
			x = math.Float32bits(a.Float)
		case onnx.AttrString:
			x = a.String
		case onnx.AttrInts:
			x = a.Ints
		case onnx.AttrFloats:
			x = a.Floats
		default:
			return false
		}
		fmt.Fprintf(b, "<%s=%#v>", a.Name, x)
	}
	return true
}

// writeReshape writes a node that reshapes as its output shape and the tensor before all reshapes. It returns false for
// other nodes.
func (g *View) writeReshape(b *strings.Builder, n *onnx.Node) bool {
	if OpKind(n) != "Reshape" {
		return false
	}
	if !g.Facts.SameShape(n.OutputValue(0), n.OutputValue(0)) { // not known
		return false
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
	b.WriteString("reshape")
	g.Facts.WriteShape(b, n.OutputValue(0))
	fmt.Fprint(b, ",", g.numberOf(v))
	return true
}

// OpKind returns the op of a node, and Reshape for all ops that only reshape.
func OpKind(n *onnx.Node) string {
	switch n.OpType {
	case "Flatten", "Squeeze", "Unsqueeze", "Reshape":
		if onnx.IsStandardDomain(n.Domain) {
			return "Reshape"
		}
	}
	return n.OpType
}
