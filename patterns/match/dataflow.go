package match

import (
	"slices"

	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/reference/infer"
)

// dataflow holds the dependences in a graph, including those through the bodies of its loops and branches.
type dataflow struct {
	owner    map[*onnx.Graph]*onnx.Node   // the node of this graph that holds a nested graph
	captured map[*onnx.Node][]*onnx.Value // the outer values that the bodies of a node read
	passedOn map[*onnx.Value][]*onnx.Node // the nodes whose bodies return the value unchanged
	data     map[*onnx.Value]bool         // of this graph's values: see isData
	needed   map[*onnx.Value]bool         // of this graph's values: see isNeeded; nil until needed
	readers  map[*onnx.Value][]*onnx.Node // memo of Readers, for values with many uses
}

// flow returns the dataflow of the graph, which it computes once.
func (g *View) flow() *dataflow {
	if g.dataflow != nil {
		return g.dataflow
	}
	d := &dataflow{owner: map[*onnx.Graph]*onnx.Node{}, captured: map[*onnx.Node][]*onnx.Value{},
		passedOn: map[*onnx.Value][]*onnx.Node{}, data: make(map[*onnx.Value]bool, len(g.Graph.Nodes)),
		readers: map[*onnx.Value][]*onnx.Node{}}
	g.dataflow = d
	for _, n := range g.Graph.Nodes {
		for _, s := range n.Subgraphs() {
			s.Walk(func(b *onnx.Graph) { d.owner[b] = n })
		}
		seen := map[*onnx.Value]bool{}
		capture := func(v *onnx.Value) {
			if v != nil && d.owner[v.Graph] != n && !seen[v] {
				seen[v] = true
				d.captured[n] = append(d.captured[n], v)
			}
		}
		for _, s := range n.Subgraphs() {
			s.Walk(func(b *onnx.Graph) {
				for _, m := range b.Nodes {
					for _, v := range m.Inputs {
						capture(v)
					}
				}
				for _, v := range b.Outputs {
					if d.owner[v.Graph] != n {
						d.passedOn[v] = append(d.passedOn[v], n)
					}
					capture(v)
				}
			})
		}
		data := n.IsRandom() || slices.ContainsFunc(g.Operands(n), g.IsData)
		if n.Is("Shape") || n.Is("Size") {
			data = false
		}
		for _, v := range n.Outputs {
			if v != nil {
				d.data[v] = data && !g.known(v)
			}
		}
	}
	return d
}

// known reports whether the elements of v follow only from constants and shapes.
func (g *View) known(v *onnx.Value) bool {
	for w := range infer.Worlds {
		if _, ok := g.Facts.Known(v, w); !ok {
			return false
		}
	}
	return true
}

// IsData reports whether v depends on the model's inputs, not only on its weights and on the sizes of its inputs.
func (g *View) IsData(v *onnx.Value) bool {
	if v == nil || v.Constant() != nil {
		return false
	}
	if v.Graph == g.Graph && v.Producer != nil {
		return g.flow().data[v]
	}
	return !g.known(v) && !g.FromConstant(v)
}

// FromConstant reports whether v is a constant, perhaps cast, moved or dequantized.
func (g *View) FromConstant(v *onnx.Value) bool {
	for range MaxDetour {
		switch {
		case v == nil:
			return false
		case v.Constant() != nil:
			return true
		}
		n := v.Producer
		if n == nil || !onnx.IsStandardDomain(n.Domain) ||
			!viewOps[n.OpType] && n.OpType != "Identity" && n.OpType != "DequantizeLinear" {
			return false
		}
		v = n.Input(0)
	}
	return false
}

// Operands lists the inputs of a node and the outer values that its bodies read.
func (g *View) Operands(n *onnx.Node) []*onnx.Value {
	var list []*onnx.Value
	if d := g.flow(); len(d.captured) > 0 {
		list = d.captured[n]
	}
	if len(list) == 0 && !slices.Contains(n.Inputs, nil) {
		return n.Inputs
	}
	return append(slices.DeleteFunc(slices.Clone(n.Inputs), func(v *onnx.Value) bool { return v == nil }), list...)
}

// manyReaders is the number of uses from which the readers of a value are memoized.
const manyReaders = 8

// Readers returns the nodes of this graph that read v, themselves or in their bodies. Do not change the list.
func (g *View) Readers(v *onnx.Value) []*onnx.Node {
	d, uses := g.flow(), v.Uses()
	if len(uses) < manyReaders {
		list := slices.Clip(d.passedOn[v])
		for _, u := range uses {
			if n := d.within(u.Node, g.Graph); n != nil && !slices.Contains(list, n) {
				list = append(list, n)
			}
		}
		return list
	}
	list, ok := d.readers[v]
	if ok {
		return list
	}
	list = slices.Clip(d.passedOn[v])
	seen := make(map[*onnx.Node]bool, len(uses))
	for _, n := range list {
		seen[n] = true
	}
	for _, u := range uses {
		if n := d.within(u.Node, g.Graph); n != nil && !seen[n] {
			seen[n] = true
			list = append(list, n)
		}
	}
	d.readers[v] = list
	return list
}

// within returns the node of graph g that is n or holds n in one of its bodies, or nil.
func (d *dataflow) within(n *onnx.Node, g *onnx.Graph) *onnx.Node {
	if n.Graph == g {
		return n
	}
	return d.owner[n.Graph]
}

// Owner returns the node of this graph that holds a nested graph, nil for other graphs.
func (g *View) Owner(nested *onnx.Graph) *onnx.Node { return g.flow().owner[nested] }

// IsNeeded reports whether an output of the graph depends on the elements of v, not only on its shape.
func (g *View) IsNeeded(v *onnx.Value) bool {
	d := g.flow()
	if d.needed == nil {
		d.needed = map[*onnx.Value]bool{}
		for i := len(g.Graph.Nodes) - 1; i >= 0; i-- {
			n := g.Graph.Nodes[i]
			needed := slices.ContainsFunc(n.Outputs,
				func(v *onnx.Value) bool { return v != nil && (v.IsOutput() || d.needed[v]) })
			if !needed || n.Is("Shape") || n.Is("Size") {
				continue
			}
			for _, in := range g.Operands(n) {
				d.needed[in] = true
			}
		}
	}
	return v.IsOutput() || d.needed[v]
}
