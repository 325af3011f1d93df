package onnx

import (
	"encoding/binary"
	"math"
	"strconv"
)

// elementTexts prints the elements of a small tensor, nil for types it does not print.
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
	Float16: func(b []byte) string { return textFloat(float16(binary.LittleEndian.Uint16(b)), 32) },
}

// float16 decodes an IEEE half.
func float16(h uint16) float64 {
	sign, exponent, mantissa := 1.0, int(h>>10&0x1f), float64(h&0x3ff)
	if h>>15 != 0 {
		sign = -1
	}
	switch exponent {
	case 0:
		return sign * math.Ldexp(mantissa, -24)
	case 0x1f:
		if mantissa != 0 {
			return math.NaN()
		}
		return math.Inf(int(sign))
	}
	return sign * math.Ldexp(1024+mantissa, exponent-25)
}
