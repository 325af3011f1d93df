package infer

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/mojo-patch/mojo-patch/internal/cputime"
	"github.com/mojo-patch/mojo-patch/onnx"
)

func TestInputDims(t *testing.T) {
	b := newBuilder(20)
	a := b.input("a", onnx.Int64, "batch seq")
	c := b.input("c", onnx.Float, "batch ? seq_+_batch 2*seq ?")
	d := b.input("d", onnx.Float, "batch 7")
	n := b.Graph.AddInput("n",
		onnx.Type{DataType: onnx.Float, HasShape: true, Dims: []onnx.Dim{{Value: -1, Param: "64"}}})
	u := b.Graph.AddInput("u", onnx.Type{DataType: onnx.Float16})
	f := Analyze(b.Model)
	wantShapes(t, f, a, "int64[2 3][5 11]")
	wantShapes(t, f, c, "float32[2 5 5 6 7][5 13 16 22 17]")
	wantShapes(t, f, d, "float32[2 7][5 7]")
	wantShapes(t, f, n, "float32[64]") // a number written as a name
	wantShapes(t, f, u, "float16 ?")
	if _, ok := f.Dim(a, 0); ok {
		t.Error("a symbolic dimension is no constant")
	}
	if n, ok := f.Dim(d, -1); !ok || n != 7 {
		t.Errorf("Dim(d, -1) = %d, %v", n, ok)
	}
	if s, ok := f.Shape(a, 2); !ok || s[0] < 500 || s[1] < 500 {
		t.Errorf("world 2 has %v", s)
	}
	if _, ok := f.Shape(u, 0); ok {
		t.Error("the shape of u is not known")
	}
	if f.SameShape(u, u) || !f.SameShape(a, a) || f.SameShape(a, d) {
		t.Error("SameShape")
	}
}

// TestLeads: the first dimensions of two unconnected inputs are not one.
func TestLeads(t *testing.T) {
	b := newBuilder(20)
	x, y := b.input("x", onnx.Float, "batch 8"), b.input("y", onnx.Float, "rows 8")
	if f := Analyze(b.Model); f.SameShape(x, y) {
		t.Errorf("%s and %s are taken for one shape", shapes(f, x), shapes(f, y))
	}
}

func TestNamesThatAreNoExpressions(t *testing.T) {
	for _, name := range []string{"batch-size", "a +", "+ a", "max(a, b)", "a b", "(a", "a - ", "seq"} {
		if e := parseDim(name, func(n string) *symbol { return &symbol{name: n} }); e != nil {
			t.Errorf("%q is read as an expression", name)
		}
	}
}

func TestShapeArithmetic(t *testing.T) {
	b := newBuilder(20)
	x := b.input("x", onnx.Float, "batch seq 64")
	shape := b.Op("Shape", x)
	seq := b.Op("Gather", shape, 1)
	width := b.Op("Gather", shape, -1)
	heads := b.Op("Div", width, 16)
	target := b.Op("Concat", b.Op("Unsqueeze", seq, b.Ints(0)), b.Op("Unsqueeze", heads, b.Ints(0)), b.Ints(16, -1),
		onnx.IntAttr("axis", 0))
	r := b.Op("Reshape", x, target)
	positions := b.Op("Range", 0, seq, 1)
	f := Analyze(b.Model)
	wantInts(t, f, width, 64)
	wantInts(t, f, heads, 4)
	wantShapes(t, f, r, "float32[3 4 16 2][11 4 16 5]")
	wantShapes(t, f, positions, "int64[3][11]")
	if _, ok := f.Constant(seq); ok {
		t.Error("the length is no constant")
	}
	if v, ok := f.Known(seq, 0); !ok || v.I[0] != 3 {
		t.Errorf("the length in world 0 is %v", v)
	}
	if v, ok := f.Known(positions, 1); !ok || v.Len() != 11 {
		t.Errorf("the positions in world 1 are %v", v)
	}
}

func TestLargeConstantsAreNotRead(t *testing.T) {
	b := newBuilder(20)
	small, large := b.weight(1024), b.weight(1025)
	y := b.Op("Tile", small, b.Ints(2))
	f := Analyze(b.Model)
	if _, ok := f.Constant(small); !ok {
		t.Error("1024 elements are known")
	}
	for _, v := range values(large, y) {
		if _, ok := f.Constant(v); ok {
			t.Errorf("%s: more than 1024 elements are known", describe(v))
		}
	}
	wantShapes(t, f, y, "float32[2048]")
}

// TestAbsentWeights analyzes a model whose external data are missing.
func TestAbsentWeights(t *testing.T) {
	b := newBuilder(20)
	x := b.input("x", onnx.Float, "batch 8")
	b.Output(b.Op("MatMul", x, b.weight(8, 4)))
	path := filepath.Join(t.TempDir(), "m.onnx")
	if err := onnx.Write(path, b.Model, onnx.ExternalDataOver(0)); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(path + ".data"); err != nil {
		t.Fatal(err)
	}
	m, err := onnx.Read(path, onnx.AllowMissingData())
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	f := Analyze(m)
	wantShapes(t, f, m.Graph.Outputs[0], "float32[2 4][5 4]")
	if _, ok := f.Constant(m.Graph.Value("weight")); ok {
		t.Error("the elements of w are known")
	}
}

