package ort

/*
#include <stdlib.h>
#include "shim.h"
*/
import "C"

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"unsafe"

	"github.com/mojo-patch/mojo-patch/onnx"
)

// Run runs the model. Inputs are matched by name; an input without a name is matched by position. Inputs with a default
// (an initializer that is also an input) are optional. The outputs have their names and the model's order; their
// elements are copies. Run returns an error if an input is missing, unknown, given twice, or of the wrong type.
func (s *Session) Run(inputs []*onnx.Tensor) ([]*onnx.Tensor, error) {
	return s.RunContext(context.Background(), inputs)
}

// RunContext is Run that stops early, with the context's error, when the context is done.
func (s *Session) RunContext(ctx context.Context, inputs []*onnx.Tensor) ([]*onnx.Tensor, error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if s.session == nil {
		return nil, fmt.Errorf("%s: %w", s.path, ErrClosed)
	}
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("%s: %w", s.path, err)
	}
	inputs, names, err := s.arrange(inputs)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", s.path, err)
	}
	outputs, err := s.run(ctx, inputs, names)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", s.path, err)
	}
	return outputs, nil
}

// arrange checks the inputs against the model's and returns them with their names.
func (s *Session) arrange(given []*onnx.Tensor) ([]*onnx.Tensor, []string, error) {
	wanted := map[string]Info{}
	for _, i := range s.overridable {
		wanted[i.Name] = i
	}
	for _, i := range s.inputs {
		wanted[i.Name] = i
	}
	have := map[string]bool{}
	var tensors []*onnx.Tensor
	var names []string
	for k, t := range given {
		if t == nil {
			continue
		}
		name := t.Name
		if name == "" {
			if k >= len(s.inputs) {
				return nil, nil, fmt.Errorf("input %d has no name, but the model has %d inputs", k, len(s.inputs))
			}
			name = s.inputs[k].Name
		}
		want, ok := wanted[name]
		if !ok {
			return nil, nil, fmt.Errorf("the model has no input %q; its inputs are %s", name, list(s.inputs))
		}
		if have[name] {
			return nil, nil, fmt.Errorf("input %q is given twice", name)
		}
		have[name] = true
		if err := fits(t, want); err != nil {
			return nil, nil, err
		}
		tensors, names = append(tensors, t), append(names, name)
	}
	var missing []Info
	for _, i := range s.inputs {
		if !have[i.Name] {
			missing = append(missing, i)
		}
	}
	if len(missing) > 0 {
		return nil, nil, fmt.Errorf("missing input %s", list(missing))
	}
	return tensors, names, nil
}

// fits returns an error unless the tensor has the type and shape that the model requires.
func fits(t *onnx.Tensor, want Info) error {
	if want.DataType == onnx.Undefined {
		return fmt.Errorf("input %q is not a dense tensor in the model: sequences, maps and optional values are not "+
			"supported", want.Name)
	}
	if want.DataType == onnx.String {
		return fmt.Errorf("input %q holds strings, which are not supported", want.Name)
	}
	ok := t.DataType == want.DataType && len(t.Dims) == len(want.Dims)
	for k := 0; ok && k < len(t.Dims); k++ {
		ok = want.Dims[k].Value < 0 || want.Dims[k].Value == t.Dims[k]
	}
	// onnxruntime reports an unknown rank as rank 0, so a declared scalar does not restrict the shape.
	if !ok && !(t.DataType == want.DataType && len(want.Dims) == 0) {
		return fmt.Errorf("input %q is %s%v, but the model needs %s", want.Name, t.DataType, t.Dims, want)
	}
	return nil
}

func list(infos []Info) string {
	s := make([]string, len(infos))
	for i := range infos {
		s[i] = infos[i].String()
	}
	return strings.Join(s, ", ")
}

