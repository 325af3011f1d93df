package streams

import (
	"slices"

	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/rewrite/edit"
)

// A bridge is a product with a constant, between a residual stream that has to be scaled and a place that cannot be: an
// output or input of the model, or an op without a law. Such places would otherwise keep the whole stream in float32.
type bridge struct {
	product  *onnx.Node
	from, to *onnx.Value
	output   bool // whether to is an output of the model
}

// leastSums is the number of sums that make values a residual stream.
const leastSums = 2

// bridged puts products with 1 around the streams that overflow and cannot be scaled directly, and chooses again. It
// returns the old choice and no bridges if that does not help.
func (c *chooser) bridged(m *onnx.Model) (*chooser, []*bridge, error) {
	change := edit.Change{Undoable: true}
	var list []*bridge
	done := map[*onnx.Value]bool{}
	for _, i := range c.items {
		if !c.overflows(i) || i.value.Producer != i.node || done[i.value] {
			continue
		}
		members, sums := c.stream(i.value)
		for v := range members {
			done[v] = true
		}
		if sums >= leastSums {
			for _, v := range c.inOrder(members) {
				list = append(list, c.cut(&change, v)...)
			}
		}
	}
	if len(list) == 0 {
		return c, nil, nil
	}
	if err := change.Finish(); err != nil {
		return nil, nil, err
	}
	again := &chooser{builder: newBuilder(m), ranges: c.ranges, half: c.half, headroom: c.headroom}
	if err := again.choose(); err != nil {
		return nil, nil, err
	}
	if again.left() >= c.left() {
		return c, nil, change.Undo()
	}
	return again, list, nil
}

func (c *chooser) inOrder(members map[*onnx.Value]bool) (list []*onnx.Value) {
	list = append(list, c.graph.Inputs...)
	for _, n := range nodes(c.graph) {
		list = append(list, n.Outputs...)
	}
	return slices.DeleteFunc(list, func(v *onnx.Value) bool { return !members[v] })
}

// left counts the overflowing values.
func (c *chooser) left() (n int) {
	for _, i := range c.items {
		if c.overflows(i) {
			n++
		}
	}
	return n
}

// stream lists the values that must grow together with v because nodes add or move them, and counts the sums of two of
// them.
func (c *chooser) stream(v *onnx.Value) (members map[*onnx.Value]bool, sums int) {
	members = map[*onnx.Value]bool{v: true}
	queue, seen := []*onnx.Value{v}, map[*onnx.Node]bool{}
	passes := map[*onnx.Value][]*onnx.Value{}
	for _, n := range nodes(c.graph) {
		for _, b := range n.Borders() {
			all := append([]*onnx.Value{n.Input(b.Input), n.OutputValue(b.Output)}, b.Inner...)
			for _, w := range all {
				passes[w] = append(passes[w], all...)
			}
		}
	}
	for len(queue) > 0 {
		v, queue = queue[0], queue[1:]
		near := []*onnx.Node{v.Producer}
		for _, u := range v.Uses() {
			near = append(near, u.Node)
		}
		for _, w := range passes[v] {
			if w != nil && w.Constant() == nil && !members[w] {
				members[w], queue = true, append(queue, w)
			}
		}
		for _, n := range near {
			if n == nil || seen[n] || !growsAlike(n) || len(n.Subgraphs()) > 0 {
				continue
			}
			seen[n] = true
			computed := 0
			for i, w := range n.Inputs {
				if c.in(n, i) != none && w.Constant() == nil {
					computed++
					if !members[w] {
						members[w], queue = true, append(queue, w)
					}
				}
			}
			if n.Is("Add") && computed == 2 {
				sums++
			}
			for i, w := range n.Outputs {
				if c.out(n, i) != none && !members[w] {
					members[w], queue = true, append(queue, w)
				}
			}
		}
	}
	return members, sums
}

// growsAlike reports whether the inputs and outputs of a node grow together, or each with its values inside.
func growsAlike(n *onnx.Node) bool {
	return onnx.IsStandardDomain(n.Domain) && alike[n.OpType] || n.Borders() != nil
}

