package fused

import "github.com/mojo-patch/mojo-patch/onnx"

// Quantised is a matrix [N, K] of quantised elements, stored as Linear and Embedding read it.
type Quantised struct {
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

// Tensors lists the arrays in the order of the ops' inputs behind the first, nil for those that are left out.
func (q *Quantised) Tensors() []*onnx.Tensor {
	return []*onnx.Tensor{q.Codes, q.Scale, q.Minus, q.SuperScale, q.SuperMinus}
}

// Size is the number of bytes that the arrays take.
func (q *Quantised) Size() (n int64) {
	for _, t := range q.Tensors() {
		if t != nil {
			n += t.Size()
		}
	}
	return n
}

// Activations is what an op with the matrices rounds activations to where kind is asked for. Floats of 8 bits go with
// codes of them alone, which go with no integers: those are multiplied with floats, and others with int16.
func Activations(kind string, matrices ...*Quantised) string {
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

// Attributes are those of an Embedding with the matrix; a Linear has activations besides.
func (q *Quantised) Attributes() []*onnx.Attribute {
	return []*onnx.Attribute{onnx.StringAttr("code", q.Code), onnx.IntAttr("zero", q.Zero),
		onnx.IntAttr("block", q.Block), onnx.IntAttr("n", q.N), onnx.IntAttr("k", q.K)}
}
