package hostile

import (
	"math"

	"github.com/mojo-patch/mojo-patch/onnx"
)

const half = width / 2

func (b *builder) half(x value, from, to int64) value {
	return b.Op("Slice", x, []int64{from}, []int64{to}, []int64{-1})
}

// ladders split values and join them again.
var ladders = []Shape{
	chain("ladder-Concat-Slice", 3, func(b *builder, x value, _ int) value {
		return b.Op("Concat", b.half(x, half, math.MaxInt64), b.half(x, 0, half), last)
	}),
	chain("ladder-rotate", 4, func(b *builder, x value, _ int) value {
		return b.Op("Concat", b.Op("Neg", b.half(x, half, math.MaxInt64)), b.half(x, 0, half), last)
	}),
	chain("ladder-rotary", 7, func(b *builder, x value, _ int) value {
		r := b.Op("Concat", b.Op("Neg", b.half(x, half, math.MaxInt64)), b.half(x, 0, half), last)
		return b.Op("Add", b.Op("Mul", x, b.few(0, 0)), b.Op("Mul", r, b.few(0, 1)))
	}),
	chain("ladder-Gather", 1, func(b *builder, x value, i int) value {
		if i == 0 {
			list := make([]int64, width)
			for j := range list {
				list[j] = int64((j*7 + 3) % width)
			}
			b.constants[-1] = b.Ints(list...)
		}
		return b.Op("Gather", x, b.constants[-1], last)
	}),
	chain("ladder-Gather-rotary", 5, func(b *builder, x value, i int) value {
		if i == 0 {
			list := make([]int64, width)
			for j := range list {
				list[j] = int64(j ^ 1)
			}
			b.constants[-1] = b.Ints(list...)
			b.constants[-2] = b.matrix(width)
		}
		r := b.Op("Mul", b.Op("Gather", x, b.constants[-1], last), b.constants[-2])
		return b.Op("Add", b.Op("Mul", x, b.constants[-2]), b.Op("Mul", r, b.constants[-2]))
	}),
	chain("ladder-Split-Concat", 2, func(b *builder, x value, _ int) value {
		p := b.Ops(4, "Split", x, last, onnx.IntAttr("num_outputs", 4))
		return b.Op("Concat", p[3], p[1], p[2], p[0], last)
	}),
	chain("ladder-Tile-Slice", 2, func(b *builder, x value, _ int) value {
		return b.half(b.Op("Tile", x, []int64{1, 1, 2}), half, half+width)
	}),
	{"ladder-growing", func(b *builder) { // integers, one more each time
		shape := b.Op("Shape", b.rows())
		list := shape
		for b.more(1) {
			list = b.Op("Concat", list, shape, onnx.IntAttr("axis", 0))
		}
		b.Output(list)
	}},
	{"ladder-doubling", func(b *builder) {
		list := b.Op("Shape", b.rows())
		for b.more(1) {
			list = b.Op("Concat", list, list, onnx.IntAttr("axis", 0))
		}
		b.Output(list)
	}},
	{"ladder-constants", func(b *builder) { // that a reader might fold
		x := b.matrix(width)
		for i := 0; b.more(2); i++ {
			x = b.Op("Mul", b.Op("Add", x, b.number(float64(i%5))), b.number(0.5))
		}
		b.Output(b.Op("Mul", b.rows(), x))
	}},
	{"ladder-constants-wide", func(b *builder) { // sixteen million elements
		x := b.Op("Expand", b.matrix(width), []int64{512, 512, width})
		for i := 0; b.more(2); i++ {
			x = b.Op("Mul", b.Op("Add", x, b.number(float64(i%5))), b.number(0.5))
		}
		b.Output(b.Op("Mul", b.rows(), b.Op("ReduceSum", x, []int64{0, 1})))
	}},
	{"ladder-constants-doubling", func(b *builder) { // larger than any memory
		x := b.matrix(width)
		for b.more(2) {
			x = b.Op("Add", b.Op("Concat", x, x, onnx.IntAttr("axis", 0)), b.number(1))
		}
		b.Output(b.Op("Mul", b.rows(), b.Op("Slice", x, []int64{0}, []int64{width})))
	}},
	{"ladder-constants-used", func(b *builder) { // each reader has a longer path to the constants
		x, c := b.rows(), b.matrix(width)
		for i := 0; b.more(2); i++ {
			c = b.Op("Add", c, b.number(float64(i%5)))
			x = b.Op("Mul", x, c)
		}
		b.Output(x)
	}},
	{"ladder-shapes", func(b *builder) {
		x := b.rows()
		n := b.Op("Gather", b.Op("Shape", x), 1)
		for b.more(3) {
			n = b.Op("Add", b.Op("Mul", n, 2), 1)
		}
		b.Output(b.Op("Reshape", x, b.Op("Concat", b.Op("Unsqueeze", b.Op("Sub", n, n), []int64{0}), []int64{-1, width},
			onnx.IntAttr("axis", 0))))
	}},
	{"ladder-shapes-used", func(b *builder) {
		x := b.rows()
		n := b.Op("Gather", b.Op("Shape", x), 1)
		for b.more(5) {
			n = b.Op("Add", b.Op("Sub", n, 1), 1)
			x = b.Op("Slice", x, []int64{0}, b.Op("Unsqueeze", n, []int64{0}), []int64{1})
		}
		b.Output(x)
	}},
}
