package infer

import (
	"testing"

	"github.com/mojo-patch/mojo-patch/onnx"
)

// TestSolve checks that dimensions under different names become equal where an op demands it. Each case makes a value
// that meets a mismatch, and says what shape it has when that is mended.
func TestSolve(t *testing.T) {
	for _, c := range []struct {
		name string
		make func(b *builder, x *onnx.Value) *onnx.Value
		want string
	}{
		{"two names", func(b *builder, x *onnx.Value) *onnx.Value {
			return b.op("Add", in(x, b.input("y", onnx.Float, "n m 8")))
		}, "float32[2 3 8][5 11 8]"},
		{"unnamed dimensions", func(b *builder, x *onnx.Value) *onnx.Value {
			return b.op("Add", in(x, b.input("y", onnx.Float, "? ? 8")))
		}, "float32[2 3 8][5 11 8]"},
		{"the sum of two", func(b *builder, x *onnx.Value) *onnx.Value {
			past := b.input("past", onnx.Float, "batch past 8")
			total := b.input("mask", onnx.Float, "batch total")
			all := b.op("Concat", in(past, x), onnx.IntAttr("axis", 1))
			return b.op("Add", in(b.op("ReduceSum", in(all, b.ints(2)), onnx.IntAttr("keepdims", 0)), total))
		}, "float32[2 8][5 24]"},
		{"a summand", func(b *builder, x *onnx.Value) *onnx.Value {
			k := b.op("Concat", in(b.input("k", onnx.Float, "batch p 8"), x), onnx.IntAttr("axis", 1))
			v := b.op("Concat", in(b.input("v", onnx.Float, "batch q 8"), x), onnx.IntAttr("axis", 1))
			return b.op("Add", in(k, v))
		}, "float32[2 8 8][5 24 8]"},
		{"a difference", func(b *builder, x *onnx.Value) *onnx.Value {
			past := b.input("past", onnx.Float, "batch past 8")
			mask := b.input("mask", onnx.Float, "batch total 8")
			seq := b.op("Gather", in(b.op("Shape", in(x)), b.ints(1)))
			head := b.op("Slice", in(mask, b.ints(0), b.op("Neg", in(seq)), b.ints(1)))
			b.op("Add", in(head, past))
			return past
		}, "float32[2 4 8][5 6 8]"},
		{"flattened", func(b *builder, x *onnx.Value) *onnx.Value {
			flat := b.op("Reshape", in(b.input("y", onnx.Float, "n seq 8"), b.ints(-1, 8)))
			return b.op("Add", in(b.op("Reshape", in(x, b.ints(-1, 8))), flat))
		}, "float32[6 8][55 8]"},
		{"more by a constant", func(b *builder, x *onnx.Value) *onnx.Value {
			one := b.op("Concat", in(b.input("y", onnx.Float, "batch n 8"), b.op("Slice", in(x, b.ints(0), b.ints(1), b.ints(1)))), onnx.IntAttr("axis", 1))
			return b.op("Add", in(x, one))
		}, "float32[2 3 8][5 11 8]"},
		{"in a Reshape", func(b *builder, x *onnx.Value) *onnx.Value {
			s := b.op("Gather", in(b.op("Shape", in(b.input("ids", onnx.Int64, "n m"))), b.ints(1)))
			return b.op("Reshape", in(x, b.op("Concat", in(s, b.ints(4), b.ints(2), b.op("Gather", in(b.op("Shape", in(x)), b.ints(0)))), onnx.IntAttr("axis", 0))))
		}, "float32[3 4 2 2][11 4 2 5]"},
		{"through a chain", func(b *builder, x *onnx.Value) *onnx.Value {
			y, z := b.input("y", onnx.Float, "b s 8"), b.input("z", onnx.Float, "c t 8")
			return b.op("Add", in(b.op("Add", in(y, z)), x))
		}, "float32[2 3 8][5 11 8]"},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := newBuilder(20)
			x := b.input("x", onnx.Float, "batch seq 8")
			v := c.make(b, x)
			wantShapes(t, Analyze(b.m), v, c.want)
		})
	}
}

// TestOutputNames: an output that bears the name of an input's dimension tells what that dimension is.
func TestOutputNames(t *testing.T) {
	b := newBuilder(20)
	x := b.input("x", onnx.Float, "batch seq 8")
	mask := b.input("mask", onnx.Int64, "batch total")
	past := b.input("past", onnx.Float, "batch past 8")
	present := b.op("Concat", in(past, x), onnx.IntAttr("axis", 1))
	decl := dims("batch total 8")
	decl.DataType = onnx.Float
	present.SetType(decl)
	b.g.AddOutput(present)
	f := Analyze(b.m)
	wantShapes(t, f, present, "float32[2 10 8][5 28 8]")
	wantShapes(t, f, mask, "int64[2 10][5 28]")
}

// TestContradiction: what cannot be mended makes a dimension unknown, and nothing else.
func TestContradiction(t *testing.T) {
	b := newBuilder(20)
	x := b.input("x", onnx.Float, "batch seq 8")
	sum := b.op("Add", in(x, b.weight(7, 8)))
	both := b.op("Concat", in(x, b.op("Concat", in(x, x), onnx.IntAttr("axis", 1))), onnx.IntAttr("axis", 0))
	other := b.op("Relu", in(x))
	f := Analyze(b.m)
	wantShapes(t, f, sum, "float32[2 -1 8][5 -1 8]")
	wantShapes(t, f, both, "float32[4 -1 8][10 -1 8]")
	wantShapes(t, f, other, "float32[2 3 8][5 11 8]")
	if rank, ok := f.Rank(sum); !ok || rank != 3 {
		t.Error("the rank is known")
	}
	if d, ok := f.Dim(sum, 2); !ok || d != 8 {
		t.Error("the last dimension is known")
	}
}