func (s *Session) run(ctx context.Context, inputs []*onnx.Tensor, names []string) ([]*onnx.Tensor, error) {
	var pinner runtime.Pinner // onnxruntime keeps the addresses of the inputs until their values are released
	defer pinner.Unpin()
	// One more than needed, so that there is an address even without inputs.
	values := make([]*C.OrtValue, len(inputs)+1)
	cnames := make([]*C.char, len(inputs)+1)
	results := make([]*C.OrtValue, len(s.outputs)+1)
	resultNames := make([]*C.char, len(s.outputs)+1)
	defer func() {
		for _, v := range append(values, results...) {
			C.mojo_value_release(s.api.c, v)
		}
	}()
	for i, t := range inputs {
		v, err := s.value(t, &pinner)
		if err != nil {
			return nil, fmt.Errorf("input %q: %w", names[i], err)
		}
		values[i], cnames[i] = v, s.names[names[i]]
	}
	for i, o := range s.outputs {
		resultNames[i] = s.names[o.Name]
	}
	var options *C.OrtRunOptions
	if ctx.Done() != nil {
		if err := take(C.mojo_run_options(s.api.c, &options)); err != nil {
			return nil, err
		}
		ended := make(chan struct{})
		stop := context.AfterFunc(ctx, func() { C.mojo_terminate(s.api.c, options); close(ended) })
		defer func() {
			if !stop() {
				<-ended // the options must not be freed while it uses them
			}
			C.mojo_run_options_release(s.api.c, options)
		}()
	}
	err := take(C.mojo_run(s.api.c, s.raw, options, &cnames[0], &values[0], C.size_t(len(inputs)),
		&resultNames[0], C.size_t(len(s.outputs)), &results[0]))
	if err != nil {
		return nil, errors.Join(ctx.Err(), fmt.Errorf("onnxruntime %s cannot run it: %w", s.api.version, err))
	}
	outputs := make([]*onnx.Tensor, len(s.outputs))
	for i, o := range s.outputs {
		if outputs[i], err = s.tensor(o.Name, results[i]); err != nil {
			return nil, fmt.Errorf("output %q: %w", o.Name, err)
		}
	}
	return outputs, nil
}

// alignment of the inputs' elements. Vectorized kernels of onnxruntime may rely on allocator alignment.
const alignment = 16

// value makes an onnxruntime value over the tensor's elements, which the pinner keeps in place.
func (s *Session) value(t *onnx.Tensor, pinner *runtime.Pinner) (*C.OrtValue, error) {
	b, err := t.Bytes()
	if err != nil {
		return nil, err
	}
	if len(b) > 0 && uintptr(unsafe.Pointer(&b[0]))%alignment != 0 {
		b = aligned(b)
	}
	return s.api.wrap(t.DataType, t.Dims, b, pinner)
}

// wrap makes an onnxruntime value over elements, which the pinner keeps in place.
func (a *api) wrap(dt onnx.DataType, shape []int64, b []byte, pinner *runtime.Pinner) (*C.OrtValue, error) {
	var data unsafe.Pointer
	if len(b) > 0 {
		data = unsafe.Pointer(&b[0])
		pinner.Pin(data)
	}
	dims := append(make([]int64, 0, len(shape)+1), shape...)[:len(shape)+1]
	var v *C.OrtValue
	err := take(C.mojo_tensor(a.c, data, C.size_t(len(b)), (*C.int64_t)(&dims[0]), C.size_t(len(shape)),
		toElementType(dt), &v))
	return v, err
}

func aligned(b []byte) []byte {
	c := make([]byte, len(b)+alignment)
	if r := uintptr(unsafe.Pointer(&c[0])) % alignment; r != 0 {
		c = c[alignment-r:]
	}
	return c[:copy(c, b)]
}

// tensor copies an onnxruntime value on the host.
func (s *Session) tensor(name string, v *C.OrtValue) (*onnx.Tensor, error) {
	dt, dims, data, err := s.api.view(v)
	if err != nil {
		return nil, err
	}
	size := (&onnx.Tensor{DataType: dt, Dims: dims}).Size()
	if size < 0 {
		return nil, fmt.Errorf("tensors of %s%v are not supported", dt, dims)
	}
	b := make([]byte, size)
	if size > 0 {
		copy(b, unsafe.Slice((*byte)(data), size))
	}
	return onnx.NewTensor(name, dt, dims, b)
}

// view returns the type, shape and elements of an onnxruntime value.
func (a *api) view(v *C.OrtValue) (onnx.DataType, []int64, unsafe.Pointer, error) {
	var elementType C.int
	var rank C.size_t
	var cdims *C.int64_t
	var data unsafe.Pointer
	if err := take(C.mojo_tensor_get(a.c, v, &elementType, &rank, &cdims, &data)); err != nil {
		return onnx.Undefined, nil, nil, err
	}
	defer C.free(unsafe.Pointer(cdims))
	dims := make([]int64, rank)
	for i, d := range unsafe.Slice(cdims, rank) {
		dims[i] = int64(d)
	}
	return fromElementType(elementType), dims, data, nil
}
