package attacks_test

import (
	"testing"

	"github.com/mojo-patch/mojo-patch/onnx"
)

// shaped are inputs of such shapes, where the model calls the dimensions by the names of others.
func shaped(shapes map[string][]int) trial { return trial{shapes: shapes} }

// shapeAttacks are blocks whose scale or tables have other sizes than declared or left open.
var shapeAttacks = []attack{
	{name: "a scale of one element", at: shaped(map[string][]int{"w": {1}}), write: func(b *maker) {
		x, w := b.input("x", "batch", "seq", "d"), b.input("w", "d")
		mean := b.Op("ReduceMean", b.Op("Mul", x, x), []int64{-1}, onnx.IntAttr("keepdims", 1))
		b.Output(b.Op("Mul", b.Op("Div", x, b.Op("Sqrt", b.Op("Add", mean, b.number(1e-6)))), w))
	}, unlike: true},
	{name: "a scale for each batch", at: shaped(map[string][]int{"w": {1, 1, width}}), write: func(b *maker) {
		x, w := b.rows("x"), b.input("w", "batch", 1, width)
		mean := b.Op("ReduceMean", b.Op("Mul", x, x), []int64{-1}, onnx.IntAttr("keepdims", 1))
		b.Output(b.Op("Mul", b.Op("Div", x, b.Op("Sqrt", b.Op("Add", mean, b.number(1e-6)))), w))
	}},
	{name: "tables of one batch", at: shaped(map[string][]int{"c": {1, 1, 3, 8}, "s": {1, 1, 3, 8}}),
		write: func(b *maker) {
			x := b.input("x", "batch", 2, "seq", 8)
			b.Output(b.rotate(x, b.input("c", "batch", 1, "seq", 8), b.input("s", "batch", 1, "seq", 8), 8))
		}},
	{name: "tables of other positions", at: shaped(map[string][]int{"x": {2, 2, 1, 8}, "c": {3, 8}, "s": {3, 8}}),
		write: func(b *maker) {
			x := b.input("x", "batch", 2, -1, 8)
			b.Output(b.rotate(x, b.input("c", -1, 8), b.input("s", -1, 8), 8))
		}, unlike: true},
}

func TestShapes(t *testing.T) {
	for _, a := range shapeAttacks {
		t.Run(a.name, a.run)
	}
}
