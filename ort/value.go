package ort

/*
#include <stdlib.h>
#include "shim.h"
*/
import "C"

import (
	"errors"
	"fmt"
	"runtime"
	"slices"
	"unsafe"

	"github.com/mojo-patch/mojo-patch/onnx"
)

// Value is a tensor in the memory that a session reads or writes, on the host or a device. Closing the session also
// closes the value.
type Value struct {
	Name     string
	DataType onnx.DataType
	Dims     []int64
	Device   string // onnxruntime's name: "Cpu", "Cuda"

	s      *Session
	raw    *C.OrtValue
	id     int // of the device
	onHost bool
}

// Allocate makes an uninitialized value for the input or output of that name. Use it for inputs that are written before
// each run (Value.Write) and for outputs that become inputs.
func (s *Session) Allocate(name string, dims []int64) (*Value, error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if s.session == nil {
		return nil, fmt.Errorf("%s: %w", s.path, ErrClosed)
	}
	has := func(ports []Info) bool {
		return slices.ContainsFunc(ports, func(i Info) bool { return i.Name == name })
	}
	kind := C.int(C.MOJO_INPUTS)
	if !has(s.inputs) && !has(s.overridable) {
		kind = C.MOJO_OUTPUTS
	}
	place, info, err := s.place(name, kind)
	if err != nil {
		return nil, err
	}
	v := &Value{Name: name, s: s}
	size := (&onnx.Tensor{DataType: info.DataType, Dims: dims}).Size()
	if size < 0 {
		return nil, fmt.Errorf("%s: %q cannot be %s%v", s.path, name, info.DataType, dims)
	}
	cdims := append(make([]int64, 0, len(dims)+1), dims...)[:len(dims)+1]
	allocator, err := s.held.allocator(s, place.memory)
	if err == nil {
		err = take(C.mojo_allocate(s.api.c, allocator, (*C.int64_t)(&cdims[0]), C.size_t(len(dims)),
			toElementType(info.DataType), &v.raw))
	}
	if err != nil {
		return nil, fmt.Errorf("%s: cannot allocate %s%v for %q: %w", s.path, info.DataType, dims, name, err)
	}
	s.held.add(v)
	if err := v.describe(); err != nil {
		return nil, errors.Join(fmt.Errorf("%s: %q: %w", s.path, name, err), v.Close())
	}
	return v, nil
}

// place returns the memory of the input or output of that name.
func (s *Session) place(name string, kind C.int) (C.mojo_place, Info, error) {
	ports, what := s.inputs, "input"
	if kind == C.MOJO_OUTPUTS {
		ports, what = s.outputs, "output"
	}
	named := func(p Info) bool { return p.Name == name }
	i := slices.IndexFunc(ports, named)
	if at := slices.IndexFunc(s.overridable, named); i < 0 && kind == C.MOJO_INPUTS && at >= 0 && len(s.outputs) > 0 {
		// onnxruntime does not say where it reads inputs with defaults: they are taken to be where the outputs are.
		place, _, err := s.place(s.outputs[0].Name, C.MOJO_OUTPUTS)
		return place, s.overridable[at], err
	}
	if i < 0 {
		return C.mojo_place{}, Info{}, fmt.Errorf("%s: the model has no %s %q; it has %s", s.path, what, name,
			list(ports))
	}
	s.held.Lock()
	defer s.held.Unlock()
	if s.places[kind] == nil {
		places := make([]C.mojo_place, len(ports))
		if err := take(C.mojo_places(s.api.c, s.raw, kind, C.size_t(len(ports)), &places[0])); err != nil {
			return C.mojo_place{}, Info{}, fmt.Errorf("%s: cannot tell on which device %s %q is: "+
				"%w", s.path, what, name, err)
		}
		if s.places == nil {
			s.places = map[C.int][]C.mojo_place{}
		}
		s.places[kind] = places
	}
	return s.places[kind][i], ports[i], nil
}

func (v *Value) describe() error {
	var place C.mojo_place
	if err := take(C.mojo_value_place(v.s.api.c, v.raw, &place)); err != nil {
		return err
	}
	v.Device, v.id, v.onHost = C.GoString(place.device), int(place.id), place.on_host != 0
	dt, dims, _, err := v.s.api.view(v.raw)
	v.DataType, v.Dims = dt, dims
	return err
}

// OnHost reports whether the host can read the value, with Bytes.
func (v *Value) OnHost() bool { return v.onHost }

