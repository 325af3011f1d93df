package convert

import (
	"fmt"
	"math"
	"slices"

	"github.com/mojo-patch/mojo-patch/onnx"
)

// cut changes the path to an output of logits so that it computes only the last position.
func (c *logitsCut) cut(p *logitsPath) error {
	out := p.graph.Outputs[p.output]
	for _, b := range p.branches {
		if b.single {
			continue
		}
		if err := c.cut(b); err != nil {
			return err
		}
	}
	if p.branches != nil {
		c.declare(p, out)
		return nil
	}
	rows, err := c.rows(p)
	if err != nil {
		return err
	}
	check, err := c.before(p)
	if err != nil {
		return err
	}
	c.keepOthers(p, out)
	added := rows()
	if p.split >= 0 {
		width, _ := c.facts.Dim(p.nodes[p.split].OutputValue(0), 2)
		n := p.nodes[p.split]
		c.edit.SetInput(n, 1, c.integers(p.graph, "last_logits_shape", -1, 1, width))
		c.edit.RemoveAttr(n, "allowzero")
	}
	c.declare(p, out)
	if err := c.edit.Finish(); err != nil {
		return err
	}
	return check(added)
}

// rows prepares the nodes that pass only the last rows to the product.
func (c *logitsCut) rows(p *logitsPath) (func() []*onnx.Node, error) {
	g, x := p.graph, p.product.Input(0)
	var shape *onnx.Value // of x, with a separate axis for the positions if x lacks one
	from := x
	var width int64
	if p.split >= 0 {
		var ok bool
		if width, ok = c.facts.Dim(x, 1); !ok {
			return nil, fmt.Errorf("the number of columns of %q, which the logits are computed from, is not known",
				x.Name)
		}
		if y := c.unflattened(x); y != nil {
			from = y
		} else {
			shape = p.nodes[p.split].Input(1)
			if dims, ok := c.facts.Known(shape, 0); !ok || len(dims.I) != 3 || slices.Contains(dims.I[:2], 0) ||
				c.facts.Loose(shape) || dependsOn(shape, p.product) {
				return nil, fmt.Errorf("%q, from which the logits are computed, has a batch and a sequence that "+
					"cannot be told apart", x.Name)
			}
		}
	}
	return func() []*onnx.Node {
		var added []*onnx.Node
		node := func(op string, v *onnx.Value, inputs ...*onnx.Value) *onnx.Value {
			o := g.NewValue(x.Name + "_last")
			n := c.edit.NewNode(g, op, append([]*onnx.Value{v}, inputs...), []*onnx.Value{o})
			n.Name = o.Name
			added = append(added, n)
			return o
		}
		if shape != nil {
			batch := node("Slice", shape, c.integers(g, "last_logits_first", 0), c.integers(g, "last_logits_two", 2))
			full := node("Concat", batch, c.integers(g, "last_logits_width", width))
			c.edit.SetAttr(full.Producer, onnx.IntAttr("axis", 0))
			from = node("Reshape", x, full)
		}
		last := node("Slice", from, c.integers(g, "last_logits_start", -1),
			c.integers(g, "last_logits_end", math.MaxInt64), c.integers(g, "last_logits_axis", 1))
		if t, ok := x.Type(); ok && p.split < 0 && len(t.Dims) == 3 {
			t.Dims = slices.Clone(t.Dims)
			t.Dims[1] = onnx.Dim{Value: 1}
			c.edit.SetType(last, t)
		}
		if p.split >= 0 {
			last = node("Reshape", last, c.integers(g, "last_logits_rows", -1, width))
		}
		c.edit.SetInput(p.product, 0, last)
		c.edit.Insert(p.product, added...)
		return added
	}, nil
}

// unflattened returns the [batch, sequence, …] value that a Reshape turns into x, of [batch*sequence, …].
func (c *logitsCut) unflattened(x *onnx.Value) *onnx.Value {
	n := x.Producer
	if !n.Is("Reshape") || x.Graph != n.Graph {
		return nil
	}
	y := n.Input(0)
	for w := range 2 {
		in, ok1 := c.facts.Shape(y, w)
		out, ok2 := c.facts.Shape(x, w)
		if !ok1 || !ok2 || len(in) != 3 || len(out) != 2 || in[2] != out[1] || in[0]*in[1] != out[0] {
			return nil
		}
	}
	return y
}

