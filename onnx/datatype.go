package onnx

import "fmt"

// DataType is the element type of a tensor, with the numbers of TensorProto.DataType in onnx.proto (onnx 1.23).
type DataType int32

// The element types of onnx 1.23.
const (
	Undefined      DataType = 0
	Float          DataType = 1
	Uint8          DataType = 2
	Int8           DataType = 3
	Uint16         DataType = 4
	Int16          DataType = 5
	Int32          DataType = 6
	Int64          DataType = 7
	String         DataType = 8
	Bool           DataType = 9
	Float16        DataType = 10
	Double         DataType = 11
	Uint32         DataType = 12
	Uint64         DataType = 13
	Complex64      DataType = 14
	Complex128     DataType = 15
	BFloat16       DataType = 16
	Float8E4M3FN   DataType = 17
	Float8E4M3FNUZ DataType = 18
	Float8E5M2     DataType = 19
	Float8E5M2FNUZ DataType = 20
	Uint4          DataType = 21
	Int4           DataType = 22
	Float4E2M1     DataType = 23
	Float8E8M0     DataType = 24
	Uint2          DataType = 25
	Int2           DataType = 26
	Float6E2M3     DataType = 27
	Float6E3M2     DataType = 28

	lastDataType = Float6E3M2
)

type dataTypeInfo struct {
	name string
	bits int // bits of one element; 0 if elements have no fixed size
}

var dataTypes = [...]dataTypeInfo{
	Undefined: {"undefined", 0}, Float: {"float32", 32}, Uint8: {"uint8", 8}, Int8: {"int8", 8},
	Uint16: {"uint16", 16}, Int16: {"int16", 16}, Int32: {"int32", 32}, Int64: {"int64", 64},
	String: {"string", 0}, Bool: {"bool", 8}, Float16: {"float16", 16}, Double: {"float64", 64},
	Uint32: {"uint32", 32}, Uint64: {"uint64", 64}, Complex64: {"complex64", 64}, Complex128: {"complex128", 128},
	BFloat16: {"bfloat16", 16}, Float8E4M3FN: {"float8e4m3fn", 8}, Float8E4M3FNUZ: {"float8e4m3fnuz", 8},
	Float8E5M2: {"float8e5m2", 8}, Float8E5M2FNUZ: {"float8e5m2fnuz", 8}, Uint4: {"uint4", 4}, Int4: {"int4", 4},
	Float4E2M1: {"float4e2m1", 4}, Float8E8M0: {"float8e8m0", 8}, Uint2: {"uint2", 2}, Int2: {"int2", 2},
	Float6E2M3: {"float6e2m3", 6}, Float6E3M2: {"float6e3m2", 6},
}

// String returns the name numpy and ml_dtypes use, for example "float32" or "bfloat16".
func (t DataType) String() string {
	if t < 0 || int(t) >= len(dataTypes) {
		return fmt.Sprintf("datatype(%d)", int32(t))
	}
	return dataTypes[t].name
}

// Bits returns the size of one element in bits, 0 for strings and unknown types.
func (t DataType) Bits() int {
	if t < 0 || int(t) >= len(dataTypes) {
		return 0
	}
	return dataTypes[t].bits
}

// IsFloat reports whether t is one of the real floating-point types that arithmetic ops take
// (float16, bfloat16, float32, float64).
func (t DataType) IsFloat() bool {
	return t == Float || t == Float16 || t == BFloat16 || t == Double
}

// IsHalf reports whether t is float16 or bfloat16.
func (t DataType) IsHalf() bool { return t == Float16 || t == BFloat16 }

// IsInteger reports whether t is a signed or unsigned integer of 8 to 64 bits.
func (t DataType) IsInteger() bool {
	return t >= Uint8 && t <= Int64 || t == Uint32 || t == Uint64
}

// ParseDataType is the inverse of String.
func ParseDataType(name string) (DataType, error) {
	for i, d := range dataTypes {
		if d.name == name {
			return DataType(i), nil
		}
	}
	return Undefined, fmt.Errorf("unknown data type %q", name)
}
