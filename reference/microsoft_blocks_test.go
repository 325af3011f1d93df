//go:build cgo

package reference_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/reference"
)

// integers makes a tensor of random elements of an integer type.
func integers(t *testing.T, r *rand.Rand, typ onnx.DataType, dims ...int) *onnx.Tensor {
	t.Helper()
	n := 1
	for _, d := range dims {
		n *= d
	}
	v := make([]int64, n)
	for i := range v {
		v[i] = int64(int8(r.IntN(1 << typ.Bits())))
		if typ == onnx.Int4 {
			v[i] = v[i]%16 - 8
		} else {
			v[i] &= 1<<typ.Bits() - 1
		}
	}
	x, err := reference.NewInts(typ, dims, v).ToONNX("")
	if err != nil {
		t.Fatal(err)
	}
	return x
}

func TestMatMulNBits(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	const n, f32, f16, u8 = 11, onnx.Float, onnx.Float16, onnx.Uint8
	for _, c := range []struct {
		typ            onnx.DataType
		bits, k, block int
		zeros          onnx.DataType
		bias           bool
	}{
		{f32, 4, 96, 32, 0, false}, {f32, 4, 96, 32, u8, true}, {f32, 4, 80, 32, u8, false},
		{f32, 4, 64, 16, f32, true},
		{f32, 8, 96, 32, 0, true}, {f32, 8, 128, 64, u8, false}, {f32, 2, 64, 16, f32, false},
		{f32, 2, 64, 16, 0, false},
		{f32, 2, 128, 64, u8, true}, {f16, 4, 96, 32, u8, false}, {f16, 8, 96, 32, 0, false},
	} {
		t.Run(fmt.Sprint(c), func(t *testing.T) {
			blocks := (c.k + c.block - 1) / c.block
			inputs := []*onnx.Tensor{normal(t, r, c.typ, 2, 3, c.k), integers(t, r, u8, n, blocks, c.block*c.bits/8),
				normal(t, r, c.typ, n, blocks), nil, nil, nil}
			switch c.zeros {
			case u8:
				inputs[3] = integers(t, r, u8, n, (blocks*c.bits+7)/8)
			case f32:
				inputs[3] = normal(t, r, c.typ, n, blocks)
			}
			if c.bias {
				inputs[5] = normal(t, r, c.typ, n)
			}
			precision := 2e-5
			if c.typ == f16 {
				precision = 0.03
			}
			likeOnnxruntime(t, "com.microsoft", "MatMulNBits", 21, inputs, precision, onnx.IntAttr("N", n),
				onnx.IntAttr("K", int64(c.k)), onnx.IntAttr("bits", int64(c.bits)),
				onnx.IntAttr("block_size", int64(c.block)))
		})
	}
}

// TestMatMulNBitsRefuses rejects nodes with another meaning than the evaluator computes, or without meaning.
func TestMatMulNBitsRefuses(t *testing.T) {
	m := onnx.New(10, 21)
	node := func(bits, block int64, inputs int, more ...*onnx.Attribute) *onnx.Node {
		values := make([]*onnx.Value, inputs)
		for i := range values {
			values[i] = m.Graph.NewValue("x")
		}
		n := m.Graph.AddNode("MatMulNBits", values, []*onnx.Value{m.Graph.NewValue("y")}, append(more,
			onnx.IntAttr("N", 2), onnx.IntAttr("K", 32), onnx.IntAttr("bits", bits),
			onnx.IntAttr("block_size", block))...)
		n.Domain = "com.microsoft"
		return n
	}
	x := reference.NewFloats(onnx.Float, []int{1, 32}, make([]float64, 32))
	b := reference.NewInts(onnx.Uint8, []int{2, 2, 8}, make([]int64, 32))
	s := reference.NewFloats(onnx.Float, []int{2, 2}, make([]float64, 4))
	order := reference.NewInts(onnx.Int32, []int{32}, make([]int64, 32))
	for want, c := range map[string]struct {
		n  *onnx.Node
		in []*reference.Tensor
	}{
		"g_idx": {node(4, 16, 5), []*reference.Tensor{x, b, s, nil, order}},
		"kernels": {node(4, 16, 3, onnx.IntAttr("weight_prepacked", 1)),
			[]*reference.Tensor{x, b, s}},
		"3 bits":     {node(3, 16, 3), []*reference.Tensor{x, b, s}},
		"scales":     {node(4, 32, 3), []*reference.Tensor{x, b, s}},
		"do not lie": {node(8, 16, 3), []*reference.Tensor{x, b, s}},
	} {
		_, err := reference.NewForOpset(21, nil, reference.Options{}).Op(c.n, c.in)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", want, err)
		}
	}
}

func TestGatherBlockQuantized(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 6))
	at := onnx.NewInt64s("", []int64{4, 0, -1, 2, 3, 3})
	at.Dims = []int64{2, 3}
	for _, c := range []struct {
		typ   onnx.DataType
		bits  int
		zeros bool
		scale onnx.DataType
		axis  int64 // of the gathering; the other one has blocks
	}{
		{onnx.Uint8, 4, false, onnx.Float, 0}, {onnx.Uint8, 4, true, onnx.Float, 0},
		{onnx.Uint8, 8, false, onnx.Float, 0},
		{onnx.Uint8, 8, true, onnx.Float16, 0}, {onnx.Uint8, 2, true, onnx.Float, 0},
		{onnx.Int4, 4, false, onnx.Float, 0}, {onnx.Uint4, 4, true, onnx.Float, 0}, {onnx.Int4, 4, true, onnx.Float, 1},
	} {
		t.Run(fmt.Sprint(c), func(t *testing.T) {
			rows, columns, scales := 5, 64, []int{5, 4}
			if c.axis == 1 {
				rows, columns, scales = 64, 6, []int{4, 6}
			}
			data, zeros := []int{rows, columns}, scales
			if c.typ == onnx.Uint8 {
				data, zeros = []int{rows, columns * c.bits / 8}, []int{scales[0], (scales[1]*c.bits + 7) / 8}
			}
			inputs := []*onnx.Tensor{integers(t, r, c.typ, data...), at, normal(t, r, c.scale, scales...), nil}
			if c.zeros {
				inputs[3] = integers(t, r, c.typ, zeros...)
			}
			likeOnnxruntime(t, "com.microsoft", "GatherBlockQuantized", 21, inputs, 1e-3,
				onnx.IntAttr("bits", int64(c.bits)), onnx.IntAttr("block_size", 16),
				onnx.IntAttr("gather_axis", c.axis), onnx.IntAttr("quantize_axis", 1-c.axis))
		})
	}
}