// Tensor copies the value to the host.
func (v *Value) Tensor() (*onnx.Tensor, error) {
	if v.raw == nil {
		return nil, ErrClosed
	}
	if v.onHost {
		return v.s.tensor(v.Name, v.raw)
	}
	t := &onnx.Tensor{DataType: v.DataType, Dims: v.Dims}
	b := make([]byte, t.Size())
	t, err := onnx.NewTensor(v.Name, v.DataType, v.Dims, b)
	if err != nil || len(b) == 0 {
		return t, err
	}
	return t, v.copy(b, false)
}

// Bytes returns the elements of a value on the host without copying: little-endian, packed. They are valid until the
// value is closed, and must not be changed. It returns an error for a value on a device; see Tensor.
func (v *Value) Bytes() ([]byte, error) {
	if v.raw == nil {
		return nil, ErrClosed
	}
	if !v.onHost {
		return nil, fmt.Errorf("%s: %q is on %s, not on the host", v.s.path, v.Name, v.Device)
	}
	size := (&onnx.Tensor{DataType: v.DataType, Dims: v.Dims}).Size()
	if size < 0 {
		return nil, fmt.Errorf("%s: %q is %s%v, which has no fixed size", v.s.path, v.Name, v.DataType, v.Dims)
	}
	_, _, data, err := v.s.api.view(v.raw)
	if err != nil || size == 0 {
		return nil, err
	}
	return unsafe.Slice((*byte)(data), size), nil
}

// Write copies a tensor of the same type and shape into the value.
func (v *Value) Write(t *onnx.Tensor) error {
	if v.raw == nil {
		return ErrClosed
	}
	if t.DataType != v.DataType || !slices.Equal(t.Dims, v.Dims) {
		return fmt.Errorf("%s: cannot write %s%v to %q, which is %s%v", v.s.path, t.DataType, t.Dims, v.Name,
			v.DataType, v.Dims)
	}
	b, err := t.Bytes()
	if err != nil || len(b) == 0 {
		return err
	}
	if !v.onHost {
		return v.copy(b, true)
	}
	_, _, data, err := v.s.api.view(v.raw)
	if err == nil {
		copy(unsafe.Slice((*byte)(data), len(b)), b)
	}
	return err
}

// CopyRow copies element from of the first dimension to element to.
func (v *Value) CopyRow(to, from int) error {
	if len(v.Dims) == 0 || min(to, from) < 0 || int64(max(to, from)) >= v.Dims[0] {
		return fmt.Errorf("cannot copy row %d of %q%v to row %d", from, v.Name, v.Dims, to)
	}
	if v.onHost {
		b, err := v.Bytes()
		if err == nil {
			copyRow(b, int(v.Dims[0]), to, from)
		}
		return err
	}
	t, err := v.Tensor()
	if err != nil {
		return err
	}
	b, err := t.Bytes()
	if err != nil {
		return err
	}
	copyRow(b, int(v.Dims[0]), to, from)
	return v.Write(t)
}

func copyRow(b []byte, rows, to, from int) {
	n := len(b) / rows
	copy(b[to*n:(to+1)*n], b[from*n:(from+1)*n])
}

// copy copies bytes from the host to the device or back. onnxruntime's C API copies between devices only for registered
// plugin libraries; for its own providers a session with one Identity does it.
func (v *Value) copy(b []byte, toDevice bool) error {
	c, err := v.s.held.copier(v.s, v.DataType)
	if err != nil {
		return err
	}
	var pinner runtime.Pinner
	defer pinner.Unpin()
	host, err := v.s.api.wrap(v.DataType, v.Dims, b, &pinner)
	if err != nil {
		return err
	}
	defer C.mojo_value_release(v.s.api.c, host)
	from, to := v.raw, host
	if toDevice {
		from, to = host, v.raw
	}
	c.mu.RLock()
	defer c.mu.RUnlock()
	var binding *C.OrtIoBinding
	if err := take(C.mojo_bind(c.api.c, c.raw, &binding)); err != nil {
		return err
	}
	defer C.mojo_bind_release(c.api.c, binding)
	err = take(C.mojo_bind_input(c.api.c, binding, c.names["x"], from, 1))
	if err == nil {
		err = take(C.mojo_bind_output(c.api.c, binding, c.names["y"], to, nil))
	}
	if err == nil {
		err = take(C.mojo_bind_run(c.api.c, c.raw, nil, binding, 1))
	}
	if err != nil {
		return fmt.Errorf("%s: cannot copy %q between host and %s: %w", v.s.path, v.Name, v.Device, err)
	}
	return nil
}

// Close frees the value. Its memory stays while a binding uses it.
func (v *Value) Close() error {
	if v.raw != nil {
		C.mojo_value_release(v.s.api.c, v.raw)
		v.raw = nil
		v.s.held.remove(v)
	}
	return nil
}
