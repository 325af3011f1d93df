package onnx

import (
	"encoding/binary"
	"math"
	"strconv"

	"github.com/x448/float16"
)

// elementTexts formats the elements of a small tensor, nil for unsupported types.
func (t *Tensor) elementTexts() []string {
	if t.DataType == String {
		var texts []string
		for _, s := range t.Strings() {
			texts = append(texts, strconv.Quote(s))
		}
		return texts
	}
	one := elementPrinters[t.DataType]
	if one == nil {
		return nil
	}
	b, err := t.Bytes()
	if err != nil {
		return nil
	}
	size := t.DataType.Bits() / 8
	texts := make([]string, 0, len(b)/size)
	for ; len(b) >= size; b = b[size:] {
		texts = append(texts, one(b))
	}
	return texts
}

var elementPrinters = map[DataType]func([]byte) string{
	Bool:   func(b []byte) string { return strconv.FormatBool(b[0] != 0) },
	Int8:   func(b []byte) string { return strconv.Itoa(int(int8(b[0]))) },
	Uint8:  func(b []byte) string { return strconv.Itoa(int(b[0])) },
	Int16:  func(b []byte) string { return strconv.Itoa(int(int16(binary.LittleEndian.Uint16(b)))) },
	Uint16: func(b []byte) string { return strconv.Itoa(int(binary.LittleEndian.Uint16(b))) },
	Int32:  func(b []byte) string { return strconv.FormatInt(int64(int32(binary.LittleEndian.Uint32(b))), 10) },
	Uint32: func(b []byte) string { return strconv.FormatUint(uint64(binary.LittleEndian.Uint32(b)), 10) },
	Int64:  func(b []byte) string { return strconv.FormatInt(int64(binary.LittleEndian.Uint64(b)), 10) },
	Uint64: func(b []byte) string { return strconv.FormatUint(binary.LittleEndian.Uint64(b), 10) },
	Float: func(b []byte) string {
		return textFloat(float64(math.Float32frombits(binary.LittleEndian.Uint32(b))), 32)
	},
	Double: func(b []byte) string {
		return textFloat(math.Float64frombits(binary.LittleEndian.Uint64(b)), 64)
	},
	BFloat16: func(b []byte) string {
		return textFloat(float64(math.Float32frombits(uint32(binary.LittleEndian.Uint16(b))<<16)), 32)
	},
	Float16: func(b []byte) string {
		return textFloat(float64(float16.Frombits(binary.LittleEndian.Uint16(b)).Float32()), 32)
	},
}