// TestDequantizeBlocks compares blocks along each axis with onnxruntime.
func TestDequantizeBlocks(t *testing.T) {
	r := rand.New(rand.NewPCG(7, 8))
	for _, typ := range []onnx.DataType{onnx.Int4, onnx.Uint4, onnx.Uint8} {
		for axis := range 2 {
			scales := []int{64, 64}
			scales[axis] = 4
			likeOnnxruntime(t, "", "DequantizeLinear", 21, []*onnx.Tensor{integers(t, r, typ, 64, 64),
				normal(t, r, onnx.Float, scales...), integers(t, r, typ, scales...)}, 1e-6,
				onnx.IntAttr("axis", int64(axis)), onnx.IntAttr("block_size", 16))
		}
	}
}

func TestQMoE(t *testing.T) {
	r := rand.New(rand.NewPCG(9, 10))
	const experts, hidden, inner, tokens, u8 = 5, 64, 32, 7, onnx.Uint8
	i, f, s := onnx.IntAttr, onnx.FloatAttr, onnx.StringAttr
	gated := []*onnx.Attribute{s("activation_type", "swiglu"), i("swiglu_fusion", 1)}
	normalized := i("normalize_routing_weights", 1)
	for _, c := range []struct {
		name          string
		bits, block   int
		parts         int
		biases, zeros bool
		weights       bool // the experts' weights are given
		attrs         []*onnx.Attribute
	}{
		{"rows", 4, 0, 2, false, false, false, append(gated, i("k", 2), normalized)},
		{"blocks", 4, 32, 2, true, false, false, append(gated, i("k", 3), normalized, f("activation_alpha", 1.702),
			f("activation_beta", 1), f("swiglu_limit", 1.5))},
		{"zero points", 4, 32, 2, false, true, false, append(gated, i("k", 2), normalized)},
		{"bytes", 8, 0, 2, true, false, false, append(gated, i("k", 2), normalized)},
		{"bytes with zero points", 8, 0, 1, true, true, false,
			[]*onnx.Attribute{i("k", 2), s("activation_type", "silu"), normalized}},
		{"one", 4, 16, 1, false, false, false, []*onnx.Attribute{i("k", 1), s("activation_type", "relu"), normalized}},
		{"weights", 4, 16, 1, false, false, true, []*onnx.Attribute{i("k", 2), s("activation_type", "relu")}},
		{"weights normalized", 4, 16, 2, false, false, true, append(gated, i("k", 2), normalized)},
	} {
		t.Run(c.name, func(t *testing.T) {
			inputs := make([]*onnx.Tensor, 7, 15)
			matrices := func(weights, zeros, n, k int) {
				inputs[weights] = integers(t, r, u8, experts, n, k*c.bits/8)
				dims, blocks := []int{experts, n}, 1
				zero := []int{experts, (n*c.bits + 7) / 8}
				if c.block > 0 {
					blocks = k / c.block
					dims = append(dims, blocks)
					zero = []int{experts, n, (blocks*c.bits + 7) / 8}
				}
				scales := normal(t, r, onnx.Float, dims...)
				x, err := reference.FromONNX(scales)
				if err != nil {
					t.Fatal(err)
				}
				for i := range x.F {
					x.F[i] *= 0.02
				}
				if inputs[weights+1], err = x.ToONNX(""); err != nil {
					t.Fatal(err)
				}
				if c.zeros {
					inputs = inputs[:15]
					inputs[zeros] = integers(t, r, u8, zero...)
				}
			}
			inputs[0], inputs[1] = normal(t, r, onnx.Float, tokens, hidden), normal(t, r, onnx.Float, tokens, experts)
			matrices(2, 11, c.parts*inner, hidden)
			matrices(5, 12, hidden, inner)
			if c.biases {
				inputs = inputs[:max(len(inputs), 8)]
				inputs[4] = normal(t, r, onnx.Float, experts, c.parts*inner)
				inputs[7] = normal(t, r, onnx.Float, experts, hidden)
			}
			if c.weights {
				inputs = inputs[:15]
				counts := make([]float64, tokens*experts) // greater than 0: onnxruntime skips others
				for i := range counts {
					counts[i] = float64(1+r.IntN(8)) / 8
				}
				x, err := reference.NewFloats(onnx.Float, []int{tokens, experts}, counts).ToONNX("")
				if err != nil {
					t.Fatal(err)
				}
				inputs[14] = x
			}
			attrs := append(c.attrs, i("expert_weight_bits", int64(c.bits)), i("weights_prepacked", 0))
			if c.block > 0 {
				attrs = append(attrs, i("block_size", int64(c.block)))
			}
			likeOnnxruntime(t, "com.microsoft", "QMoE", 21, inputs, 1e-4, attrs...)
		})
	}
}
