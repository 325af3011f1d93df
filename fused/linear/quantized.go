package linear

import (
	"github.com/mojo-patch/mojo-patch/internal/blocks"
	"github.com/mojo-patch/mojo-patch/onnx"
)

// Quantized is a matrix [N, K] of quantized elements, stored as Linear and Embedding read it.
type Quantized struct {
	// Format is the format of the elements, such as q4_1.
	Format string
	Code   string
	Zero   int64
	Block  int64
	N, K   int64
	// Experts, if not 0, is the number of such matrices in the arrays, which then have it as an additional first
	// dimension.
	Experts int64
	// The arrays; nil for those that the format lacks.
	Codes, Scale, Minus, SuperScale, SuperMinus *onnx.Tensor
}

// NewQuantized describes a matrix [n, k] whose blocks are stored in panels. If experts is not 0, n is the number of
// rows of all experts, each of which fills whole panels. tensor makes the arrays; array is the index in
// blocks.Panel.Arrays. NewQuantized returns the first error of tensor.
func NewQuantized(name, format string, p *blocks.Panels, n, k, experts int64, tensor func(name string, t onnx.DataType,
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

// Tensors lists the arrays in the order of the ops' inputs after the first, nil for an array that is left out.
func (q *Quantized) Tensors() []*onnx.Tensor {
	return []*onnx.Tensor{q.Codes, q.Scale, q.Minus, q.SuperScale, q.SuperMinus}
}

// Size returns the size of the arrays in bytes.
func (q *Quantized) Size() (n int64) {
	for _, t := range q.Tensors() {
		if t != nil {
			n += t.Size()
		}
	}
	return n
}

// Activations returns the attribute activations of an op with the matrices if kind is requested. fp8 works only with
// 8-bit float codes, and such codes only with float or fp8. If kind does not fit, the result is float for such codes
// and int16 for others.
func Activations(kind string, matrices ...*Quantized) string {
	floats := 0
	for _, q := range matrices {
		if q.Code == CodeE4M3 {
			floats++
		}
	}
	switch {
	case floats > 0 && (kind != ActivationsFP8 || floats < len(matrices)):
		return ActivationsFloat
	case floats == 0 && kind == ActivationsFP8:
		return ActivationsInt16
	}
	return kind
}

// Embedding returns the op with the matrix as its table.
func (q *Quantized) Embedding() Embedding { return Embedding{q.Code, q.Zero, q.Block, q.N, q.K} }

// Linear returns the op with the matrix as its weights.
func (q *Quantized) Linear(activations string) Linear { return Linear{q.Embedding(), activations} }
