package ort

/*
#include "shim.h"
*/
import "C"

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"sync"

	"github.com/mojo-patch/mojo-patch/onnx"
)

// held owns the bindings and values of a session, and the allocators and copying sessions for them. It is freed with
// the session.
type held struct {
	sync.Mutex
	open       map[io.Closer]struct{} // bindings and values
	allocators map[*C.OrtMemoryInfo]*C.OrtAllocator
	copiers    map[onnx.DataType]*Session
}

func (h *held) add(c io.Closer) {
	h.Lock()
	defer h.Unlock()
	if h.open == nil {
		h.open = map[io.Closer]struct{}{}
	}
	h.open[c] = struct{}{}
}

func (h *held) remove(c io.Closer) {
	h.Lock()
	defer h.Unlock()
	delete(h.open, c)
}

// allocator returns the allocator for a place of the session. It lives as long as the session: a tensor does not keep
// its allocator, and bindings keep tensors.
//
// If the session records graphs, the allocator belongs to another session on the device. A replayed graph writes to the
// memory of its intermediate results at recording time, which the session's own allocator considers free.
func (h *held) allocator(s *Session, memory *C.OrtMemoryInfo) (*C.OrtAllocator, error) {
	from := s
	if s.RecordsGraphs() {
		var err error
		if from, err = h.copier(s, onnx.Int64); err != nil {
			return nil, err
		}
	}
	h.Lock()
	defer h.Unlock()
	if a := h.allocators[memory]; a != nil {
		return a, nil
	}
	var a *C.OrtAllocator
	if err := take(C.mojo_allocator(s.api.c, from.raw, memory, &a)); err != nil {
		return nil, err
	}
	if h.allocators == nil {
		h.allocators = map[*C.OrtMemoryInfo]*C.OrtAllocator{}
	}
	h.allocators[memory] = a
	return a, nil
}

// copier returns the session that copies tensors of a type between the host and the device.
func (h *held) copier(s *Session, dt onnx.DataType) (*Session, error) {
	h.Lock()
	defer h.Unlock()
	if c := h.copiers[dt]; c != nil {
		return c, nil
	}
	m := onnx.New(8, 17)
	m.Graph.Name = "copy"
	x := m.Graph.AddInput("x", onnx.Type{DataType: dt})
	y := m.Graph.NewValue("y")
	y.SetType(onnx.Type{DataType: dt})
	m.Graph.AddNode("Identity", []*onnx.Value{x}, []*onnx.Value{y})
	m.Graph.AddOutput(y)
	c, err := s.Beside(m)
	if err != nil {
		return nil, fmt.Errorf("cannot make the session that copies %s: %w", dt, err)
	}
	if h.copiers == nil {
		h.copiers = map[onnx.DataType]*Session{}
	}
	h.copiers[dt] = c
	return c, nil
}

// close frees everything, bindings first, because they hold values.
func (h *held) close(a *api) error {
	h.Lock()
	open, allocators, copiers := slices.Collect(maps.Keys(h.open)), h.allocators, h.copiers
	h.allocators, h.copiers = nil, nil
	h.Unlock()
	var err error
	for _, c := range open {
		if b, ok := c.(*Binding); ok {
			err = errors.Join(err, b.Close())
		}
	}
	for _, c := range open {
		err = errors.Join(err, c.Close())
	}
	for _, c := range allocators {
		C.mojo_allocator_release(a.c, c)
	}
	for _, c := range copiers {
		err = errors.Join(err, c.Close())
	}
	return err
}
