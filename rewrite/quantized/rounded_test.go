package quantized_test

import (
	"testing"

	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/onnx/onnxtest"
	"github.com/mojo-patch/mojo-patch/rewrite/quantized"
)

// TestRoundsActivations distinguishes ops that round activations from ops that only hold rounded weights.
func TestRoundsActivations(t *testing.T) {
	level := func(n int64) *onnx.Attribute { return onnx.IntAttr("accuracy_level", n) }
	for _, c := range []struct {
		op     string
		attrs  []*onnx.Attribute
		rounds bool
	}{
		{"DynamicQuantizeLinear", nil, true},
		{"com.microsoft:DynamicQuantizeMatMul", nil, true},
		{"com.microsoft:DynamicQuantizeLSTM", nil, true},
		{"com.microsoft:MatMulNBits", []*onnx.Attribute{level(4)}, true},
		{"com.microsoft:MatMulNBits", []*onnx.Attribute{level(0)}, false},
		{"com.microsoft:MatMulNBits", nil, false},
		{"com.microsoft:QMoE", []*onnx.Attribute{level(4)}, true},
		{"MatMul", nil, false},
	} {
		b := onnxtest.New(20)
		n := b.Op(c.op, b.Input("x", onnx.Float, 4), c.attrs).Producer
		if got := quantized.RoundsActivations(n); got != c.rounds {
			t.Errorf("%s %v: %v", c.op, c.attrs, got)
		}
	}
}

// TestRoundedByRuntime tries products that onnxruntime 1.31.1 turns into MatMulNBits of accuracy level 4, and others.
func TestRoundedByRuntime(t *testing.T) {
	axis, block := func(i int64) *onnx.Attribute { return onnx.IntAttr("axis", i) },
		func(i int64) *onnx.Attribute { return onnx.IntAttr("block_size", i) }
	for _, c := range []struct {
		name       string
		op         string
		dims       []int
		scales     []int
		attrs, own []*onnx.Attribute // of DequantizeLinear, and of the product
		want       int
	}{
		{"blocks", "MatMul", []int{64, 8}, []int{2, 8}, []*onnx.Attribute{axis(0), block(32)}, nil, 1},
		{"blocks, Gemm", "Gemm", []int{64, 8}, []int{2, 8}, []*onnx.Attribute{axis(0), block(32)}, nil, 1},
		{"the last block shorter", "MatMul", []int{80, 8}, []int{3, 8}, []*onnx.Attribute{axis(0), block(32)}, nil, 1},
		{"small blocks", "MatMul", []int{64, 8}, []int{8, 8}, []*onnx.Attribute{axis(0), block(8)}, nil, 0},
		{"no power of two", "MatMul", []int{96, 8}, []int{2, 8}, []*onnx.Attribute{axis(0), block(48)}, nil, 0},
		{"across", "MatMul", []int{64, 32}, []int{64, 2}, []*onnx.Attribute{axis(1), block(16)}, nil, 0},
		{"turned", "Gemm", []int{8, 64}, []int{8, 2}, []*onnx.Attribute{axis(1), block(32)},
			[]*onnx.Attribute{onnx.IntAttr("transB", 1)}, 0},
		{"columns", "MatMul", []int{64, 8}, []int{8}, []*onnx.Attribute{axis(-1)}, nil, 1},
		{"rows", "MatMul", []int{64, 8}, []int{64}, []*onnx.Attribute{axis(0)}, nil, 0},
		{"one scale", "MatMul", []int{64, 8}, nil, nil, nil, 1},
	} {
		m := newOther(t, onnx.Float)
		w := m.Op("DequantizeLinear", m.random(onnx.Int8, c.dims...), m.random(onnx.Float, c.scales...), c.attrs)
		k := c.dims[0]
		if c.own != nil {
			k = c.dims[1]
		}
		m.Output(m.Op(c.op, m.In("x", "tokens", k), w, c.own))
		if got := quantized.RoundedByRuntime(m.Model); got != c.want {
			t.Errorf("%s: %d", c.name, got)
		}
	}
}
