package gguf

import (
	"encoding/binary"
	"math"
)

// valueType has the numbers of enum gguf_metadata_value_type.
type valueType uint32

const (
	typeUint8   valueType = 0
	typeInt8    valueType = 1
	typeUint16  valueType = 2
	typeInt16   valueType = 3
	typeUint32  valueType = 4
	typeInt32   valueType = 5
	typeFloat32 valueType = 6
	typeBool    valueType = 7
	typeString  valueType = 8
	typeArray   valueType = 9
	typeUint64  valueType = 10
	typeInt64   valueType = 11
	typeFloat64 valueType = 12
)

// maxNesting bounds arrays of arrays, which gguf-py writes and llama.cpp does not read.
const maxNesting = 4

var le = binary.LittleEndian

// value reads a metadata value.
func (c *cursor) value(t valueType, what string) any {
	switch t {
	case typeUint8:
		return one(c, 1, what, uint8At)
	case typeInt8:
		return one(c, 1, what, int8At)
	case typeUint16:
		return one(c, 2, what, le.Uint16)
	case typeInt16:
		return one(c, 2, what, int16At)
	case typeUint32:
		return one(c, 4, what, le.Uint32)
	case typeInt32:
		return one(c, 4, what, int32At)
	case typeFloat32:
		return one(c, 4, what, float32At)
	case typeBool:
		return one(c, 1, what, c.boolAt(what))
	case typeString:
		return c.string(what)
	case typeArray:
		return c.array(what, maxNesting)
	case typeUint64:
		return one(c, 8, what, le.Uint64)
	case typeInt64:
		return one(c, 8, what, int64At)
	case typeFloat64:
		return one(c, 8, what, float64At)
	}
	c.fail("%s has the type %d, which GGUF does not know", what, t)
	return nil
}

func (c *cursor) array(what string, nesting int) any {
	if nesting == 0 {
		c.fail("%s is an array nested deeper than %d", what, maxNesting)
		return nil
	}
	switch t := valueType(c.uint32(what)); t {
	case typeUint8:
		return many(c, 1, what, uint8At)
	case typeInt8:
		return many(c, 1, what, int8At)
	case typeUint16:
		return many(c, 2, what, le.Uint16)
	case typeInt16:
		return many(c, 2, what, int16At)
	case typeUint32:
		return many(c, 4, what, le.Uint32)
	case typeInt32:
		return many(c, 4, what, int32At)
	case typeFloat32:
		return many(c, 4, what, float32At)
	case typeBool:
		return many(c, 1, what, c.boolAt(what))
	case typeString:
		return list(c, 8, what, func() string { return c.string(what) })
	case typeArray:
		return list(c, 12, what, func() any { return c.array(what, nesting-1) })
	case typeUint64:
		return many(c, 8, what, le.Uint64)
	case typeInt64:
		return many(c, 8, what, int64At)
	case typeFloat64:
		return many(c, 8, what, float64At)
	default:
		c.fail("%s is an array of the type %d, which GGUF does not know", what, t)
	}
	return nil
}

// one reads a value of size bytes.
func one[T any](c *cursor, size uint64, what string, at func([]byte) T) T {
	if b := c.take(size, what); b != nil {
		return at(b)
	}
	var zero T
	return zero
}

// many reads an array of values of size bytes.
func many[T any](c *cursor, size uint64, what string, at func([]byte) T) []T {
	n := c.count(size, "elements of "+what)
	b := c.take(n*size, what)
	values := make([]T, n)
	for i := range values {
		values[i] = at(b[uint64(i)*size:])
	}
	return values
}

// list reads an array of items that take at least size bytes each.
func list[T any](c *cursor, size uint64, what string, next func() T) []T {
	n := c.count(size, "elements of "+what)
	var values []T
	for i := uint64(0); i < n && c.err == nil; i++ {
		values = append(values, next())
	}
	return values
}

func (c *cursor) boolAt(what string) func([]byte) bool {
	return func(b []byte) bool {
		if b[0] > 1 {
			c.fail("%s holds the byte %d, but a boolean must be 0 or 1", what, b[0])
		}
		return b[0] != 0
	}
}

func uint8At(b []byte) uint8     { return b[0] }
func int8At(b []byte) int8       { return int8(b[0]) }
func int16At(b []byte) int16     { return int16(le.Uint16(b)) }
func int32At(b []byte) int32     { return int32(le.Uint32(b)) }
func int64At(b []byte) int64     { return int64(le.Uint64(b)) }
func float32At(b []byte) float32 { return math.Float32frombits(le.Uint32(b)) }
func float64At(b []byte) float64 { return math.Float64frombits(le.Uint64(b)) }
