package quantized_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/mojo-patch/mojo-patch/fused"
	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/reference"
	"github.com/mojo-patch/mojo-patch/rewrite"
	"github.com/mojo-patch/mojo-patch/rewrite/applytest"
	"github.com/mojo-patch/mojo-patch/rewrite/prove"
	"github.com/mojo-patch/mojo-patch/rewrite/quantized"
	"github.com/mojo-patch/mojo-patch/rewrite/rewritetest"
)

// projections returns a graph that multiplies one value by weights with these numbers of columns.
func projections(columns ...int64) (*onnx.Model, []*quantized.Weight) {
	const k = 64
	m := onnx.New(10, 20)
	x := m.Graph.AddInput("x",
		onnx.Type{DataType: onnx.Float, HasShape: true, Dims: []onnx.Dim{{Value: 3}, {Value: k}}})
	var list []*quantized.Weight
	for _, n := range columns {
		matrix, floats := rewritetest.Quantized("w", n, k)
		turned := make([]float32, len(floats))
		for i := range n {
			for j := range int64(k) {
				turned[j*n+i] = floats[i*k+j]
			}
		}
		w := m.Graph.AddInitializer(onnx.NewFloat32s("w", []int64{k, n}, turned))
		y := m.Graph.NewValue("y")
		m.Graph.AddNode("MatMul", []*onnx.Value{x, w}, []*onnx.Value{y})
		y.SetType(onnx.Type{DataType: onnx.Float})
		m.Graph.AddOutput(y)
		list = append(list, &quantized.Weight{Value: w, InOut: true, Matrix: matrix,
			Sample: func(rows int64) (*fused.Quantized, []float32, error) {
				sample, floats := rewritetest.Quantized("sample", min(rows, n), k)
				return sample, floats, nil
			}})
	}
	return m, list
}

// TestQuantizeRefuses: one matrix differs from the floats, and one cannot be read.
func TestQuantizeRefuses(t *testing.T) {
	m, list := projections(40, 48, 16)
	list[0].Sample = func(rows int64) (*fused.Quantized, []float32, error) {
		sample, floats := rewritetest.Quantized("sample", rows, 64)
		floats[20*64+63] += 0.25
		return sample, floats, nil
	}
	broken := errors.New("the file is gone")
	list[2].Sample = func(int64) (*fused.Quantized, []float32, error) { return nil, nil, broken }
	r, err := rewrite.Quantize(m, list, "int16", rewrite.Request{})
	if err != nil {
		t.Fatal(err)
	}
	// the second is of the same kind as the first, so it fails without another try
	if len(r.Kept) != 0 || !strings.Contains(r.Refuse[list[0]].Error(), "differs from the matched nodes") ||
		!errors.Is(r.Refuse[list[2]], broken) {
		t.Errorf("kept %d, refused %v", len(r.Kept), r.Refuse)
	}
	if rewritetest.CountOps(m)["MatMul"] != 3 || len(m.Functions) != 0 || len(m.Graph.Initializers()) != 3 {
		t.Error("the model was changed")
	}
}

