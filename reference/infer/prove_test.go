package infer

import (
	"testing"

	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/onnx/onnxtest"
)

// sizes makes values that are the same number at all sizes that are tried.
func sizes(b *onnxtest.Builder, x value) (seq, width value) {
	shape := b.Op("Shape", x)
	return b.Op("Gather", shape, 1), b.Op("Gather", shape, 2)
}

// TestConstantsAreProven: numbers that are the same in all worlds are constant only if that follows for all sizes.
func TestConstantsAreProven(t *testing.T) {
	for name, c := range map[string]struct {
		make   func(b *onnxtest.Builder, x value) value
		proven bool
	}{
		"the width": {func(b *onnxtest.Builder, x value) value {
			_, width := sizes(b, x)
			return width
		}, true},
		"heads": {func(b *onnxtest.Builder, x value) value {
			_, width := sizes(b, x)
			return b.Op("Div", width, 16)
		}, true},
		"the root of the width": {func(b *onnxtest.Builder, x value) value {
			_, width := sizes(b, x)
			return b.Op("Sqrt", b.Op("Cast", width, onnx.IntAttr("to", int64(onnx.Float))))
		}, true},
		"seq * 64 / seq": {func(b *onnxtest.Builder, x value) value {
			seq, width := sizes(b, x)
			return b.Op("Div", b.Op("Mul", seq, width), seq)
		}, true},
		"(seq + 1) * 2 - 2*seq": {func(b *onnxtest.Builder, x value) value {
			seq, _ := sizes(b, x)
			return b.Op("Sub", b.Op("Mul", b.Op("Add", seq, 1), 2), b.Op("Mul", 2, seq))
		}, true},
		"the elements of a row": {func(b *onnxtest.Builder, x value) value {
			seq, _ := sizes(b, x)
			rows := b.Op("Mul", b.Op("Gather", b.Op("Shape", x), 0), seq)
			return b.Op("Div", b.Op("Size", x), rows)
		}, true},
		"seq < 0": {func(b *onnxtest.Builder, x value) value {
			seq, _ := sizes(b, x)
			return b.Op("Where", b.Op("Less", seq, 0), 1, 0)
		}, true},
		"ones for -1 of a shape": {func(b *onnxtest.Builder, x value) value {
			shape := b.Op("Shape", x)
			taken := b.Op("Where", b.Op("Equal", shape, b.Ints(-1, -1, -1)), b.Ints(1, 1, 1), shape)
			return b.Op("Gather", taken, 2)
		}, true},
		"seq > 2048": {func(b *onnxtest.Builder, x value) value {
			seq, _ := sizes(b, x)
			return b.Op("Where", b.Op("Greater", seq, 2048), 0.5, 1e-6)
		}, false},
		"max(seq, 2048)": {func(b *onnxtest.Builder, x value) value {
			seq, _ := sizes(b, x)
			return b.Op("Max", seq, 2048)
		}, false},
		"log of a great length": {func(b *onnxtest.Builder, x value) value {
			seq, _ := sizes(b, x)
			length := b.Op("Cast", seq, onnx.IntAttr("to", int64(onnx.Float)))
			return b.Op("Max", b.Op("Div", b.Op("Log", length), 7.6), 1.0)
		}, false},
		"odd lengths": {func(b *onnxtest.Builder, x value) value {
			seq, _ := sizes(b, x)
			return b.Op("Mod", seq, 2)
		}, false},
		"seq / 4096": {func(b *onnxtest.Builder, x value) value {
			seq, _ := sizes(b, x)
			return b.Op("Div", seq, 4096)
		}, false},
		"half of odd lengths": {func(b *onnxtest.Builder, x value) value {
			seq, _ := sizes(b, x)
			half := b.Op("Div", b.Op("Add", seq, 1), 2)
			return b.Op("Sub", b.Op("Mul", half, 2), seq)
		}, false},
		"a clip": {func(b *onnxtest.Builder, x value) value {
			seq, _ := sizes(b, x)
			return b.Op("Clip", seq, 2048, 4096)
		}, false},
		"the sum of a comparison": {func(b *onnxtest.Builder, x value) value {
			seq, _ := sizes(b, x)
			positions := b.Op("Range", 0, seq, 1)
			far := b.Op("Cast", b.Op("Greater", positions, 2048), onnx.IntAttr("to", int64(onnx.Int64)))
			return b.Op("ReduceMax", far, onnx.IntAttr("keepdims", 0))
		}, false},
		"a branch": {func(b *onnxtest.Builder, x value) value {
			seq, _ := sizes(b, x)
			branch := func(n float64) *onnx.Graph {
				g := b.Graph.NewSubgraph("branch")
				s := &onnxtest.Builder{Graph: g}
				s.Output(s.Op("Identity", s.Op("Constant", onnx.TensorAttr("value",
					onnx.NewFloat32s("", []int64{}, []float32{float32(n)})))))
				return g
			}
			return b.Op("If", b.Op("Greater", seq, 2048), onnx.GraphAttr("then_branch", branch(1)),
				onnx.GraphAttr("else_branch", branch(2)))
		}, false},
	} {
		b := onnxtest.New(20)
		x := b.Input("x", onnx.Float, "batch", "seq", 64)
		v := c.make(b, x)
		f := Analyze(b.Model)
		if _, ok := f.Constant(v); ok != c.proven {
			t.Errorf("%s: proven to be constant: %v", name, ok)
		}
		first, ok := f.Known(v, 0)
		for w := range Worlds {
			if other, known := f.Known(v, w); !ok || !known || !equalTensors(first, other) {
				t.Errorf("%s is %v and %v, which tries nothing", name, first, other)
			}
		}
		if f.Loose(v) == c.proven {
			t.Errorf("%s: loose: %v", name, f.Loose(v))
		}
	}
}

