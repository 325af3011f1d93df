package convert

import (
	"fmt"
	"slices"

	"github.com/mojo-patch/mojo-patch/onnx"
)

// rewriting holds the changes that rewrite has yet to put into the graphs.
type rewriting struct {
	*precision
	casts map[*onnx.Value]map[onnx.DataType]*onnx.Value
	after map[*onnx.Node][]*onnx.Node
	first map[*onnx.Graph][]*onnx.Node
	// types has the type in the converted model of every value that was float32 and is not a constant.
	types  map[*onnx.Value]onnx.DataType
	shared map[place]*onnx.Tensor
}

// rewrite changes constants, attributes and declared types, and adds the Casts.
func (p *precision) rewrite() error {
	r := &rewriting{precision: p, casts: map[*onnx.Value]map[onnx.DataType]*onnx.Value{},
		after: map[*onnx.Node][]*onnx.Node{},
		first: map[*onnx.Graph][]*onnx.Node{}, types: map[*onnx.Value]onnx.DataType{}, shared: map[place]*onnx.Tensor{}}
	var graphs []*onnx.Graph
	p.model.Graph.Walk(func(g *onnx.Graph) { graphs = append(graphs, g) })
	for _, g := range graphs { // ask for types before any node changes
		for _, v := range g.Inputs {
			if p.isFloat(v) {
				r.types[v] = p.typeOf(v)
			}
		}
		for _, n := range g.Nodes {
			for _, v := range n.Outputs {
				if v != nil && p.isFloat(v) && !n.Is("Constant") {
					r.types[v] = p.typeOf(v)
				}
			}
		}
	}
	for _, g := range graphs {
		if err := r.constants(g); err != nil {
			return err
		}
	}
	for _, g := range graphs {
		for _, v := range g.Inputs {
			r.connect(v)
		}
		for _, n := range slices.Clone(g.Nodes) {
			for _, v := range slices.Clone(n.Outputs) {
				r.connect(v)
			}
			r.attributes(n)
			if p.float32[n] && !n.Is("Cast") {
				name := n.OpType
				if !onnx.IsStandardDomain(n.Domain) {
					name = n.Domain + "." + name
				}
				p.report.Float32[name]++
			}
		}
	}
	for v, t := range r.types {
		if declared, ok := v.Type(); ok && declared.DataType == onnx.Float && t != onnx.Float {
			declared.DataType = t
			r.edit.SetType(v, declared)
		}
	}
	for _, g := range graphs {
		nodes := slices.Clone(r.first[g])
		for _, n := range g.Nodes {
			nodes = append(append(nodes, n), r.after[n]...)
		}
		r.edit.SetNodes(g, nodes)
	}
	return nil
}

// connect passes each reader of a value the type that it wants.
func (r *rewriting) connect(v *onnx.Value) {
	if v == nil {
		return
	}
	is, ok := r.types[v]
	if !ok {
		return
	}
	inHalf, inFloat := r.wanted(v)
	for _, u := range slices.Clone(v.Uses()) {
		t := r.wants(u)
		if t == onnx.Undefined && is == onnx.Float && inHalf && !inFloat && !v.IsOutput() {
			t = r.to // the Shape of a value that all other readers want in the half type
		}
		if t != onnx.Undefined && t != is {
			r.edit.SetInput(u.Node, u.Index, r.cast(v, t))
		}
	}
	if v.IsOutput() {
		for _, g := range r.outputGraphs(v) {
			for i, o := range g.Outputs {
				if t := r.outputType(g, i); o == v && t != is {
					r.output(g, i, t)
				}
			}
		}
	}
}

// output makes output i of a graph a value of another type than the computed one. It keeps its name.
func (r *rewriting) output(g *onnx.Graph, i int, t onnx.DataType) {
	v := g.Outputs[i]
	if v.Graph != g || v.Producer == nil { // a value of an enclosing graph, or an input: another value is the output
		r.edit.SetOutput(g, i, r.cast(v, t))
		return
	}
	is := r.types[v]
	n := v.Producer
	computed := g.NewValue(v.Name + "_" + is.String())
	if declared, ok := v.Type(); ok {
		declared.DataType = is
		r.edit.SetType(computed, declared)
	}
	r.edit.TakeOutput(n, v.Output, computed)
	cast := r.edit.NewNode(g, "Cast", []*onnx.Value{computed}, []*onnx.Value{v}, onnx.IntAttr("to", int64(t)))
	cast.Name = v.Name + "_cast"
	for _, u := range slices.Clone(v.Uses()) {
		if r.wants(u) != t {
			r.edit.SetInput(u.Node, u.Index, computed)
		}
	}
	if known := r.casts[v][t]; known != nil { // readers of the other type are already connected
		r.edit.Reread(known, v)
		old := known.Producer
		r.edit.SetInput(old, 0, nil)
		r.after[n] = slices.DeleteFunc(r.after[n], func(m *onnx.Node) bool { return m == old })
		r.report.Casts--
	}
	r.after[n] = append([]*onnx.Node{cast}, r.after[n]...)
	r.types[computed], r.types[v] = is, t
	r.kinds[computed] = r.kinds[v]
	r.report.Casts++
}

// cast returns the value in another type. All readers share one Cast, directly after the node that computes the value.
func (r *rewriting) cast(v *onnx.Value, t onnx.DataType) *onnx.Value {
	if c := r.casts[v][t]; c != nil {
		return c
	}
	g := v.Graph
	c := g.NewValue(fmt.Sprintf("%s_%s", v.Name, t))
	n := r.edit.NewNode(g, "Cast", []*onnx.Value{v}, []*onnx.Value{c}, onnx.IntAttr("to", int64(t)))
	n.Name = c.Name
	if declared, ok := v.Type(); ok {
		declared.DataType = t
		r.edit.SetType(c, declared)
	}
	if v.Producer == nil {
		r.first[g] = append(r.first[g], n)
	} else {
		r.after[v.Producer] = append(r.after[v.Producer], n)
	}
	if r.casts[v] == nil {
		r.casts[v] = map[onnx.DataType]*onnx.Value{}
	}
	r.casts[v][t] = c
	r.report.Casts++
	return c
}

// attributes changes the attribute that sets the type of a node's result.
func (r *rewriting) attributes(n *onnx.Node) {
	v := n.OutputValue(0)
	if v == nil || r.types[v] != r.to {
		return
	}
	switch {
	case n.Is("Cast") && n.AttrInt("to", 0) == int64(onnx.Float):
		r.edit.SetAttr(n, onnx.IntAttr("to", int64(r.to)))
	case n.Is("ConstantOfShape"):
		fill := onnx.NewFloat32s("value", []int64{1}, []float32{0})
		if a := n.Attr("value"); a != nil && a.Tensor != nil {
			fill = a.Tensor
		}
		if t, err := r.tensor(v.Name, fill); err == nil {
			r.edit.SetAttr(n, onnx.TensorAttr("value", t))
		}
	}
}
