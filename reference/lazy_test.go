package reference

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/reference/internal/tensor"
)

// both returns the same random elements as a dense tensor and as a lazy one.
func both(t *testing.T, r *rand.Rand, shape ...int) (eager, lazy *Tensor) {
	t.Helper()
	v := make([]float64, tensor.Size(shape))
	for i := range v {
		v[i] = float64(float32(r.NormFloat64()))
	}
	eager = NewFloats(onnx.Float, shape, v)
	lazy, err := NewLazy(onnx.Float, shape, func(dst []float64, offset int) error {
		copy(dst, v[offset:offset+len(dst)])
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return eager, lazy
}

// TestLazyOps runs random chains of the ops that take lazy tensors on dense and on lazy ones.
func TestLazyOps(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	ints := func(v ...int64) *Tensor { return tensor.Vector(v) }
	for round := range 400 {
		eager, lazy := both(t, r, 1+r.IntN(4), 2*(1+r.IntN(3)), 1+r.IntN(5))
		var trail []string
		step := func(op string, more []*Tensor, outputs int, attrs ...*onnx.Attribute) {
			e := NewForOpset(18, nil, Options{})
			trail = append(trail, op)
			g := onnx.New(8, 18).Graph
			outs := make([]*onnx.Value, outputs)
			for i := range outs {
				outs[i] = g.NewValue("y")
			}
			n := g.AddNode(op, nil, outs, attrs...)
			want, err := e.Op(n, append([]*Tensor{eager}, more...))
			if err != nil {
				t.Fatalf("%v: %v", trail, err)
			}
			got, err := e.Op(n, append([]*Tensor{lazy}, more...))
			if err != nil {
				t.Fatalf("%v: %v", trail, err)
			}
			k := r.IntN(outputs)
			eager, lazy = want[k], got[k]
			if !lazy.IsLazy() {
				t.Fatalf("%v: the result is not lazy", trail)
			}
			d, err := lazy.Dense()
			if err != nil || !slices.Equal(d.Shape, eager.Shape) || !slices.Equal(lazy.Shape, eager.Shape) ||
				!slices.Equal(d.F, eager.F) {
				t.Fatalf("round %d, %v: %v %v, want %v %v: %v", round, trail, lazy.Shape, d, eager.Shape, eager, err)
			}
		}
		for range 1 + r.IntN(5) {
			rank := eager.Rank()
			axis := 0
			if rank > 0 {
				axis = r.IntN(rank)
			}
			if eager.Len() == 0 || eager.Len() > 1<<12 {
				break
			}
			switch kind := r.IntN(9); {
			case kind == 0:
				step("Unsqueeze", []*Tensor{ints(int64(r.IntN(rank + 1)))}, 1)
			case kind == 1:
				shape := []int64{-1, int64(max(1, eager.Shape[max(0, rank-1):][0]))}
				if r.IntN(2) == 0 {
					shape = []int64{-1}
				}
				step("Reshape", []*Tensor{ints(shape...)}, 1)
			case kind == 2:
				perm := tensor.ToInt64s(r.Perm(rank))
				step("Transpose", nil, 1, onnx.IntsAttr("perm", perm))
			case kind == 3:
				from, by := int64(r.IntN(eager.Shape[axis])), int64(1+r.IntN(2))
				step("Slice", []*Tensor{ints(from), ints(1 << 40), ints(int64(axis)), ints(by)}, 1)
			case kind == 4:
				n := int64(r.IntN(eager.Shape[axis] + 1))
				step("Split", []*Tensor{ints(n, int64(eager.Shape[axis])-n)}, 2, onnx.IntAttr("axis", int64(axis)))
			case kind == 5:
				idx := make([]int64, r.IntN(4))
				for i := range idx {
					idx[i] = int64(r.IntN(eager.Shape[axis]))
				}
				step("Gather", []*Tensor{ints(idx...)}, 1, onnx.IntAttr("axis", int64(axis)))
			case kind == 6:
				idx := make([]int64, 1+r.IntN(4))
				for i := range idx {
					idx[i] = int64(r.IntN(eager.Shape[0]))
				}
				step("GatherND", []*Tensor{NewInts(onnx.Int64, []int{len(idx), 1}, idx)}, 1)
			case kind == 7:
				other := NewFloats(onnx.Float, eager.Shape, slices.Clone(eager.F))
				step("Concat", []*Tensor{other}, 1, onnx.IntAttr("axis", int64(axis)))
			default:
				step("Cast", nil, 1, onnx.IntAttr("to", int64(onnx.Float16)))
				step("Cast", nil, 1, onnx.IntAttr("to", int64(onnx.Float)))
			}
		}
	}
}

// TestLazyProducts compares products with lazy operands, also transposed, on either side.
func TestLazyProducts(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	e := NewForOpset(18, nil, Options{Exact: true})
	run := func(op string, attrs []*onnx.Attribute, in ...*Tensor) *Tensor {
		g := onnx.New(8, 18).Graph
		out, err := e.Op(g.AddNode(op, nil, []*onnx.Value{g.NewValue("y")}, attrs...), in)
		if err != nil {
			t.Fatal(err)
		}
		return out[0]
	}
	near := func(name string, want, got *Tensor) {
		t.Helper()
		if !slices.Equal(want.Shape, got.Shape) {
			t.Fatalf("%s: %v, want %v", name, got.Shape, want.Shape)
		}
		for i, w := range want.F {
			if d := w - got.F[i]; d > 1e-9 || d < -1e-9 {
				t.Fatalf("%s: element %d is %v, want %v", name, i, got.F[i], w)
			}
		}
	}
	for range 60 {
		batch, m, k, n := 1+r.IntN(3), 1+r.IntN(4), 1+r.IntN(300), 1+r.IntN(300)
		x, lx := both(t, r, batch, m, k)
		w, lw := both(t, r, batch, k, n)
		near("right", run("MatMul", nil, x, w), run("MatMul", nil, x, lw))
		near("left", run("MatMul", nil, x, w), run("MatMul", nil, lx, w))
		near("both", run("MatMul", nil, x, w), run("MatMul", nil, lx, lw))
		near("one for all", run("MatMul", nil, x, tensor.Take(w.WithShape([]int{batch * k, n}), []int{k, n}, seq(k*n))),
			run("MatMul", nil, x, tensor.CutLazy(lw, 0, 0, 1, 1).WithShape([]int{k, n})))
		c, lc := both(t, r, batch, n, k)
		near("right, turned", run("MatMul", nil, x, tensor.Transpose(c, []int{0, 2, 1})),
			run("MatMul", nil, x, tensor.Transpose(lc, []int{0, 2, 1})))
		col, _ := both(t, r, batch, k, 1)
		near("a column", run("MatMul", nil, c, col), run("MatMul", nil, lc, col))
		near("a column, turned", run("MatMul", nil, tensor.Transpose(w, []int{0, 2, 1}), col),
			run("MatMul", nil, tensor.Transpose(lw, []int{0, 2, 1}), col))
		a, la := both(t, r, k, m)
		b, lb := both(t, r, n, k)
		bias, lbias := both(t, r, n)
		attrs := []*onnx.Attribute{onnx.IntAttr("transA", 1), onnx.IntAttr("transB", 1), onnx.FloatAttr("alpha", 2)}
		near("Gemm", run("Gemm", attrs, a, b, bias), run("Gemm", attrs, a, lb, lbias))
		near("Gemm, left", run("Gemm", attrs, a, b, bias), run("Gemm", attrs, la, b, bias))
	}
}

func seq(n int) []int {
	v := make([]int, n)
	for i := range v {
		v[i] = i
	}
	return v
}

// TestLazyFromONNX reads stored tensors of all widths, whole and in part, and rejects tensors of other types.
func TestLazyFromONNX(t *testing.T) {
	n := 1<<16 + 10 // LazyFromONNX decodes 1<<16 elements at once
	for _, typ := range []onnx.DataType{onnx.Float, onnx.Double, onnx.Float16, onnx.BFloat16} {
		v := make([]float64, n)
		for i := range v {
			v[i] = float64(i%100) / 4
		}
		stored, err := NewFloats(typ, []int{n / 2, 2}, v).ToONNX("w")
		if err != nil {
			t.Fatal(err)
		}
		x, err := LazyFromONNX(stored)
		if err != nil || !x.IsLazy() {
			t.Fatalf("%s: %v, %v", typ, x, err)
		}
		d, err := x.Dense()
		if err != nil || !slices.Equal(d.F, v) {
			t.Errorf("%s: the elements differ: %v", typ, err)
		}
		last := tensor.CutLazy(tensor.CutLazy(x, 0, n/2-1, 1, 1), 1, 1, 1, 1)
		if d, err = last.Dense(); err != nil || d.F[0] != v[n-1] {
			t.Errorf("%s: the last element is %v: %v", typ, d, err)
		}
	}
	if _, err := NewLazy(onnx.Int64, []int{2}, nil); err == nil {
		t.Error("a lazy tensor of integers was made")
	}
	if _, err := NewLazy(onnx.Float, []int{-2}, nil); err == nil {
		t.Error("a lazy tensor of a negative size was made")
	}
}

// TestEvalFor keeps only the requested values, and notices overflows, but not intended infinities.
func TestEvalFor(t *testing.T) {
	for _, c := range []struct {
		x, other float64
		overflow bool
	}{{3, 4, false}, {3e38, 4, true}, {3, math.Inf(-1), false}} {
		g := onnx.New(8, 18).Graph
		x := g.AddInput("x", onnx.Type{})
		op := func(name string, in ...*onnx.Value) *onnx.Value {
			v := g.NewValue(name)
			g.AddNode(name, in, []*onnx.Value{v})
			return v
		}
		other := g.AddInitializer(onnx.NewFloat32s("other", nil, []float32{float32(c.other)}))
		square := op("Mul", x, x)
		y := op("Max", op("Min", op("Sqrt", square), other), x)
		env := map[*onnx.Value]*Tensor{x: tensor.ScalarF(onnx.Float, c.x)}
		overflow, err := NewForOpset(18, nil, Options{}).EvalFor(g.Nodes, env, []*onnx.Value{y})
		if err != nil || overflow != c.overflow || env[y] == nil || env[square] != nil || len(env) != 2 {
			t.Errorf("%v: overflow %v, %d values, %v", c, overflow, len(env), err)
		}
	}
}

// TestManyLazyElements moves more elements than a dense tensor may have. The weights of one layer's experts have more.
func TestManyLazyElements(t *testing.T) {
	defer func(n int) { tensor.MaxElements = n }(tensor.MaxElements)
	tensor.MaxElements = 100
	eager, lazy := both(t, rand.New(rand.NewPCG(1, 3)), 5, 6, 4)
	e := NewForOpset(18, nil, Options{})
	op := func(name string, inputs []*Tensor, attrs ...*onnx.Attribute) *Tensor {
		t.Helper()
		g := onnx.New(8, 18).Graph
		got, err := e.Op(g.AddNode(name, nil, []*onnx.Value{g.NewValue("y")}, attrs...), inputs)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		return got[0]
	}
	x := op("Reshape", []*Tensor{lazy, tensor.Vector([]int64{5, 2, 3, 4})})
	x = op("Transpose", []*Tensor{x}, onnx.IntsAttr("perm", []int64{0, 2, 1, 3}))
	x = op("Reshape", []*Tensor{x, tensor.Vector([]int64{5, 6, 4})})
	x = op("Concat", []*Tensor{x, lazy}, onnx.IntAttr("axis", 0))
	x = op("Gather", []*Tensor{x, tensor.Vector([]int64{7, 2, 2, 0, 9, 1})}, onnx.IntAttr("axis", 0))
	got := make([]float64, 4)
	if err := x.Read(got, 24+4, 1); err != nil { // row 1 of matrix 2, whose rows alternate between its halves
		t.Fatal(err)
	}
	if want := eager.F[2*24+3*4 : 2*24+4*4]; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	if _, err := x.Dense(); err == nil {
		t.Error("a tensor with too many elements was read as a whole")
	}
}
