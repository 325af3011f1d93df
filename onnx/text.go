package onnx

import (
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/mojo-patch/mojo-patch/onnx/internal/onnxpb"
)

// Text prints the function in a form close to ONNX's textual syntax, one line a node:
//
//	<domain: "example", opset_import: ["": 17]>
//	Scaled<epsilon=1e-05>(X, scale) => (Y) {
//	  n = Add<axis=-1>(X, scale)
//	  Y = Clip(n, "", limit)
//	}
//
// An omitted input or output is "", an attribute taken from the function's is @name, the elements of large tensors are
// left out. It is meant for people; there is no parser for it.
func (f *Function) Text() string {
	var p printer
	p.WriteString("<domain: " + strconv.Quote(f.Domain))
	if f.Overload != "" {
		p.WriteString(", overload: " + strconv.Quote(f.Overload))
	}
	p.WriteString(", opset_import: [")
	for i, o := range f.Opsets {
		p.separate(i)
		fmt.Fprintf(&p, "%q: %d", o.Domain, o.Version)
	}
	p.WriteString("]>\n" + textName(f.Name))
	if n := len(f.Attributes); n+len(f.Defaults) > 0 {
		p.WriteString("<")
		for i, name := range f.Attributes {
			p.separate(i)
			p.WriteString(textName(name))
		}
		for i, a := range f.Defaults {
			p.separate(n + i)
			p.attribute(a, 0)
		}
		p.WriteString(">")
	}
	p.values(f.Body.Inputs)
	p.WriteString(" => ")
	p.values(f.Body.Outputs)
	p.WriteString(" ")
	p.body(f.Body, 0)
	p.WriteString("\n")
	return p.String()
}

// Text prints the graph, one line a node, in the form described at Function.Text, with the types of its inputs and
// outputs and its initializers.
func (g *Graph) Text() string {
	var p printer
	p.graph(g, 0)
	p.WriteString("\n")
	return p.String()
}

// Text prints the node in one line (more where it holds graphs), in the form described at Function.Text.
func (n *Node) Text() string {
	var p printer
	p.node(n, 0)
	return p.String()
}

// maxPrinted is the number of elements up to which tensors and lists are printed.
const maxPrinted = 8

type printer struct{ strings.Builder }

func (p *printer) separate(i int) {
	if i > 0 {
		p.WriteString(", ")
	}
}

func (p *printer) line(indent int) { p.WriteString("\n" + strings.Repeat("  ", indent)) }

func (p *printer) graph(g *Graph, indent int) {
	p.WriteString("graph " + textName(g.Name) + " ")
	p.typed(g.Inputs)
	p.WriteString(" => ")
	p.typed(g.Outputs)
	p.WriteString(" ")
	p.body(g, indent)
}

func (p *printer) body(g *Graph, indent int) {
	p.WriteString("{")
	for _, v := range g.initializers {
		p.line(indent + 1)
		p.WriteString(textName(v.Name) + " = ")
		p.tensor(v.Const)
	}
	for _, n := range g.Nodes {
		p.line(indent + 1)
		p.node(n, indent+1)
	}
	p.line(indent)
	p.WriteString("}")
}

func (p *printer) node(n *Node, indent int) {
	for i, v := range n.Outputs {
		p.separate(i)
		p.value(v)
	}
	if len(n.Outputs) > 0 {
		p.WriteString(" = ")
	}
	if !IsStandardDomain(n.Domain) {
		p.WriteString(n.Domain + ".")
	}
	p.WriteString(textName(n.OpType))
	if n.Overload != "" {
		p.WriteString(":" + textName(n.Overload))
	}
	if len(n.Attributes) > 0 {
		p.WriteString("<")
		for i, a := range n.Attributes {
			p.separate(i)
			p.attribute(a, indent)
		}
		p.WriteString(">")
	}
	p.values(n.Inputs)
}

func (p *printer) values(vs []*Value) {
	p.WriteString("(")
	for i, v := range vs {
		p.separate(i)
		p.value(v)
	}
	p.WriteString(")")
}

func (p *printer) value(v *Value) {
	if v == nil {
		p.WriteString(`""`)
		return
	}
	p.WriteString(textName(v.Name))
}

