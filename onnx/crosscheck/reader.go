package crosscheck

import (
	"fmt"
	"reflect"

	reader "github.com/owulveryck/onnx-go"
	"gonum.org/v1/gonum/graph"
	"gorgonia.org/tensor"
)

// Reader is the second reader, with its version.
const Reader = "onnx-go v0.5.0"

// decode decodes a prepared model with the second reader. It returns the reader's panics as errors.
func decode(b []byte) (t *topology, err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("it panics: %v", r)
		}
	}()
	built := &builder{}
	model := reader.NewModel(built)
	if err := model.UnmarshalBinary(b); err != nil {
		return nil, err
	}
	if built.err != nil {
		return nil, built.err
	}
	t = &topology{nodes: built.nodes}
	for _, id := range model.Input {
		t.inputs = append(t.inputs, built.values[id].name)
	}
	for _, id := range model.Output {
		t.outputs = append(t.outputs, built.values[id].name)
	}
	return t, nil
}

// builder is the graph that onnx-go fills: for every node of the model it sets the edges from each output to each
// input, and then applies the operation to the outputs.
type builder struct {
	values  []*value
	pending []edge // the edges set since the last operation
	nodes   []node
	err     error
}

// value is a node of that graph. It represents a value of the model.
type value struct {
	id   int64
	name string
}

func (v *value) ID() int64        { return v.id }
func (v *value) SetName(s string) { v.name = s }
func (v *value) GetName() string  { return v.name }

// edge leads from an output to an input; weight is the index of the input.
type edge struct {
	from, to *value
	weight   float64
}

func (e edge) From() graph.Node         { return e.from }
func (e edge) To() graph.Node           { return e.to }
func (e edge) ReversedEdge() graph.Edge { return edge{e.to, e.from, e.weight} }
func (e edge) Weight() float64          { return e.weight }

func (b *builder) NewNode() graph.Node { return &value{id: int64(len(b.values))} }
func (b *builder) AddNode(n graph.Node) {
	b.values = append(b.values, n.(*value))
}

func (b *builder) NewWeightedEdge(from, to graph.Node, weight float64) graph.WeightedEdge {
	return edge{from.(*value), to.(*value), weight}
}
func (b *builder) SetWeightedEdge(e graph.WeightedEdge) { b.pending = append(b.pending, e.(edge)) }

// ApplyOperation turns the edges into a node. The edges arrive output by output, and each output has all inputs.
func (b *builder) ApplyOperation(op reader.Operation, outputs ...graph.Node) error {
	n := node{op: op.Name, attributes: map[string]string{}}
	for name, x := range op.Attributes {
		n.attributes[name] = decodedText(x)
	}
	for _, out := range outputs {
		v := out.(*value)
		n.outputs = append(n.outputs, v.name)
		inputs := make([]string, 0, len(b.pending))
		for len(b.pending) > 0 && b.pending[0].from == v && int(b.pending[0].weight) == len(inputs) {
			inputs = append(inputs, b.pending[0].to.name)
			b.pending = b.pending[1:]
		}
		if len(n.outputs) == 1 {
			n.inputs = inputs
		} else if !reflect.DeepEqual(n.inputs, inputs) && b.err == nil {
			b.err = fmt.Errorf("outputs %q and %q of one %s read different inputs", n.outputs[0], v.name, op.Name)
		}
	}
	if len(b.pending) > 0 && b.err == nil {
		b.err = fmt.Errorf("an edge from %q to %q that belongs to no output of %s", b.pending[0].from.name,
			b.pending[0].to.name, op.Name)
	}
	b.pending = nil
	b.nodes = append(b.nodes, n)
	return nil
}

func decodedText(x any) string {
	t, ok := x.(tensor.Tensor)
	if !ok {
		return text(x)
	}
	data := reflect.ValueOf(t.Data())
	if data.Kind() != reflect.Slice { // of a scalar
		list := reflect.MakeSlice(reflect.SliceOf(data.Type()), 0, 1)
		data = reflect.Append(list, data)
	}
	return tensorText([]int(t.Shape()), data.Interface())
}

// The rest of a gonum graph, which onnx-go never calls.

func (b *builder) Node(id int64) graph.Node                   { return b.values[id] }
func (b *builder) Nodes() graph.Nodes                         { return graph.Empty }
func (b *builder) From(int64) graph.Nodes                     { return graph.Empty }
func (b *builder) To(int64) graph.Nodes                       { return graph.Empty }
func (b *builder) HasEdgeBetween(_, _ int64) bool             { return false }
func (b *builder) HasEdgeFromTo(_, _ int64) bool              { return false }
func (b *builder) Edge(_, _ int64) graph.Edge                 { return nil }
func (b *builder) WeightedEdge(_, _ int64) graph.WeightedEdge { return nil }
func (b *builder) Weight(_, _ int64) (float64, bool)          { return 0, false }
