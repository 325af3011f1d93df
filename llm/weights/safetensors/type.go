package safetensors

import (
	"github.com/mojo-patch/mojo-patch/internal/blocks"
	"github.com/mojo-patch/mojo-patch/onnx"
)

// Type is the type of a tensor's elements in the file's spelling, such as "BF16".
type Type string

var types = map[Type]onnx.DataType{
	"F64": onnx.Double, "F32": onnx.Float, "F16": onnx.Float16, "BF16": onnx.BFloat16,
	"I64": onnx.Int64, "I32": onnx.Int32, "I16": onnx.Int16, "I8": onnx.Int8,
	"U64": onnx.Uint64, "U32": onnx.Uint32, "U16": onnx.Uint16, "U8": onnx.Uint8,
	"BOOL":    onnx.Bool,
	"F8_E4M3": onnx.Float8E4M3FN, "F8_E4M3FNUZ": onnx.Float8E4M3FNUZ,
	"F8_E5M2": onnx.Float8E5M2, "F8_E5M2FNUZ": onnx.Float8E5M2FNUZ, "F8_E8M0": onnx.Float8E8M0,
	"F4": onnx.Float4E2M1, "F6_E2M3": onnx.Float6E2M3, "F6_E3M2": onnx.Float6E3M2, "C64": onnx.Complex64,
}

// DataType returns the ONNX type of the elements.
func (t Type) DataType() onnx.DataType { return types[t] }

// Readable reports whether Tensor.Float32 can read tensors of this type. It cannot read complex numbers, or elements of
// less than 8 bits, whose packing the format does not define.
func (t Type) Readable() bool { return blocks.Of(t.DataType()).Readable() }
