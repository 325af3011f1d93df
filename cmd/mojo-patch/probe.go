package main

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"

	"github.com/mojo-patch/mojo-patch/fused"
	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/reference"
)

// kernelTolerance is the difference that a kernel may show, as a part of the greatest magnitude: a few units in the
// last place of the type.
var kernelTolerance = map[onnx.DataType]float64{onnx.Float: 1e-5, onnx.Float16: 4.0 / 1024, onnx.BFloat16: 4.0 / 128,
	onnx.Int64: 0}

// try runs the kernel at a site on random inputs and compares it with the op's definition.
func (p *prober) try(op *fused.Op, s fused.Site) (maxRel float64, err error) {
	r := rand.New(rand.NewPCG(1, 2))
	inputs := make([]*reference.Tensor, len(op.Inputs))
	tensors := make([]*onnx.Tensor, len(op.Inputs))
	for i := range inputs {
		if s.Types[i] == onnx.Undefined { // left out
			continue
		}
		t, err := randomTensor(r, op.Inputs[i].Name, s.Types[i], s.Dims[i])
		if err != nil {
			return 0, err
		}
		tensors[i] = t
		if inputs[i], err = reference.FromONNX(t); err != nil {
			return 0, err
		}
	}
	want, err := define(op, s, inputs)
	if err != nil {
		return 0, fmt.Errorf("the op's definition cannot be evaluated: %w", err)
	}
	got, err := p.run(op.Name, s.Attributes, tensors)
	if err != nil {
		return 0, err
	}
	for i, t := range got {
		g, err := reference.FromONNX(t)
		if err != nil {
			return 0, err
		}
		rel, err := distance(g, want[i])
		if err != nil {
			return 0, fmt.Errorf("output %s: %w", op.Outputs[i].Name, err)
		}
		if maxRel = max(maxRel, rel); rel > kernelTolerance[t.DataType] {
			return maxRel, fmt.Errorf("output %s differs from the op's definition by %.2g of the greatest magnitude",
				op.Outputs[i].Name, rel)
		}
	}
	return maxRel, nil
}

// randomTensor returns normally distributed numbers; integers are experts of the first three.
func randomTensor(r *rand.Rand, name string, typ onnx.DataType, dims []int64) (*onnx.Tensor, error) {
	n := int64(1)
	for _, d := range dims {
		n *= d
	}
	if typ == onnx.Int64 {
		ids := make([]int64, n)
		for j := range ids {
			ids[j] = r.Int64N(3)
		}
		t := onnx.NewInt64s(name, ids)
		t.Dims = dims
		return t, nil
	}
	values := make([]float32, n)
	for j := range values {
		values[j] = float32(r.NormFloat64())
	}
	return cast(onnx.NewFloat32s(name, dims, values), typ)
}

// cast rounds a float32 tensor to another type.
func cast(t *onnx.Tensor, to onnx.DataType) (*onnx.Tensor, error) {
	v, err := reference.FromONNX(t)
	if err != nil {
		return nil, err
	}
	return (&reference.Tensor{DataType: to, Shape: v.Shape, F: v.F}).ToONNX(t.Name)
}

func define(op *fused.Op, s fused.Site, inputs []*reference.Tensor) ([]*reference.Tensor, error) {
	f, err := op.Function(s)
	if err != nil {
		return nil, err
	}
	_, n := probe(op, s)
	n.Overload = f.Overload
	return reference.NewForOpset(s.Opset, []*onnx.Function{f}, reference.Options{}).Op(n, inputs)
}

// distance is the greatest difference as a part of the greatest expected magnitude.
func distance(got, want *reference.Tensor) (float64, error) {
	if got.String() != want.String() {
		return 0, fmt.Errorf("it is %s, expected %s", got, want)
	}
	if !slices.Equal(got.I, want.I) {
		return math.Inf(1), nil
	}
	worst, greatest := 0.0, 0.0
	for i, w := range want.F {
		d := math.Abs(got.F[i] - w)
		if math.IsNaN(d) {
			d = math.Inf(1)
		}
		worst, greatest = max(worst, d), max(greatest, math.Abs(w))
	}
	if worst == 0 {
		return 0, nil
	}
	return worst / greatest, nil
}