// TestShapesAreProven: two lengths that are equal in all worlds may or may not be equal for all sizes.
func TestShapesAreProven(t *testing.T) {
	b := onnxtest.New(20)
	x := b.Input("x", onnx.Float, "batch", "seq", 64)
	seq, _ := sizes(b, x)
	slice := func(to any) value { return b.Op("Slice", x, []int64{0}, to, []int64{1}) }
	first := func(v value) value { return b.Op("Unsqueeze", v, []int64{0}) }
	for name, c := range map[string]struct {
		v      value
		proven bool
	}{
		"all":            {slice(first(seq)), true},
		"to the end":     {slice([]int64{1 << 62}), true},
		"2048 at most":   {slice([]int64{2048}), false},
		"min(seq, 2048)": {slice(first(b.Op("Min", seq, 2048))), false},
		"flattened":      {b.Op("Reshape", b.Op("Reshape", x, []int64{-1, 16}), b.Op("Shape", x)), true},
		"padded and cut": {b.Op("Slice", b.Op("Pad", x, []int64{0, 0, 0, 0, 5, 0}), []int64{0}, first(seq),
			[]int64{1}), true},
		"without the last": {b.Op("Concat", b.Op("Slice", x, []int64{0}, []int64{-1}, []int64{1}),
			b.Op("Slice", x, []int64{-1}, []int64{1 << 62}, []int64{1}), onnx.IntAttr("axis", 1)), true},
		"rows of a product": {b.Op("MatMul", x, b.Floats([]int64{64, 64}, make([]float32, 64*64)...)), true},
	} {
		t.Run(name, func(t *testing.T) {
			if f := Analyze(b.Model); f.SameShape(c.v, x) != c.proven {
				t.Errorf("proven to have the shape of x: %v", !c.proven)
			}
		})
	}
}

// TestBroadcastsAreNoProof: an Add also runs on unequal sizes if one is 1; a Concat does not.
func TestBroadcastsAreNoProof(t *testing.T) {
	b := onnxtest.New(20)
	x, y := b.Input("x", onnx.Float, "batch", 8), b.Input("y", onnx.Float, "rows", 8)
	z := b.Input("z", onnx.Float, "others", 8)
	sum := b.Op("Add", x, y)
	b.Op("Concat", x, z, onnx.IntAttr("axis", 1))
	f := Analyze(b.Model)
	for w := range Worlds {
		if f.Size(x, w, 0) != f.Size(y, w, 0) || f.Size(x, w, 0) != f.Size(z, w, 0) {
			t.Fatalf("world %d has other numbers of rows", w)
		}
	}
	if f.SameShape(x, y) || f.SameShape(sum, x) {
		t.Error("operands of an Add are taken for one shape")
	}
	if !f.SameShape(x, z) {
		t.Error("operands of a Concat are not taken for one height")
	}
}
