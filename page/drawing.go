package page

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/mojo-patch/mojo-patch/fused"
	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/patterns"
	"github.com/mojo-patch/mojo-patch/reference"
)

// drawing is a small graph: boxes for nodes, inputs and outputs, and edges from values to readers.
type drawing struct {
	Boxes         []*box
	Edges         []*edge
	Width, Height float64
}

// The kinds of boxes, which are their classes in the page.
const (
	kindInput    = "input"    // a value that is computed elsewhere
	kindWeight   = "weight"   // a constant tensor
	kindOutput   = "output"   // an output of the block
	kindNode     = "node"     // a node of the model
	kindFused    = "fused"    // a fused op
	kindStandard = "standard" // another op that patching writes
)

// box is a node or a value. A box without a label is a bend of an edge.
type box struct {
	Kind, Label, Note   string
	X, Y, Width, Height float64 // of the middle

	in, out      []*edge
	above, below []*box // neighbors in adjacent rows
	row, at      int
}

// Left is the left side of a box.
func (b *box) Left() float64 { return b.X - b.Width/2 }

// Top is the top of a box.
func (b *box) Top() float64 { return b.Y - b.Height/2 }

type edge struct {
	from, to *box
	way      []*box
}

// Path returns the line of an edge in SVG: vertical at both ends and at its bends.
func (e *edge) Path() string {
	var b strings.Builder
	y := e.from.Y + e.from.Height/2
	fmt.Fprintf(&b, "M%.0f %.0f", e.from.X, y)
	for i, p := range e.way[1:] {
		next := p.Y
		if i == len(e.way)-2 {
			next -= p.Height/2 + 3
		}
		middle := (y + next) / 2
		fmt.Fprintf(&b, "C%.0f %.0f %.0f %.0f %.0f %.0f", e.way[i].X, middle, p.X, middle, p.X, next)
		y = next
	}
	return b.String()
}

const (
	charWidth  = 7.2 // of the monospaced font, at 12 pixels
	lineHeight = 26
	mostChars  = 20 // of a name
)

// drawMatch draws the nodes of a match, without layout.
func drawMatch(m *patterns.Match) *drawing {
	d := &drawing{}
	values := map[*onnx.Value]*box{}
	d.addNodes(between(m), func(v *onnx.Value) *onnx.Value { return v }, values, false)
	d.addOutputs(m.Outputs, m.Outputs, values)
	return d
}

// between returns the nodes of a match and those that it skips, such as casts.
func between(m *patterns.Match) []*onnx.Node {
	taken := onnx.SetOf(slices.Values(m.Nodes))
	nodes := slices.Clone(m.Nodes)
	known := func(v *onnx.Value) bool {
		return v == nil || v.IsConstant() || slices.Contains(m.Inputs, v) || taken[v.Producer]
	}
	for i := 0; i < len(nodes); i++ {
		for _, v := range nodes[i].Inputs {
			if !known(v) && v.Producer != nil && !slices.ContainsFunc(v.Producer.Inputs, func(w *onnx.Value) bool {
				return !known(w)
			}) {
				taken[v.Producer] = true
				nodes = append(nodes, v.Producer)
			}
		}
	}
	return nodes
}

// drawReplacement draws the match's replacement, or returns nil if it has none.
func drawReplacement(m *patterns.Match) *drawing {
	if m.Replacement == nil {
		return nil
	}
	outer := map[*onnx.Value]*onnx.Value{}
	for i, v := range m.Replacement.Inputs {
		outer[v] = m.Inputs[i]
	}
	d := &drawing{}
	values := map[*onnx.Value]*box{}
	d.addNodes(m.Replacement.Nodes, func(v *onnx.Value) *onnx.Value {
		if o := outer[v]; o != nil {
			return o
		}
		return v
	}, values, true)
	d.addOutputs(m.Replacement.Outputs, m.Outputs, values)
	return d
}

// addNodes adds nodes with their inputs. named maps a replacement's value to the model's.
func (d *drawing) addNodes(nodes []*onnx.Node, named func(*onnx.Value) *onnx.Value, values map[*onnx.Value]*box,
	patched bool) {
	nodes = slices.DeleteFunc(sorted(nodes), func(n *onnx.Node) bool { return n.Is("Constant") })
	for _, n := range nodes {
		b := &box{Kind: kindNode, Label: n.OpType}
		switch {
		case n.Domain == fused.Domain:
			b.Kind, b.Label = kindFused, n.Domain+"."+n.OpType
		case patched:
			b.Kind = kindStandard
		}
		var from []*box
		for _, v := range n.Inputs {
			if v == nil {
				continue
			}
			v = named(v)
			if number, ok := scalar(v); ok {
				b.Note = strings.TrimSpace(b.Note + " " + number)
				continue
			}
			if values[v] == nil {
				values[v] = d.addValue(v)
			}
			if !slices.Contains(from, values[v]) {
				from = append(from, values[v])
			}
		}
		d.add(b)
		for _, f := range from {
			d.connect(f, b)
		}
		for _, v := range n.Outputs {
			if v != nil {
				values[v] = b
			}
		}
	}
}

