package infer

import (
	"testing"

	"github.com/mojo-patch/mojo-patch/onnx"
)

// TestSolve checks that dimensions under different names become equal if an op requires it. Each case makes a value
// that meets a mismatch, with the expected shape after it is solved.
func TestSolve(t *testing.T) {
	for _, c := range []struct {
		name string
		make func(b *builder, x value) value
		want string
	}{
		{"two names", func(b *builder, x value) value {
			return b.Op("Add", x, b.input("y", onnx.Float, "n m 8"))
		}, "float32[2 3 8][5 11 8]"},
		{"unnamed dimensions", func(b *builder, x value) value {
			return b.Op("Add", x, b.input("y", onnx.Float, "? ? 8"))
		}, "float32[2 3 8][5 11 8]"},
		{"the sum of two", func(b *builder, x value) value {
			past := b.input("past", onnx.Float, "batch past 8")
			total := b.input("mask", onnx.Float, "batch total")
			all := b.Op("Concat", past, x, onnx.IntAttr("axis", 1))
			return b.Op("Add", b.Op("ReduceSum", all, b.Ints(2), onnx.IntAttr("keepdims", 0)), total)
		}, "float32[2 8][5 24]"},
		{"a summand", func(b *builder, x value) value {
			k := b.Op("Concat", b.input("k", onnx.Float, "batch p 8"), x, onnx.IntAttr("axis", 1))
			v := b.Op("Concat", b.input("v", onnx.Float, "batch q 8"), x, onnx.IntAttr("axis", 1))
			return b.Op("Add", k, v)
		}, "float32[2 8 8][5 24 8]"},
		{"a sum that is named otherwise", func(b *builder, x value) value {
			past := b.input("past", onnx.Float, "batch past 8")
			total := b.input("mask", onnx.Float, "batch past_+_1")
			all := b.Op("Concat", past, x, onnx.IntAttr("axis", 1))
			return b.Op("Add", b.Op("ReduceSum", all, b.Ints(2), onnx.IntAttr("keepdims", 0)), total)
		}, "float32[2 8][5 24]"},
		{"a difference", func(b *builder, x value) value {
			past := b.input("past", onnx.Float, "batch past 8")
			mask := b.input("mask", onnx.Float, "batch total 8")
			seq := b.Op("Gather", b.Op("Shape", x), b.Ints(1))
			head := b.Op("Slice", mask, b.Ints(0), b.Op("Neg", seq), b.Ints(1))
			b.Op("Add", head, past)
			return past
		}, "float32[2 4 8][5 6 8]"},
		{"flattened", func(b *builder, x value) value {
			flat := b.Op("Reshape", b.input("y", onnx.Float, "n seq 8"), b.Ints(-1, 8))
			return b.Op("Add", b.Op("Reshape", x, b.Ints(-1, 8)), flat)
		}, "float32[6 8][55 8]"},
		{"more by a constant", func(b *builder, x value) value {
			one := b.Op("Concat", b.input("y", onnx.Float, "batch n 8"),
				b.Op("Slice", x, b.Ints(0), b.Ints(1), b.Ints(1)), onnx.IntAttr("axis", 1))
			return b.Op("Add", x, one)
		}, "float32[2 3 8][5 11 8]"},
		{"divided in one world by chance", func(b *builder, x value) value {
			s := b.Op("Gather", b.Op("Shape", b.input("ids", onnx.Int64, "n m")), b.Ints(0))
			y := b.input("y", onnx.Float, "other 15 8")
			return b.Op("Reshape", y, b.Op("Concat", s, b.Ints(-1, 2, 4), onnx.IntAttr("axis", 0)))
		}, "float32[5 15 2 4][13 15 2 4]"},
		{"in a Reshape", func(b *builder, x value) value {
			s := b.Op("Gather", b.Op("Shape", b.input("ids", onnx.Int64, "n m")), b.Ints(1))
			return b.Op("Reshape", x,
				b.Op("Concat", s, b.Ints(4), b.Ints(2), b.Op("Gather", b.Op("Shape", x), b.Ints(0)),
					onnx.IntAttr("axis", 0)))
		}, "float32[3 4 2 2][11 4 2 5]"},
		{"through a chain", func(b *builder, x value) value {
			y, z := b.input("y", onnx.Float, "b s 8"), b.input("z", onnx.Float, "c t 8")
			return b.Op("Add", b.Op("Add", y, z), x)
		}, "float32[2 3 8][5 11 8]"},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := newBuilder(20)
			x := b.input("x", onnx.Float, "batch seq 8")
			v := c.make(b, x)
			wantShapes(t, Analyze(b.Model), v, c.want)
		})
	}
}

