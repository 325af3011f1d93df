package crosscheck

import (
	"bytes"
	"encoding/binary"
	"fmt"

	"github.com/mojo-patch/mojo-patch/onnx"
)

// elements returns the elements of a small tensor as a slice of Go numbers.
func elements(t *onnx.Tensor) (any, error) {
	b, err := t.Bytes()
	if err != nil {
		return nil, err
	}
	n := t.Len()
	var list any
	switch t.DataType {
	case onnx.Float:
		list = make([]float32, n)
	case onnx.Double:
		list = make([]float64, n)
	case onnx.Int32:
		list = make([]int32, n)
	case onnx.Int64:
		list = make([]int64, n)
	case onnx.Bool:
		list = make([]bool, n)
	default:
		return nil, fmt.Errorf("elements of type %s", t.DataType)
	}
	return list, binary.Read(bytes.NewReader(b), binary.LittleEndian, list)
}