// sorted returns nodes of one graph in the order of computation.
func sorted(nodes []*onnx.Node) []*onnx.Node {
	left := map[*onnx.Node]bool{}
	for _, n := range nodes {
		left[n] = true
	}
	var list []*onnx.Node
	var visit func(n *onnx.Node)
	visit = func(n *onnx.Node) {
		if n == nil || !left[n] {
			return
		}
		delete(left, n)
		for _, v := range n.Inputs {
			if v != nil {
				visit(v.Producer)
			}
		}
		list = append(list, n)
	}
	for _, n := range nodes {
		visit(n)
	}
	return list
}

func (d *drawing) addValue(v *onnx.Value) *box {
	b := &box{Kind: kindInput, Label: short(v.Name)}
	if c := v.Constant(); c != nil {
		b.Kind, b.Note = kindWeight, shape(c.Dims)
	} else if t, ok := v.Type(); ok && t.HasShape && len(t.Dims) > 0 {
		b.Note = shape(t.Dims)
	}
	d.add(b)
	return b
}

// addOutputs adds the outputs of a block, except values that no node in the drawing computes.
func (d *drawing) addOutputs(made, named []*onnx.Value, values map[*onnx.Value]*box) {
	for i, v := range made {
		if values[v] == nil {
			continue
		}
		b := &box{Kind: kindOutput, Label: short(named[i].Name)}
		d.add(b)
		d.connect(values[v], b)
	}
}

func (d *drawing) add(b *box) {
	chars := len([]rune(b.Label))
	b.Height = lineHeight
	switch b.Kind {
	case kindInput, kindWeight:
		if r := []rune(b.Note); len(r) > mostChars+4 {
			b.Note = string(r[:mostChars+3]) + "…"
		}
		if b.Note != "" { // on a second, smaller line
			b.Height, chars = 38, max(chars, len([]rune(b.Note))*6/7)
		}
	default:
		if b.Note != "" {
			chars += 1 + len([]rune(b.Note))
		}
	}
	b.Width = max(52, float64(chars)*charWidth+20)
	d.Boxes = append(d.Boxes, b)
}

func (d *drawing) connect(from, to *box) {
	e := &edge{from: from, to: to}
	from.out, to.in = append(from.out, e), append(to.in, e)
	d.Edges = append(d.Edges, e)
}

// key returns equal keys for drawings that differ only in names and tensor sizes.
func (d *drawing) key() string {
	var b strings.Builder
	at := map[*box]int{}
	for i, x := range d.Boxes {
		at[x] = i
		b.WriteString("\n" + x.Kind)
		if x.Kind != kindInput && x.Kind != kindWeight && x.Kind != kindOutput {
			b.WriteString(" " + x.Label + " " + x.Note)
		}
		for _, e := range x.in {
			fmt.Fprintf(&b, " %d", at[e.from])
		}
	}
	return b.String()
}

// Count is the number of nodes in a drawing.
func (d *drawing) Count() int {
	n := 0
	for _, b := range d.Boxes {
		if b.Kind == kindNode || b.Kind == kindFused || b.Kind == kindStandard {
			n++
		}
	}
	return n
}

// Large reports whether a drawing has too many nodes to be drawn.
func (d *drawing) Large() bool { return d.Count() > mostDrawn }

// Lines describes a drawing in words: each node with its inputs.
func (d *drawing) Lines() []string {
	var list []string
	for _, b := range d.Boxes {
		if len(b.in) == 0 {
			continue
		}
		var from []string
		for _, e := range b.in {
			from = append(from, e.from.Label)
		}
		line := b.Label + " ← " + strings.Join(from, ", ")
		if b.Kind == kindOutput {
			line = "output " + line
		} else if b.Note != "" {
			line += ", " + b.Note
		}
		list = append(list, line)
	}
	return list
}

// scalar returns the number of a one-element constant.
func scalar(v *onnx.Value) (string, bool) {
	c := v.Constant()
	if c == nil || c.Len() != 1 || c.External != nil && c.Size() > 8 {
		return "", false
	}
	t, err := reference.FromONNX(c)
	switch {
	case err != nil:
		return "", false
	case len(t.F) == 1:
		return fmt.Sprintf("%.6g", t.F[0]), true
	case len(t.I) == 1 && t.I[0] >= math.MaxInt32: // of a Slice: to the end
		return "end", true
	case len(t.I) == 1:
		return fmt.Sprint(t.I[0]), true
	}
	return "", false
}

// shape formats the dimensions of a tensor.
func shape[T any](dims []T) string {
	text := make([]string, len(dims))
	for i, d := range dims {
		text[i] = fmt.Sprint(d)
	}
	return "[" + strings.Join(text, ", ") + "]"
}

// short keeps the end of a long name, which is more specific than its beginning.
func short(name string) string {
	if r := []rune(name); len(r) > mostChars {
		return "…" + string(r[len(r)-mostChars+1:])
	}
	return name
}