// dependsOn reports whether a value is computed from the node's outputs.
func dependsOn(v *onnx.Value, n *onnx.Node) bool {
	seen := map[*onnx.Node]bool{}
	var walk func(v *onnx.Value) bool
	walk = func(v *onnx.Value) bool {
		if v == nil || v.Producer == nil || seen[v.Producer] {
			return false
		}
		if v.Producer == n {
			return true
		}
		seen[v.Producer] = true
		return slices.ContainsFunc(v.Producer.Inputs, walk)
	}
	return walk(v)
}

func (c *logitsCut) integers(g *onnx.Graph, name string, list ...int64) *onnx.Value {
	return c.edit.AddInitializer(g, onnx.NewInt64s(name, list))
}

// keepOthers adds a copy for all positions and connects it to the other readers of values on the path, including other
// outputs of the graph.
func (c *logitsCut) keepOthers(p *logitsPath, out *onnx.Value) {
	nodes := append([]*onnx.Node{p.product}, p.nodes...)
	read := func(i int) bool { // whether anything but the next node on the path reads it
		v := nodes[i].OutputValue(0)
		inner := 0
		for _, u := range v.Uses() {
			if i+1 < len(nodes) && u.Node == nodes[i+1] {
				inner++
			}
		}
		outputs := v.OutputUses()
		if v == out {
			outputs--
		}
		return len(v.Uses()) > inner || outputs > 0
	}
	last := -1
	for i := range nodes {
		if read(i) {
			last = i
		}
	}
	x := p.product.Input(0)
	for i, n := range nodes[:last+1] {
		inputs := slices.Clone(n.Inputs)
		at := 0
		if i > 0 {
			at = p.data[i-1]
		}
		inputs[at] = x
		v := n.OutputValue(0)
		all := p.graph.NewValue(v.Name + "_all")
		if t, ok := v.Type(); ok {
			c.edit.SetType(all, t)
		}
		// another output keeps its name, so the path takes the new value
		renamed := read(i) && v != out && v.IsOutput()
		if x = all; renamed {
			x = v
		}
		whole := c.edit.NewNode(p.graph, n.OpType, inputs, []*onnx.Value{x}, n.Attributes...)
		whole.Name, whole.Domain, whole.Overload, whole.Metadata = all.Name, n.Domain, n.Overload, n.Metadata
		if renamed {
			c.edit.TakeOutput(n, 0, all)
		}
		for _, u := range slices.Clone(v.Uses()) {
			if next := i+1 < len(nodes) && u.Node == nodes[i+1]; next == renamed {
				c.edit.SetInput(u.Node, u.Index, all)
			}
		}
		c.edit.Insert(n, whole)
	}
}

// declare sets the shape of the values on the path, and of the output, to one position.
func (c *logitsCut) declare(p *logitsPath, out *onnx.Value) {
	values := []*onnx.Value{out}
	for i, n := range p.nodes {
		if i >= p.split || p.split < 0 {
			values = append(values, n.OutputValue(0))
		}
	}
	if p.branches != nil {
		v := out
		if len(p.nodes) > 0 {
			v = p.nodes[0].Input(p.data[0])
		}
		values = append(values, v)
	} else if p.split < 0 {
		values = append(values, p.product.OutputValue(0))
	}
	for _, v := range values {
		if t, ok := v.Type(); ok && len(t.Dims) == 3 {
			t.Dims = slices.Clone(t.Dims)
			t.Dims[1] = onnx.Dim{Value: 1}
			c.edit.SetType(v, t)
		}
	}
	if p.split >= 0 { // two axes: batch rows
		for _, n := range append([]*onnx.Node{p.product}, p.nodes[:p.split]...) {
			v := n.OutputValue(0)
			if t, ok := v.Type(); ok && len(t.Dims) == 2 {
				t.Dims = []onnx.Dim{{Value: -1}, t.Dims[1]}
				c.edit.SetType(v, t)
			}
		}
	}
}