// TestMergedQuantized merges products with whole panels, and a last one, whose panels may be partial.
func TestMergedQuantized(t *testing.T) {
	for _, c := range []struct {
		columns          []int64
		merged, products int
	}{
		{[]int64{32, 16, 20}, 1, 3},
		{[]int64{20, 32, 16}, 1, 2},
		{[]int64{20, 20}, 0, 0},
	} {
		m, list := projections(c.columns...)
		x := make([]float64, 3*64)
		for i := range x {
			x[i] = float64(i%23) - 11
		}
		in := map[string]*reference.Tensor{"x": reference.NewFloats(onnx.Float, []int{3, 64}, x)}
		want := rewritetest.Run(t, m, in)
		if r, err := rewrite.Quantize(m, list, "float", rewrite.Request{}); err != nil || len(r.Kept) != len(list) {
			t.Fatalf("%v, refused %v", err, r.Refuse)
		}
		r := applytest.Apply(t, m, rewrite.Request{Merge: rewrite.MergeAll}).Merged
		if r.Merged != c.merged || r.Products != c.products {
			t.Errorf("%v: %+v", c.columns, r)
		}
		if n := len(slices.DeleteFunc(slices.Clone(m.Graph.Nodes), func(n *onnx.Node) bool {
			return n.OpType != "Linear"
		})); n != len(list)-max(c.products-1, 0) {
			t.Errorf("%v: %d products", c.columns, n)
		}
		got := rewritetest.Run(t, m, in)
		for name, x := range want {
			if d, scale := prove.Distance(x.F, got[name].F); d > 64*prove.Spacing(onnx.Float, scale) {
				t.Errorf("%v: %s differs by %g", c.columns, name, d)
			}
		}
	}
}

// TestQuantizedAddition adds a vector to a product, and to onnxruntime's op: the op takes it over. Other Adds stay: of
// anything but a vector, or if the product has other readers.
func TestQuantizedAddition(t *testing.T) {
	for _, c := range []struct {
		name        string
		columns     int64
		fused, read bool
		adds        int
	}{{"vector", 40, false, false, 0}, {"fused", 40, true, false, 0}, {"scalar", 1, false, false, 1},
		{"read", 40, false, true, 1}} {
		m, list := projections(40)
		g, y := m.Graph, m.Graph.Outputs[0]
		product := y.Producer
		if c.fused {
			product.Domain, product.OpType = "com.microsoft", "FusedMatMul"
			m.ImportOpset("com.microsoft", 1)
		}
		row := make([]float32, c.columns)
		for i := range row {
			row[i] = float32(i)/8 - 3
		}
		g.RemovePort(y)
		z := g.NewValue("z")
		g.AddNode("Add", []*onnx.Value{g.AddInitializer(onnx.NewFloat32s("b", []int64{c.columns}, row)), y},
			[]*onnx.Value{z})
		z.SetType(onnx.Type{DataType: onnx.Float})
		g.AddOutput(z)
		if c.read {
			g.AddOutput(y)
		}
		x := make([]float64, 3*64)
		for i := range x {
			x[i] = float64(i%23) - 11
		}
		in := map[string]*reference.Tensor{"x": reference.NewFloats(onnx.Float, []int{3, 64}, x)}
		if c.fused {
			product.Domain, product.OpType = "", "MatMul"
		}
		want := rewritetest.Run(t, m, in)
		if c.fused {
			product.Domain, product.OpType = "com.microsoft", "FusedMatMul"
		}
		r, err := rewrite.Quantize(m, list, "float", rewrite.Request{})
		if err != nil || len(r.Kept) != 1 {
			t.Fatalf("%s: %v, %v", c.name, err, r.Refuse)
		}
		if rewritetest.CountOps(m)["Add"] != c.adds {
			t.Errorf("%s: %d additions", c.name, rewritetest.CountOps(m)["Add"])
		}
		for name, w := range want {
			if d, scale := prove.Distance(w.F, rewritetest.Run(t, m, in)[name].F); d > 64*prove.Spacing(onnx.Float,
				scale) {
				t.Errorf("%s: %s differs by %g", c.name, name, d)
			}
		}
	}
}

// TestQuantizeMixtureRounded: experts whose products round their inputs. Both sides of the check then evaluate the body
// of QMoE, with its loop.
func TestQuantizeMixtureRounded(t *testing.T) {
	m, list := mixtures(t, onnx.Float16, 2, "out_in")
	r, err := rewrite.Quantize(m, list, "int16", rewrite.Request{})
	if err != nil || len(r.Kept) != len(list) || rewritetest.CountOps(m)["QMoE"] != 2 {
		t.Errorf("%v, refused %v", err, r.Refuse)
	}
}