// cut puts bridges around a member of a stream if its producer or readers do not scale.
func (c *chooser) cut(change *edit.Change, v *onnx.Value) (list []*bridge) {
	made := v.Producer == nil && v.Graph == c.graph || v.Producer != nil && c.pinsOutput(v)
	var inside, pinning []onnx.Use
	for _, u := range v.Uses() {
		switch {
		case growsAlike(u.Node):
			inside = append(inside, u)
		case c.pinsInput(u):
			pinning = append(pinning, u)
		}
	}
	switch {
	case made && len(inside) > 0: // it stays, and the stream reads a multiple
		list = append(list, c.bridge(change, v, inside))
	case made:
	default:
		if slices.Contains(c.graph.Outputs, v) && v.OutputUses() == 1 {
			list = append(list, c.exit(change, v))
		}
		if len(pinning) > 0 {
			from := v
			if len(list) > 0 {
				from = list[0].from
			}
			list = append(list, c.bridge(change, from, pinning))
		}
	}
	return list
}

// pinsOutput reports whether the producer of a value fixes its exponent and is not part of the stream.
func (c *chooser) pinsOutput(v *onnx.Value) bool {
	n := v.Producer
	if table := n.Input(0); n.Is("Gather") && table.Constant() != nil &&
		len(table.Uses()) > 1 && table.Constant().Len() > fewElements {
		return true // the head may read it after a norm without weights
	}
	if growsAlike(n) {
		return false
	}
	b := c.alone(n)
	for _, x := range b.reads {
		if len(b.system.of(x)) > 0 {
			return false // a constant absorbs it
		}
	}
	return true
}

// pinsInput reports whether a node alone fixes the exponent of an input.
func (c *chooser) pinsInput(u onnx.Use) bool {
	b := c.alone(u.Node)
	return len(b.system.of(b.in(u.Node, u.Index))) == 0
}

// alone returns the equations of one node.
func (c *chooser) alone(n *onnx.Node) *builder {
	b := emptyBuilder(c.graph, c.facts)
	b.law(n)
	b.rest(n)
	return b
}

// bridge makes nodes read a value times 1.
func (c *chooser) bridge(change *edit.Change, v *onnx.Value, uses []onnx.Use) *bridge {
	to := v.Graph.NewValue(v.Name + "_scaled")
	b := &bridge{product: c.product(change, v, to), from: v, to: to}
	for _, u := range uses {
		change.SetInput(u.Node, u.Index, to)
	}
	return b
}

// exit makes an output of the model a value times 1. The value gets another name.
func (c *chooser) exit(change *edit.Change, out *onnx.Value) *bridge {
	v := c.graph.NewValue(out.Name + "_scaled")
	if t, ok := out.Type(); ok {
		change.SetType(v, t)
	}
	change.TakeOutput(out.Producer, out.Output, v)
	change.Reread(out, v)
	return &bridge{product: c.product(change, v, out), from: v, to: out, output: true}
}

func (c *chooser) product(change *edit.Change, v, to *onnx.Value) *onnx.Node {
	one := change.AddInitializer(v.Graph, onnx.NewFloat32s(v.Name+"_power", nil, []float32{1}))
	n := change.AddNode(v.Graph, "Mul", []*onnx.Value{v, one}, []*onnx.Value{to})
	n.Name = to.Name + "_Mul"
	known := v
	if _, ok := c.half[v]; !ok {
		known = to
	}
	for _, w := range []*onnx.Value{v, to} {
		c.half[w], c.ranges.greatest[w] = c.half[known], c.ranges.greatest[known]
	}
	return n
}

// remove removes a bridge that is a product with 1.
func (b *bridge) remove(change *edit.Change) {
	if b.output {
		change.TakeOutput(b.from.Producer, b.from.Output, b.to)
		change.Reread(b.from, b.to)
		change.SetInput(b.product, 0, nil)
	} else {
		change.Reread(b.to, b.from)
	}
	change.Drop(b.product)
}
