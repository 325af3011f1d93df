package streams

import (
	"fmt"
	"maps"

	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/reference/infer"
)

// none means that there is no exponent: for integers and absent values.
const none = -1

// fewElements bounds the constants that may be copied for each reader.
const fewElements = 1 << 14

// builder assigns an exponent to every float value of a model, and adds the equations between them.
type builder struct {
	system
	facts *infer.Facts
	graph *onnx.Graph
	// values holds the exponents of computed values, and of constants with many elements.
	values map[*onnx.Value]int
	// reads holds the exponents of constants, for each reader.
	reads    map[onnx.Use]int
	epsilons []epsilonOf
	// told holds the inputs, and the outputs from -1 down, covered by the law of a node. The others are pinned.
	told  map[int]bool
	pins  map[int]string // why an exponent is 0
	links map[int][]int  // equal exponents
	// widens holds the scales and offsets of quantized weights in float16. All scales and offsets of a node become
	// float32 if one of them loses digits.
	widens map[onnx.Use]bool
}

// epsilonOf is the epsilon of a norm whose input has an exponent.
type epsilonOf struct {
	node  *onnx.Node
	x     int
	value float32
}

func emptyBuilder(g *onnx.Graph, facts *infer.Facts) *builder {
	return &builder{facts: facts, graph: g, values: map[*onnx.Value]int{}, reads: map[onnx.Use]int{},
		told: map[int]bool{}, pins: map[int]string{}, links: map[int][]int{},
		widens: map[onnx.Use]bool{}}
}

// newBuilder assigns exponents to the values of a model. Inputs and outputs have the exponent 0.
func newBuilder(m *onnx.Model) *builder {
	b := emptyBuilder(m.Graph, infer.Analyze(m))
	b.laws()
	for _, v := range m.Graph.Inputs {
		if b.isFloat(v) {
			b.because(b.of(v), fmt.Sprintf("%q is an input of the model", v.Name))
		}
	}
	for _, v := range m.Graph.Outputs {
		if b.isFloat(v) {
			b.because(b.of(v), fmt.Sprintf("%q is an output", v.Name))
		}
	}
	return b
}

// laws adds the equations of all nodes.
func (b *builder) laws() {
	for _, n := range nodes(b.graph) {
		b.told = map[int]bool{}
		b.law(n)
		b.rest(n)
	}
}

// nodes lists the nodes of a graph except Constants, and before each the nodes of its graphs.
func nodes(g *onnx.Graph) (list []*onnx.Node) {
	for _, n := range g.Nodes {
		for _, s := range n.Subgraphs() {
			list = append(list, nodes(s)...)
		}
		if !n.Is("Constant") {
			list = append(list, n)
		}
	}
	return list
}

// rest pins the inputs and outputs that the law of their node does not cover.
func (b *builder) rest(n *onnx.Node) {
	told := maps.Clone(b.told)
	for i := range n.Inputs {
		if x := b.in(n, i); x != none && !told[i] {
			b.pin(x, n)
		}
	}
	for i := range n.Outputs {
		if x := b.out(n, i); x != none && !told[-1-i] {
			b.pin(x, n)
		}
	}
}

func (b *builder) isFloat(v *onnx.Value) bool {
	if t := v.Constant(); t != nil {
		return t.DataType.IsFloat()
	}
	t := b.facts.DataType(v)
	if t == onnx.Undefined {
		declared, _ := v.Type()
		t = declared.DataType
	}
	return t.IsFloat()
}

// of returns the exponent of a value for all readers.
func (b *builder) of(v *onnx.Value) int {
	x, ok := b.values[v]
	if !ok {
		x = b.add(v.Constant() != nil)
		b.values[v] = x
	}
	return x
}

// in returns the exponent of an input of a node. Small constants have one for each reader.
func (b *builder) in(n *onnx.Node, i int) int {
	if v := n.Input(i); v != nil && b.isFloat(v) {
		return b.read(n, i, v)
	}
	return none
}

func (b *builder) read(n *onnx.Node, i int, v *onnx.Value) int {
	t := v.Constant()
	if t == nil {
		b.told[i] = true
		return b.of(v)
	}
	use := onnx.Use{Node: n, Index: i}
	x, ok := b.reads[use]
	if !ok {
		if t.Len() <= fewElements && !v.IsOutput() {
			x = b.add(true)
		} else {
			x = b.of(v)
		}
		b.reads[use] = x
	}
	b.told[i] = true
	return x
}

func (b *builder) out(n *onnx.Node, i int) int {
	v := n.OutputValue(i)
	if v == nil || !b.isFloat(v) {
		return none
	}
	b.told[-1-i] = true
	return b.of(v)
}

func (b *builder) inputs(n *onnx.Node) (list []int) {
	for i := range n.Inputs {
		list = append(list, b.in(n, i))
	}
	return list
}

func (b *builder) outputs(n *onnx.Node) (list []int) {
	for i := range n.Outputs {
		list = append(list, b.out(n, i))
	}
	return list
}

// equate adds the equation that two sums are equal.
func (b *builder) equate(left, right sum) {
	t := sum{}
	for v, factor := range left {
		if v != none {
			t[v] += factor
		}
	}
	for v, factor := range right {
		if v != none {
			t[v] -= factor
		}
	}
	b.system.equate(t)
}

func (b *builder) link(v, w int) {
	b.links[v], b.links[w] = append(b.links[v], w), append(b.links[w], v)
}

// pin keeps an exponent at 0 because of a node.
func (b *builder) pin(v int, n *onnx.Node) {
	b.because(v, fmt.Sprintf("node %q (%s) does not scale", n.Label(), n.OpType))
}

func (b *builder) because(v int, why string) {
	if v == none {
		return
	}
	if b.pins[v] == "" {
		b.pins[v] = why
	}
	b.equate(sum{v: 1}, nil)
}

// why returns the closest reason why an exponent is 0.
func (b *builder) why(v int) string {
	seen, queue := map[int]bool{v: true}, []int{v}
	for len(queue) > 0 {
		v, queue = queue[0], queue[1:]
		if b.pins[v] != "" {
			return b.pins[v]
		}
		for _, w := range b.links[v] {
			if !seen[w] {
				seen[w] = true
				queue = append(queue, w)
			}
		}
	}
	return "its inputs or its readers do not scale"
}
