package fused

import (
	"github.com/mojo-patch/mojo-patch/internal/blocks"
	"github.com/mojo-patch/mojo-patch/onnx"
)

// Quantized is a matrix [N, K] of quantised elements, stored as Linear and Embedding read it.
type Quantized struct {
	// Format names how the elements were quantised, such as q4_1.
	Format string
	Code   string
	Zero   int64
	Block  int64
	N, K   int64
	// Experts, where it is not 0, says that the arrays are those of so many such matrices, which they have a dimension
	// for before the others.
	Experts int64
	// The arrays; nil for those that the format lacks.
	Codes, Scale, Minus, SuperScale, SuperMinus *onnx.Tensor
}

// NewQuantised describes a matrix [n, k] whose blocks of a format stand in panels; with experts n is the number of rows
// of all of them, which are whole panels. tensor makes the arrays, of which each has its place in blocks.Panel.Arrays.
func NewQuantised(name, format string, p *blocks.Panels, n, k, experts int64, tensor func(name string, t onnx.DataType,
	dims []int64, array int) (*onnx.Tensor, error)) (*Quantized, error) {
	q := &Quantized{Format: format, Code: p.Code, Zero: p.Zero, Block: int64(p.Block), N: n / max(experts, 1), K: k,
		Experts: experts}
	arrays := [5]**onnx.Tensor{&q.Codes, &q.Scale, &q.Minus, &q.SuperScale, &q.SuperMinus}
	types := [5]onnx.DataType{onnx.Uint8, p.Scale, p.Scale, onnx.Float16, onnx.Float16}
	for i, dims := range p.Dims((n+blocks.PanelRows-1)/blocks.PanelRows, k) {
		if dims == nil {
			continue
		}
		if experts > 0 {
			dims = append([]int64{experts, dims[0] / experts}, dims[1:]...)
		}
		var err error
		if *arrays[i], err = tensor(name+"_"+quantizedParams[i].Name, types[i], dims, i); err != nil {
			return nil, err
		}
	}
	return q, nil
}

// Tensors lists the arrays in the order of the ops' inputs behind the first, nil for those that are left out.
func (q *Quantized) Tensors() []*onnx.Tensor {
	return []*onnx.Tensor{q.Codes, q.Scale, q.Minus, q.SuperScale, q.SuperMinus}
}

// Size is the number of bytes that the arrays take.
func (q *Quantized) Size() (n int64) {
	for _, t := range q.Tensors() {
		if t != nil {
			n += t.Size()
		}
	}
	return n
}

// Activations is what an op with the matrices rounds activations to where kind is asked for. Floats of 8 bits go with
// codes of them alone, which go with no integers: those are multiplied with floats, and others with int16.
func Activations(kind string, matrices ...*Quantized) string {
	floats := 0
	for _, q := range matrices {
		if q.Code == codeE4M3 {
			floats++
		}
	}
	switch {
	case floats > 0 && (kind != activationsFP8 || floats < len(matrices)):
		return activationsFloat
	case floats == 0 && kind == activationsFP8:
		return activationsInt16
	}
	return kind
}

// Embedding is the op with the matrix as its table.
func (q *Quantized) Embedding() Embedding { return Embedding{q.Code, q.Zero, q.Block, q.N, q.K} }

// Linear is the op with the matrix as its weights.
func (q *Quantized) Linear(activations string) Linear { return Linear{q.Embedding(), activations} }
