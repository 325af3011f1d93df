package gguf

import (
	"fmt"

	"github.com/mojo-patch/mojo-patch/internal/blocks"
	"github.com/mojo-patch/mojo-patch/onnx"
)

// Type is the storage type of a tensor's elements, with the numbers of enum ggml_type.
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

	MXFP4 Type = 39
)

// typeInfo describes a type whose elements are stored individually as an ONNX type, or in blocks.
type typeInfo struct {
	name   string
	stored onnx.DataType
	*blocks.Format
}

// The sizes are those of GGML_QUANT_SIZES in gguf-py.
var types = map[Type]typeInfo{
	F32:  single("F32", onnx.Float),
	F16:  single("F16", onnx.Float16),
	Q4_0: {"Q4_0", 0, blocks.Q4_0},
	Q4_1: {"Q4_1", 0, blocks.Q4_1},
	Q5_0: {"Q5_0", 0, blocks.Q5_0},
	Q5_1: {"Q5_1", 0, blocks.Q5_1},
	Q8_0: {"Q8_0", 0, blocks.Q8_0},
	Q4_K: {"Q4_K", 0, blocks.Q4_K},
	Q5_K: {"Q5_K", 0, blocks.Q5_K},
	Q6_K: {"Q6_K", 0, blocks.Q6_K},
	I8:   single("I8", onnx.Int8),
	I16:  single("I16", onnx.Int16),
	I32:  single("I32", onnx.Int32),
	I64:  single("I64", onnx.Int64),
	F64:  single("F64", onnx.Double),
	BF16: single("BF16", onnx.BFloat16),

	MXFP4: {"MXFP4", 0, blocks.MXFP4},

	// Types that are not read, with their sizes, so that the tensors beside them can be.
	9:  unread("Q8_1", 32, 40),
	10: unread("Q2_K", 256, 84),
	11: unread("Q3_K", 256, 110),
	15: unread("Q8_K", 256, 292),
	16: unread("IQ2_XXS", 256, 66),
	17: unread("IQ2_XS", 256, 74),
	18: unread("IQ3_XXS", 256, 98),
	19: unread("IQ1_S", 256, 50),
	20: unread("IQ4_NL", 32, 18),
	21: unread("IQ3_S", 256, 110),
	22: unread("IQ2_S", 256, 82),
	23: unread("IQ4_XS", 256, 136),
	29: unread("IQ1_M", 256, 56),
	34: unread("TQ1_0", 256, 54),
	35: unread("TQ2_0", 256, 66),
	40: unread("NVFP4", 64, 36),
	41: unread("Q1_0", 128, 18),
}

func single(name string, stored onnx.DataType) typeInfo {
	return typeInfo{name, stored, blocks.Of(stored)}
}

func unread(name string, elements, size int) typeInfo {
	return typeInfo{name, 0, &blocks.Format{Elements: elements, Size: size}}
}

// String returns the name that ggml and gguf-py use, for example "Q4_K".
func (t Type) String() string {
	if info, ok := types[t]; ok {
		return info.name
	}
	return fmt.Sprintf("type %d", uint32(t))
}

// Lookup returns the type with a name such as "Q4_K".
func Lookup(name string) (Type, bool) {
	for t, info := range types {
		if info.name == name {
			return t, true
		}
	}
	return 0, false
}

// Format returns the block format of the type, nil for an unknown type.
func (t Type) Format() *blocks.Format { return types[t].Format }

// DataType returns the ONNX type of elements stored individually. It is onnx.Undefined for types stored in blocks and
// for types that cannot be read.
func (t Type) DataType() onnx.DataType { return types[t].stored }

// Readable reports whether Tensor.Float32 can read tensors of this type.
func (t Type) Readable() bool {
	info, ok := types[t]
	return ok && info.Format.Readable()
}