func TestDataDependentLengths(t *testing.T) {
	b := newBuilder(20)
	x := b.input("x", onnx.Bool, "4 4")
	nz := b.Op("NonZero", x)
	n := b.Op("Gather", b.Op("Shape", nz), 1)
	y := b.Op("Expand", b.weight(1), b.Op("Unsqueeze", n, b.Ints(0)))
	known := b.Op("NonZero", b.Ints(0, 3, 0, 5))
	f := Analyze(b.Model)
	if d, ok := f.Dim(nz, 0); !ok || d != 2 {
		t.Error("NonZero has one row a dimension")
	}
	for _, v := range values(nz, y) {
		if _, ok := f.Dim(v, -1); ok {
			t.Errorf("%s: a length that depends on data passes for constant", describe(v))
		}
		if _, ok := f.Shape(v, 0); !ok {
			t.Errorf("%s has no shape", describe(v))
		}
	}
	if _, ok := f.Constant(n); ok {
		t.Error("the length passes for constant")
	}
	wantInts(t, f, known, 1, 3)
}

func TestDeclaredFallback(t *testing.T) {
	b := newBuilder(20)
	x := b.input("x", onnx.Float, "batch seq 8")
	y := b.Op("vendor:Mystery", x)
	y.SetType(onnx.Type{DataType: onnx.Float16, HasShape: true,
		Dims: []onnx.Dim{{Value: -1, Param: "seq"}, {Value: -1}, {Value: 8}}})
	z := b.Op("Relu", y)
	r := b.Op("Relu", x)
	r.SetType(onnx.Type{DataType: onnx.Float, HasShape: true,
		Dims: []onnx.Dim{{Value: -1, Param: "other"}, {Value: -1, Param: "seq"}, {Value: 8}}})
	f := Analyze(b.Model)
	wantShapes(t, f, z, "float16[3 -1 8][11 -1 8]")
	if d, ok := f.Dim(z, 2); !ok || d != 8 {
		t.Error("the declared number is known")
	}
	wantShapes(t, f, r, "float32[2 3 8][5 11 8]") // propagated facts take precedence over a name
	if f.DataType(b.Graph.NewValue("later")) != onnx.Undefined {
		t.Error("a value made later is unknown")
	}
}

// TestLinear analyzes a graph of 100,000 nodes.
func TestLinear(t *testing.T) {
	if testing.Short() {
		t.Skip("long")
	}
	b := newBuilder(17)
	x := b.input("x", onnx.Float, "batch seq 64")
	two, eps, axes := b.weight(1), b.weight(1), b.Ints(-1)
	w, proj := b.weight(64), b.weight(64, 64)
	for len(b.Graph.Nodes) < 100_000 {
		m := b.Op("ReduceMean", b.Op("Pow", x, two), axes)
		n := b.Op("Mul", w, b.Op("Mul", x, b.Op("Div", two, b.Op("Sqrt", b.Op("Add", m, eps)))))
		s := b.Op("Shape", n)
		batch, seq := b.Op("Gather", s, 0), b.Op("Gather", s, 1)
		target := b.Op("Concat", b.Op("Unsqueeze", batch, b.Ints(0)), b.Op("Unsqueeze", seq, b.Ints(0)), b.Ints(4, 16),
			onnx.IntAttr("axis", 0))
		q := b.Op("Transpose", b.Op("Reshape", b.Op("MatMul", n, proj), target),
			onnx.IntsAttr("perm", []int64{0, 2, 1, 3}))
		half := b.Op("Slice", q, b.Ints(8), b.Ints(1<<62), b.Ints(3))
		rot := b.Op("Concat", b.Op("Neg", half), b.Op("Slice", q, b.Ints(0), b.Ints(8), b.Ints(3)),
			onnx.IntAttr("axis", -1))
		back := b.Op("Reshape", b.Op("Transpose", b.Op("Add", q, rot), onnx.IntsAttr("perm", []int64{0, 2, 1, 3})), s)
		x = b.Op("Add", x, back)
	}
	start := cputime.Used()
	f := Analyze(b.Model)
	took := cputime.Used() - start
	wantShapes(t, f, x, "float32[2 3 64][5 11 64]")
	t.Logf("%d nodes in %v", len(b.Graph.Nodes), took)
	if took > 10*time.Second {
		t.Error("that is not linear")
	}
}

func BenchmarkExports(b *testing.B) {
	for _, path := range exports(b) {
		m, err := onnx.Read(path, onnx.AllowMissingData())
		if err != nil {
			b.Fatal(err)
		}
		b.Run(fmt.Sprintf("%s/%d", filepath.Base(path), len(m.Graph.Nodes)), func(b *testing.B) {
			for b.Loop() {
				Analyze(m)
			}
		})
		m.Close()
	}
}

// TestAnalyzeTokens: the sizes of batches and sequences are the requested ones.
func TestAnalyzeTokens(t *testing.T) {
	m := onnx.New(8, 18)
	dims := []onnx.Dim{{Value: -1, Param: "batch"}, {Value: -1, Param: "sequence"}, {Value: 8}}
	x := m.Graph.AddInput("x", onnx.Type{DataType: onnx.Float, HasShape: true, Dims: dims})
	y := m.Graph.NewValue("y")
	m.Graph.AddNode("Reshape", []*onnx.Value{x, m.Graph.AddInitializer(onnx.NewInt64s("rows", []int64{-1, 8}))},
		[]*onnx.Value{y})
	m.Graph.AddOutput(y)
	f := AnalyzeTokens(m, [Worlds]int64{1, 2, 70})
	for w, want := range []int64{1, 2, 70} {
		if s, ok := f.Shape(y, w); !ok || s[0] != want || s[1] != 8 {
			t.Errorf("world %d: %v, want %d tokens", w, s, want)
		}
	}
}