func (p *printer) typed(vs []*Value) {
	p.WriteString("(")
	for i, v := range vs {
		p.separate(i)
		if t, ok := v.Type(); ok {
			p.WriteString(t.String() + " ")
		}
		p.value(v)
	}
	p.WriteString(")")
}

// String returns the type as in float32[batch, 64, ?]; the brackets are absent where the rank is unknown.
func (t Type) String() string {
	if !t.HasShape {
		return t.DataType.String()
	}
	dims := make([]string, len(t.Dims))
	for i, d := range t.Dims {
		switch {
		case d.Value >= 0:
			dims[i] = strconv.FormatInt(d.Value, 10)
		case d.Param != "":
			dims[i] = d.Param
		default:
			dims[i] = "?"
		}
	}
	return t.DataType.String() + "[" + strings.Join(dims, ", ") + "]"
}

func (p *printer) attribute(a *Attribute, indent int) {
	p.WriteString(textName(a.Name) + "=")
	if a.RefName != "" {
		p.WriteString("@" + textName(a.RefName))
		return
	}
	switch a.Type {
	case AttrFloat:
		p.WriteString(textFloat(float64(a.Float), 32))
	case AttrInt:
		p.WriteString(strconv.FormatInt(a.Int, 10))
	case AttrString:
		p.WriteString(strconv.Quote(a.String))
	case AttrTensor:
		p.tensor(a.Tensor)
	case AttrGraph:
		p.graphs([]*Graph{a.Graph}, indent)
	case AttrFloats:
		printList(p, a.Floats, func(f float32) string { return textFloat(float64(f), 32) })
	case AttrInts:
		printList(p, a.Ints, func(i int64) string { return strconv.FormatInt(i, 10) })
	case AttrStrings:
		printList(p, a.Strings, strconv.Quote)
	case AttrTensors:
		p.WriteString("[")
		for i, t := range a.Tensors {
			p.separate(i)
			p.tensor(t)
		}
		p.WriteString("]")
	case AttrGraphs:
		p.WriteString("[")
		p.graphs(a.Graphs, indent)
		p.WriteString("]")
	default:
		p.WriteString(strings.ToLower(onnxpb.AttributeProto_AttributeType(a.Type).String()))
	}
}

func (p *printer) graphs(gs []*Graph, indent int) {
	for i, g := range gs {
		p.separate(i)
		if g == nil {
			p.WriteString("graph")
			continue
		}
		p.graph(g, indent)
	}
}

func printList[T any](p *printer, list []T, text func(T) string) {
	p.WriteString("[")
	for i, x := range list {
		p.separate(i)
		if i == maxPrinted && len(list) > 2*maxPrinted { // a tail of a few is printed whole
			fmt.Fprintf(p, "… %d more", len(list)-i)
			break
		}
		p.WriteString(text(x))
	}
	p.WriteString("]")
}

// tensor prints type and dims, and the elements where they are few and of a common type.
func (p *printer) tensor(t *Tensor) {
	if t == nil {
		p.WriteString("tensor")
		return
	}
	dims := make([]string, len(t.Dims))
	for i, d := range t.Dims {
		dims[i] = strconv.FormatInt(d, 10)
	}
	p.WriteString(t.DataType.String() + "[" + strings.Join(dims, ", ") + "]")
	if t.External != nil {
		return
	}
	if n := t.Len(); n < 0 || n > maxPrinted {
		return
	}
	if elements := t.elementTexts(); elements != nil {
		p.WriteString(" {" + strings.Join(elements, ", ") + "}")
	}
}

func textFloat(f float64, bits int) string {
	s := strconv.FormatFloat(f, 'g', -1, bits)
	if !strings.ContainsAny(s, ".eEIN") && !math.IsInf(f, 0) {
		s += ".0" // tells a float from an int
	}
	return s
}

// textName returns the name as it is where that can be read unmistakably, quoted otherwise.
func textName(name string) string {
	if name == "" || strings.ContainsFunc(name, func(r rune) bool {
		return r <= ' ' || r == 0x7f || strings.ContainsRune(`,()<>{}[]="@`, r) || !strconv.IsPrint(r)
	}) {
		return strconv.Quote(name)
	}
	return name
}
