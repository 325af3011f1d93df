package gguf

import (
	"fmt"

	"github.com/mojo-patch/mojo-patch/onnx"
)

// Type says how a tensor's elements are stored, with the numbers of enum ggml_type.
type Type uint32

// The types whose elements can be read.
const (
	F32  Type = 0
	F16  Type = 1
	Q4_0 Type = 2
	Q4_1 Type = 3
	Q5_0 Type = 6
	Q5_1 Type = 7
	Q8_0 Type = 8
	Q4_K Type = 12
	Q5_K Type = 13
	Q6_K Type = 14
	I8   Type = 24
	I16  Type = 25
	I32  Type = 26
	I64  Type = 27
	F64  Type = 28
	BF16 Type = 30
)

// typeInfo describes a type: block elements take size bytes. Elements are stored one by one as a type of ONNX, or are
// read by decode, or not at all.
type typeInfo struct {
	name        string
	block, size int
	stored      onnx.DataType
	decode      func(dst []float32, src []byte) // one block
}

// The sizes are those of GGML_QUANT_SIZES in gguf-py.
var types = map[Type]typeInfo{
	F32:  {"F32", 1, 4, onnx.Float, nil},
	F16:  {"F16", 1, 2, onnx.Float16, nil},
	Q4_0: {"Q4_0", 32, 18, 0, decodeQ4_0},
	Q4_1: {"Q4_1", 32, 20, 0, decodeQ4_1},
	Q5_0: {"Q5_0", 32, 22, 0, decodeQ5_0},
	Q5_1: {"Q5_1", 32, 24, 0, decodeQ5_1},
	Q8_0: {"Q8_0", 32, 34, 0, decodeQ8_0},
	Q4_K: {"Q4_K", 256, 144, 0, decodeQ4_K},
	Q5_K: {"Q5_K", 256, 176, 0, decodeQ5_K},
	Q6_K: {"Q6_K", 256, 210, 0, decodeQ6_K},
	I8:   {"I8", 1, 1, onnx.Int8, nil},
	I16:  {"I16", 1, 2, onnx.Int16, nil},
	I32:  {"I32", 1, 4, onnx.Int32, nil},
	I64:  {"I64", 1, 8, onnx.Int64, nil},
	F64:  {"F64", 1, 8, onnx.Double, nil},
	BF16: {"BF16", 1, 2, onnx.BFloat16, nil},

	// What is not read, with its size, so that tensors beside it can be.
	9:  {name: "Q8_1", block: 32, size: 40},
	10: {name: "Q2_K", block: 256, size: 84},
	11: {name: "Q3_K", block: 256, size: 110},
	15: {name: "Q8_K", block: 256, size: 292},
	16: {name: "IQ2_XXS", block: 256, size: 66},
	17: {name: "IQ2_XS", block: 256, size: 74},
	18: {name: "IQ3_XXS", block: 256, size: 98},
	19: {name: "IQ1_S", block: 256, size: 50},
	20: {name: "IQ4_NL", block: 32, size: 18},
	21: {name: "IQ3_S", block: 256, size: 110},
	22: {name: "IQ2_S", block: 256, size: 82},
	23: {name: "IQ4_XS", block: 256, size: 136},
	29: {name: "IQ1_M", block: 256, size: 56},
	34: {name: "TQ1_0", block: 256, size: 54},
	35: {name: "TQ2_0", block: 256, size: 66},
	39: {name: "MXFP4", block: 32, size: 17},
	40: {name: "NVFP4", block: 64, size: 36},
	41: {name: "Q1_0", block: 128, size: 18},
}

// String returns the name that ggml and gguf-py use, for example "Q4_K".
func (t Type) String() string {
	if info, ok := types[t]; ok {
		return info.name
	}
	return fmt.Sprintf("type %d", uint32(t))
}

// DataType is the type of ONNX that elements are stored as, one by one. It is onnx.Undefined for types stored in
// blocks and for those that cannot be read.
func (t Type) DataType() onnx.DataType { return types[t].stored }

// Readable reports whether Tensor.Float32 can give the elements of tensors of this type.
func (t Type) Readable() bool {
	info := types[t]
	return info.stored != onnx.Undefined || info.decode != nil
}
