package ort

/*
#include "shim.h"
*/
import "C"

import (
	"fmt"
	"slices"
	"unsafe"

	"github.com/mojo-patch/mojo-patch/onnx"
)

// Inputs describes the inputs that Run needs, in the model's order.
func (s *Session) Inputs() []Info { return slices.Clone(s.inputs) }

// Outputs describes the outputs that Run returns, in the model's order.
func (s *Session) Outputs() []Info { return slices.Clone(s.outputs) }

// Path returns the model's path as given to Open.
func (s *Session) Path() string { return s.path }

// Runtime describes the onnxruntime that the session runs in.
func (s *Session) Runtime() Library { return s.api.library("loaded") }

func (s *Session) ports(kind C.int) ([]Info, error) {
	var n C.size_t
	if err := take(C.mojo_port_count(s.api.c, s.raw, kind, &n)); err != nil {
		return nil, fmt.Errorf("cannot count inputs and outputs: %w", err)
	}
	list := make([]Info, n)
	for i := range list {
		var port C.mojo_port
		err := take(C.mojo_port_get(s.api.c, s.raw, kind, C.size_t(i), &port))
		if err == nil {
			list[i] = info(&port)
		}
		C.mojo_port_free(&port)
		if err != nil {
			return nil, fmt.Errorf("cannot describe inputs and outputs: %w", err)
		}
	}
	return list, nil
}

func info(port *C.mojo_port) Info {
	i := Info{Name: C.GoString(port.name)}
	if port.is_tensor == 0 {
		return i
	}
	i.DataType = fromElementType(port._type)
	i.Dims = make([]onnx.Dim, port.rank)
	dims := unsafe.Slice(port.dims, port.rank)
	symbols := unsafe.Slice(port.symbols, port.rank)
	for k := range i.Dims {
		i.Dims[k] = onnx.Dim{Value: int64(dims[k]), Param: C.GoString(symbols[k])}
	}
	return i
}

// elementTypes contains the element types whose numbers differ between onnxruntime and ONNX.
var elementTypes = map[onnx.DataType]C.int{
	onnx.Uint2:      C.mojo_uint2,
	onnx.Int2:       C.mojo_int2,
	onnx.Float8E8M0: C.mojo_float8e8m0,
	onnx.Float6E2M3: C.mojo_undefined,
	onnx.Float6E3M2: C.mojo_undefined,
}

func toElementType(t onnx.DataType) C.int {
	if c, ok := elementTypes[t]; ok {
		return c
	}
	return C.int(t)
}

func fromElementType(c C.int) onnx.DataType {
	for t, number := range elementTypes {
		if number == c && c != C.mojo_undefined {
			return t
		}
	}
	return onnx.DataType(c)
}
