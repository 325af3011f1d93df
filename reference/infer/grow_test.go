package infer

import (
	"testing"

	"github.com/mojo-patch/mojo-patch/onnx"
)

// TestGrow makes images and sounds large enough for their windows.
func TestGrow(t *testing.T) {
	conv := func(b *builder, x value, channels, out, stride, kernel int64, sides int) value {
		shape, strides := []int64{out, channels}, []int64{}
		for range sides {
			shape, strides = append(shape, kernel), append(strides, stride)
		}
		return b.Op("Conv", x, b.weight(shape...), onnx.IntsAttr("strides", strides))
	}
	for _, c := range []struct {
		name string
		make func(b *builder) value
		want string
	}{
		{"patches", func(b *builder) value {
			return conv(b, b.input("pixels", onnx.Float, "batch 3 height width"), 3, 8, 14, 14, 2)
		}, "float32[2 8 3 5][5 8 11 13]"},
		{"patches of a side without a name", func(b *builder) value {
			return conv(b, b.input("pixels", onnx.Float, "1 3 ? ?"), 3, 8, 16, 16, 2)
		}, "float32[1 8 3 5][1 8 11 13]"},
		{"windows behind each other", func(b *builder) value {
			x := b.input("samples", onnx.Float, "batch samples")
			x = b.Op("Unsqueeze", x, []int64{1})
			x = conv(b, x, 1, 4, 5, 10, 1)
			for range 3 {
				x = conv(b, x, 4, 4, 2, 3, 1)
			}
			return x
		}, "float32[2 4 2][5 4 10]"},
		{"a number of patches that is computed", func(b *builder) value {
			x := b.input("pixels", onnx.Float, "batch 3 height width")
			sides := b.Op("Div", b.Op("Slice", b.Op("Shape", x), []int64{2}, []int64{3}), []int64{16})
			width := b.Op("Slice", b.Op("Shape", x), []int64{3}, []int64{4})
			shape := b.Op("Concat", []int64{-1, 3}, sides, []int64{16}, width, onnx.IntAttr("axis", 0))
			return b.Op("Reshape", x, shape)
		}, "float32[2 3 3 16 5][5 3 11 16 13]"},
		{"blocks that all have tokens", func(b *builder) value {
			return blocks(b)
		}, "float32[2 10 2 4][5 8 2 4]"},
		{"windows that fit", func(b *builder) value {
			return conv(b, b.input("x", onnx.Float, "batch 4 seq"), 4, 4, 1, 2, 1)
		}, "float32[2 4 2][5 4 10]"},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := newBuilder(18)
			v := c.make(b)
			wantShapes(t, Analyze(b.Model), v, c.want)
		})
	}
}

// blocks multiplies three blocks of 4 tokens, of which only the last may be shorter, by tables.
func blocks(b *builder) value {
	x := b.input("x", onnx.Float, "batch seq 8")
	n := b.Op("Slice", b.Op("Shape", x), []int64{1}, []int64{2})
	last := b.Op("Slice", b.weight(4, 1), []int64{0}, b.Op("Sub", n, []int64{8}), []int64{0})
	all := []any{}
	for i, table := range []value{b.weight(4, 1), b.weight(4, 1), last} {
		block := b.Op("Slice", x, []int64{int64(4 * i)}, []int64{int64(4*i + 4)}, []int64{1})
		all = append(all, b.Op("Mul", block, table))
	}
	shape := b.Op("Concat", []int64{0}, n, []int64{2, 4}, onnx.IntAttr("axis", 0))
	return b.Op("Reshape", b.Op("Concat", append(all, onnx.IntAttr("axis", 1))...), shape)
}
