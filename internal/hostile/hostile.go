// Package hostile builds graphs that are hard to search: chains, ladders, diamonds and near misses of blocks, of any
// number of nodes. No command may take longer for them than their size warrants.
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

// Model returns a graph of this kind with about so many nodes.
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

// more reports whether so many nodes have room.
func (b *builder) more(nodes int) bool { return len(b.Graph.Nodes)+nodes <= b.nodes }

// rows is an input of rows.
func (b *builder) rows() value { return b.Input("x", onnx.Float, "batch", "seq", width) }

// number is a constant that all nodes share.
func (b *builder) number(x float64) value {
	if b.constants[x] == nil {
		b.constants[x] = b.Floats([]int64{}, float32(x))
	}
	return b.constants[x]
}

// matrix is a constant of numbers that no other one has.
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

// chain has the result of step, which adds so many nodes, go into the next one, while there is room. It begins with a
// product: what is computed from none is no data to some.
func chain(name string, nodes int, step func(b *builder, x value, i int) value) Shape {
	return Shape{name, func(b *builder) {
		x := b.product(b.rows(), width, width)
		for i := 0; b.more(nodes) || i == 0; i++ {
			x = step(b, x, i)
		}
		b.Output(x)
	}}
}

// parallel has step read one input again and again; the results are added up in the end.
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

// unary is a chain of an op of one input.
func unary(op string, attrs ...*onnx.Attribute) Shape {
	return chain("chain-"+op, 1, func(b *builder, x value, _ int) value { return b.Op(op, x, attrs) })
}

func must[T any](x T, err error) T {
	if err != nil {
		panic(err)
	}
	return x
}
