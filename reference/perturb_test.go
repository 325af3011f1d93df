package reference

import (
	"math"
	"slices"
	"testing"

	"github.com/mojo-patch/mojo-patch/onnx"
)

// TestPerturb evaluates nodes with different roundings, which are the same each time for a seed.
func TestPerturb(t *testing.T) {
	n := 5000
	ones, third := make([]float64, n), make([]float64, n)
	for i := range n {
		ones[i], third[i] = 1, float64(float32(1)/3)
	}
	row, column := NewFloats(onnx.Float, []int{1, n}, third), NewFloats(onnx.Float, []int{n, 1}, ones)
	wide := NewFloats(onnx.Double, []int{1, n}, third)
	evaluate := func(op string, seed uint64, in ...*Tensor) []float64 {
		t.Helper()
		g := onnx.New(10, 20).Graph
		n := g.AddNode(op, nil, []*onnx.Value{g.NewValue("y")})
		out, err := NewForOpset(20, nil, Options{Perturb: seed}).Op(n, in)
		if err != nil {
			t.Fatal(err)
		}
		return out[0].F
	}
	unit := math.Ldexp(1, -23)
	for _, c := range []struct {
		op          string
		in          []*Tensor
		least, most float64 // relative
	}{
		{"MatMul", []*Tensor{row, column}, 1e-6, 1e-4}, // one sum of 5,000
		{"Gemm", []*Tensor{row, column}, 1e-6, 1e-4},
		{"ReduceSum", []*Tensor{row}, 1e-6, 1e-4},
		{"Mul", []*Tensor{row, row}, unit / 4, 2 * unit},
		{"Exp", []*Tensor{row}, unit / 4, 2 * unit},
		{"Exp", []*Tensor{wide}, 1e-17, 1e-15},
	} {
		want, a, b := evaluate(c.op, 0, c.in...), evaluate(c.op, 1, c.in...), evaluate(c.op, 1, c.in...)
		if !slices.Equal(a, b) {
			t.Errorf("%s: one seed gives two results", c.op)
		}
		worst := 0.0
		for i, x := range want {
			worst = max(worst, math.Abs(a[i]-x)/math.Abs(x))
		}
		if worst < c.least || worst > c.most {
			t.Errorf("%s of %s is moved by %g", c.op, c.in[0].DataType, worst)
		}
	}
	// both ways, and differently with another seed
	want, a, b := evaluate("Mul", 0, row, row), evaluate("Mul", 1, row, row), evaluate("Mul", 2, row, row)
	up := 0
	for i, x := range a {
		if x > want[i] {
			up++
		}
	}
	if up < n/3 || up > 2*n/3 || slices.Equal(a, b) {
		t.Errorf("%d of %d went up", up, n)
	}
	if x := evaluate("Sub", 1, row, row); slices.Max(x) != 0 || slices.Min(x) != 0 {
		t.Error("a zero was moved")
	}
	for _, c := range []struct {
		t    onnx.DataType
		unit float64
	}{{onnx.Float16, 0x1p-10}, {onnx.BFloat16, 0x1p-7}} {
		x := NewFloats(c.t, []int{1}, []float64{1.5})
		y := evaluate("Sqrt", 1, x)[0]
		if off := math.Abs(y - math.Sqrt(1.5)); off < c.unit/2 || off > 2*c.unit {
			t.Errorf("%s: the root of 1.5 became %g", c.t, y)
		}
	}
	// ops that move elements do not round, and neither do others if their results are exact
	if x := evaluate("Identity", 1, row); !slices.Equal(x, third) {
		t.Error("Identity moved numbers")
	}
	for _, op := range []string{"Add", "Mul", "Div", "Sub"} {
		if x := evaluate(op, 1, column, column); !slices.Equal(x, evaluate(op, 0, column, column)) {
			t.Errorf("%s moved whole numbers", op)
		}
	}
}

// TestPerturbLazy multiplies with a matrix that is read piece by piece.
func TestPerturbLazy(t *testing.T) {
	const k, columns = 3000, 5
	v := make([]float64, k*columns)
	for i := range v {
		v[i] = float64(float32(1) / float32(i%7+3))
	}
	dense := NewFloats(onnx.Float, []int{k, columns}, v)
	lazy, err := NewLazy(onnx.Float, []int{k, columns}, func(dst []float64, at int) error {
		copy(dst, v[at:])
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	x := NewFloats(onnx.Float, []int{1, k}, v[:k])
	g := onnx.New(10, 20).Graph
	n := g.AddNode("MatMul", nil, []*onnx.Value{g.NewValue("y")})
	e := NewForOpset(20, nil, Options{Perturb: 1})
	a, err := e.Op(n, []*Tensor{x, dense})
	if err != nil {
		t.Fatal(err)
	}
	b, err := e.Op(n, []*Tensor{x, lazy})
	if err != nil || !slices.Equal(a[0].F, b[0].F) {
		t.Errorf("%v in the place of %v, %v", b, a[0].F, err)
	}
}