// TestOutputNames: an output with the name of an input's dimension determines that dimension.
func TestOutputNames(t *testing.T) {
	b := newBuilder(20)
	x := b.input("x", onnx.Float, "batch seq 8")
	mask := b.input("mask", onnx.Int64, "batch total")
	past := b.input("past", onnx.Float, "batch past 8")
	present := b.Op("Concat", past, x, onnx.IntAttr("axis", 1))
	decl := dims("batch total 8")
	decl.DataType = onnx.Float
	present.SetType(decl)
	b.Output(present)
	f := Analyze(b.Model)
	wantShapes(t, f, present, "float32[2 10 8][5 28 8]")
	wantShapes(t, f, mask, "int64[2 10][5 28]")
}

// TestShortTable: the numbers of three lengths fit a table of 64 positions, of which the last ones are taken.
func TestShortTable(t *testing.T) {
	b := newBuilder(20)
	x := b.input("x", onnx.Float, "batch seq 8")
	mask := b.input("mask", onnx.Float, "batch total 1")
	all := b.Op("Concat", b.input("past", onnx.Float, "batch past 8"), x, onnx.IntAttr("axis", 1))
	from := b.Op("Sub", b.Ints(64), b.Op("Gather", b.Op("Shape", all), b.Ints(1)))
	sum := b.Op("Add", b.Op("Add", all, mask), b.Op("Slice", b.weight(64, 8), from, b.Ints(64), b.Ints(0)))
	f := Analyze(b.Model)
	for w := range Worlds {
		if got, want := f.Size(sum, w, 1), f.Size(x, w, 1)+f.Size(b.Graph.Inputs[2], w, 1); got != want || got < 2 {
			t.Errorf("world %d: %d positions, want %d", w, got, want)
		}
	}
}

// TestContradiction: an unsolvable mismatch makes only one dimension unknown. A length that must be 1 solves nothing.
func TestContradiction(t *testing.T) {
	b := newBuilder(20)
	x := b.input("x", onnx.Float, "batch seq 8")
	past := b.input("past", onnx.Float, "batch past 8")
	all := b.Op("Concat", past, x, onnx.IntAttr("axis", 1))
	one := b.Op("Add", all, b.Op("Concat", past, b.weight(1, 1, 8), onnx.IntAttr("axis", 1)))
	sum := b.Op("Add", x, b.weight(7, 8))
	both := b.Op("Concat", x, b.Op("Concat", x, x, onnx.IntAttr("axis", 1)), onnx.IntAttr("axis", 0))
	other := b.Op("Relu", x)
	f := Analyze(b.Model)
	wantShapes(t, f, sum, "float32[2 -1 8][5 -1 8]")
	wantShapes(t, f, both, "float32[4 -1 8][10 -1 8]")
	wantShapes(t, f, other, "float32[2 3 8][5 11 8]")
	wantShapes(t, f, one, "float32[2 -1 8][5 -1 8]")
	if rank, ok := f.Rank(sum); !ok || rank != 3 {
		t.Error("the rank is known")
	}
	if d, ok := f.Dim(sum, 2); !ok || d != 8 {
		t.Error("the last dimension is known")
	}
}

// TestPositiveDimensions parses the names of dimensions as sums and differences, unless these are not sizes in some
// world: then the dimension is a separate symbol.
func TestPositiveDimensions(t *testing.T) {
	for dim, own := range map[string]bool{"seq_+_2": false, "seq_-_1": false, "seq_-_2": true, "seq_-_8": true,
		"seq_*_1099511627776": true} {
		b := newBuilder(20)
		x, y := b.input("x", onnx.Float, "seq"), b.input("y", onnx.Float, dim)
		f := Analyze(b.Model)
		for w := range Worlds {
			n, of := f.Size(y, w, 0), f.Size(x, w, 0)
			is := map[string]int64{"seq_+_2": of + 2, "seq_-_1": of - 1}[dim]
			if n < 1 || n > 1<<40 || !own && n != is {
				t.Errorf("%s is %d where seq is %d", dim, n, of)
			}
		}
	}
}
