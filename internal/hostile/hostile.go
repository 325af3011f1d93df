// Package hostile builds graphs that are hard to search: chains, ladders, diamonds and near misses of blocks, with any
// number of nodes. The time of every command must stay in proportion to their size.
package hostile

import (
	"slices"

	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/onnx/onnxtest"
)

// Shape is a kind of graph.
type Shape struct {
	Name  string
	build func(b *builder)
}

// Shapes lists all kinds, by name.
func Shapes() []Shape {
	all := slices.Concat(chains, diamonds, ladders, segments, misses, masks, choices, structures, blocks, wide)
	slices.SortFunc(all, func(a, b Shape) int {
		if a.Name < b.Name {
			return -1
		}
		return 1
	})
	return all
}

// Find returns the shape of that name.
func Find(name string) (Shape, bool) {
	all := Shapes()
	i := slices.IndexFunc(all, func(s Shape) bool { return s.Name == name })
	if i < 0 {
		return Shape{}, false
	}
	return all[i], true
}

// Model returns a graph of this kind with about this many nodes.
func (s Shape) Model(nodes int) *onnx.Model {
	b := &builder{Builder: onnxtest.New(20), nodes: nodes, constants: map[float64]*onnx.Value{}}
	s.build(b)
	return b.Model
}

const width = 64 // of rows

type (
	value  = *onnx.Value
	values = []*onnx.Value
)

type builder struct {
	*onnxtest.Builder
	nodes     int
	constants map[float64]value
	weight    uint32
}

// more reports whether this many nodes still fit.
func (b *builder) more(nodes int) bool { return len(b.Graph.Nodes)+nodes <= b.nodes }

// rows adds an input of rows.
func (b *builder) rows() value { return b.Input("x", onnx.Float, "batch", "seq", width) }

// number returns a constant that all nodes share.
func (b *builder) number(x float64) value {
	if b.constants[x] == nil {
		b.constants[x] = b.Floats([]int64{}, float32(x))
	}
	return b.constants[x]
}

// matrix returns a new constant with unique numbers.
func (b *builder) matrix(dims ...int64) value {
	size := int64(1)
	for _, d := range dims {
		size *= d
	}
	list := make([]float32, size)
	for i := range list {
		b.weight = b.weight*1664525 + 1013904223
		list[i] = float32(b.weight>>8)/(1<<24) - 0.5
	}
	return b.Floats(dims, list...)
}

// product multiplies x with a matrix.
func (b *builder) product(x value, in, out int64) value { return b.Op("MatMul", x, b.matrix(in, out)) }

// chain repeats step, which adds this many nodes to its input, while nodes fit. It begins with a product: some searches
// ignore values that are not computed from one.
func chain(name string, nodes int, step func(b *builder, x value, i int) value) Shape {
	return Shape{name, func(b *builder) {
		x := b.product(b.rows(), width, width)
		for i := 0; b.more(nodes) || i == 0; i++ {
			x = step(b, x, i)
		}
		b.Output(x)
	}}
}

// parallel repeats step on one input; the results are summed at the end.
func parallel(name string, nodes int, step func(b *builder, x value, i int) value) Shape {
	return Shape{name, func(b *builder) {
		x := b.product(b.rows(), width, width)
		var list values
		for i := 0; b.more(nodes+1) || i == 0; i++ {
			list = append(list, step(b, x, i))
		}
		b.Output(b.Op("Sum", list))
	}}
}

// unary is a chain of a one-input op.
func unary(op string, attrs ...*onnx.Attribute) Shape {
	return chain("chain-"+op, 1, func(b *builder, x value, _ int) value { return b.Op(op, x, attrs) })
}

func must[T any](x T, err error) T {
	if err != nil {
		panic(err)
	}
	return x
}
