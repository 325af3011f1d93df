package main

import (
	"fmt"
	"math/rand/v2"

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
		if tensors[i], err = randomTensor(r, s.Types[i], s.Dims[i]).ToONNX(op.Inputs[i].Name); err != nil {
			return 0, err
		}
		if inputs[i], err = reference.FromONNX(tensors[i]); err != nil {
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
		w, err := want[i].ToONNX(t.Name)
		if err != nil {
			return 0, err
		}
		distance, err := apart([]*onnx.Tensor{t}, []*onnx.Tensor{w})
		if err != nil {
			return 0, fmt.Errorf("output %s: %w", op.Outputs[i].Name, err)
		}
		rel := float64(distance)
		if maxRel = max(maxRel, rel); rel > kernelTolerance[t.DataType] {
			return maxRel, fmt.Errorf("output %s differs from the op's definition by %.2g of the greatest magnitude",
				op.Outputs[i].Name, rel)
		}
	}
	return maxRel, nil
}

// randomTensor returns normally distributed numbers; integers are experts of the first three.
func randomTensor(r *rand.Rand, typ onnx.DataType, dims []int64) *reference.Tensor {
	t := &reference.Tensor{DataType: typ}
	n := 1
	for _, d := range dims {
		t.Shape = append(t.Shape, int(d))
		n *= int(d)
	}
	for range n {
		if typ == onnx.Int64 {
			t.I = append(t.I, r.Int64N(3))
		} else {
			t.F = append(t.F, float64(float32(r.NormFloat64())))
		}
	}
	return t
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
