package onnx

import (
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/mojo-patch/mojo-patch/onnx/internal/onnxpb"
)

// Text prints the function in a form close to ONNX's textual syntax, one line per node:
//
//	<domain: "example", opset_import: ["": 17]>
//	Scaled<epsilon=1e-05>(X, scale) => (Y) {
//	  n = Add<axis=-1>(X, scale)
//	  Y = Clip(n, "", limit)
//	}
//
// An omitted input or output is "", an attribute taken from the function's is @name, and the elements of large tensors
// are omitted. The text is for people; there is no parser.
func (f *Function) Text() string {
	var p printer
	p.WriteString("<domain: " + strconv.Quote(f.Domain))
	if f.Overload != "" {
		p.WriteString(", overload: " + strconv.Quote(f.Overload))
	}
	p.WriteString(", opset_import: ")
	list(&p, "[", f.Opsets, "]", func(o Opset) { fmt.Fprintf(&p, "%q: %d", o.Domain, o.Version) })
	p.WriteString(">\n" + textName(f.Name))
	if len(f.Attributes)+len(f.Defaults) > 0 {
		list(&p, "<", f.Attributes, "", func(name string) { p.WriteString(textName(name)) })
		if len(f.Attributes) > 0 && len(f.Defaults) > 0 {
			p.WriteString(", ")
		}
		p.attributes("", f.Defaults, 0)
	}
	p.values(f.Body.Inputs)
	p.WriteString(" => ")
	p.values(f.Body.Outputs)
	p.WriteString(" ")
	p.body(f.Body, 0)
	p.WriteString("\n")
	return p.String()
}

// Text prints the graph, one line per node, in the form of Function.Text, with the types of its inputs and outputs and
// its initializers.
func (g *Graph) Text() string {
	var p printer
	p.graph(g, 0)
	p.WriteString("\n")
	return p.String()
}

// Text prints the node in one line (more if it contains graphs), in the form of Function.Text.
func (n *Node) Text() string {
	var p printer
	p.node(n, 0)
	return p.String()
}

// maxPrinted is the number of elements up to which tensors and lists are printed.
const maxPrinted = 8

type printer struct{ strings.Builder }

// list prints elements between brackets.
func list[T any](p *printer, open string, elements []T, end string, one func(T)) {
	p.WriteString(open)
	for i, x := range elements {
		if i > 0 {
			p.WriteString(", ")
		}
		one(x)
	}
	p.WriteString(end)
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
	if len(n.Outputs) > 0 {
		list(p, "", n.Outputs, " = ", p.value)
	}
	if !IsStandardDomain(n.Domain) {
		p.WriteString(n.Domain + ".")
	}
	p.WriteString(textName(n.OpType))
	if n.Overload != "" {
		p.WriteString(":" + textName(n.Overload))
	}
	if len(n.Attributes) > 0 {
		p.attributes("<", n.Attributes, indent)
	}
	p.values(n.Inputs)
}

func (p *printer) attributes(open string, as []*Attribute, indent int) {
	list(p, open, as, ">", func(a *Attribute) { p.attribute(a, indent) })
}

func (p *printer) values(vs []*Value) { list(p, "(", vs, ")", p.value) }

func (p *printer) value(v *Value) {
	if v == nil {
		p.WriteString(`""`)
		return
	}
	p.WriteString(textName(v.Name))
}

func (p *printer) typed(vs []*Value) {
	list(p, "(", vs, ")", func(v *Value) {
		if t, ok := v.Type(); ok {
			p.WriteString(t.String() + " ")
		}
		p.value(v)
	})
}

// String returns the type as in float32[batch, 64, ?], without brackets if the rank is unknown.
func (t Type) String() string {
	if !t.HasShape {
		return t.DataType.String()
	}
	dims := make([]string, len(t.Dims))
	for i, d := range t.Dims {
		dims[i] = d.String()
	}
	return t.DataType.String() + "[" + strings.Join(dims, ", ") + "]"
}

// String returns the number or the name, or "?".
func (d Dim) String() string {
	switch {
	case d.Value >= 0:
		return strconv.FormatInt(d.Value, 10)
	case d.Param != "":
		return d.Param
	}
	return "?"
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
		p.inner(a.Graph, indent)
	case AttrFloats:
		fewOf(p, a.Floats, func(f float32) string { return textFloat(float64(f), 32) })
	case AttrInts:
		fewOf(p, a.Ints, func(i int64) string { return strconv.FormatInt(i, 10) })
	case AttrStrings:
		fewOf(p, a.Strings, strconv.Quote)
	case AttrTensors:
		list(p, "[", a.Tensors, "]", p.tensor)
	case AttrGraphs:
		list(p, "[", a.Graphs, "]", func(g *Graph) { p.inner(g, indent) })
	default:
		p.WriteString(strings.ToLower(onnxpb.AttributeProto_AttributeType(a.Type).String()))
	}
}

// inner prints a graph of an attribute.
func (p *printer) inner(g *Graph, indent int) {
	if g == nil {
		p.WriteString("graph")
		return
	}
	p.graph(g, indent)
}

// fewOf prints a list, but only the first elements of a long one.
func fewOf[T any](p *printer, all []T, text func(T) string) {
	end, shown := "]", all
	if len(all) > 2*maxPrinted {
		end, shown = fmt.Sprintf(", … %d more]", len(all)-maxPrinted), all[:maxPrinted]
	}
	list(p, "[", shown, end, func(x T) { p.WriteString(text(x)) })
}

// tensor prints type and dims, and the elements if they are few and of a common type.
func (p *printer) tensor(t *Tensor) {
	if t == nil {
		p.WriteString("tensor")
		return
	}
	p.WriteString(t.DataType.String())
	list(p, "[", t.Dims, "]", func(d int64) { fmt.Fprint(p, d) })
	if n := t.Len(); t.External != nil || n < 0 || n > maxPrinted {
		return
	}
	if elements := t.elementTexts(); elements != nil {
		p.WriteString(" {" + strings.Join(elements, ", ") + "}")
	}
}

func textFloat(f float64, bits int) string {
	s := strconv.FormatFloat(f, 'g', -1, bits)
	if !strings.ContainsAny(s, ".eEIN") && !math.IsInf(f, 0) {
		s += ".0" // distinguishes a float from an int
	}
	return s
}

// textName returns the name, quoted if it would be ambiguous.
func textName(name string) string {
	if name == "" || strings.ContainsFunc(name, func(r rune) bool {
		return r <= ' ' || r == 0x7f || strings.ContainsRune(`,()<>{}[]="@`, r) || !strconv.IsPrint(r)
	}) {
		return strconv.Quote(name)
	}
	return name
}
