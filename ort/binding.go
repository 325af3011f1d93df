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
	"slices"
	"sync"
	"unsafe"

	"github.com/mojo-patch/mojo-patch/onnx"
)

// Binding holds the inputs and outputs of runs in the memory of the session's execution provider, so that a run copies
// nothing between host and device. Only one goroutine may use it at a time.
//
// Inputs and outputs stay bound to the same memory from run to run, as a CUDA graph requires.
type Binding struct {
	s       *Session
	raw     *C.OrtIoBinding
	options *C.OrtRunOptions
	queued  *C.OrtRunOptions  // the same, without waiting for the device
	inputs  map[string]*Value // those made by Input
	outputs []string          // in the order of onnxruntime's list
	ran     bool              // since the last output was bound
}

// Bind returns a binding without inputs and outputs. Closing the session also closes the binding.
func (s *Session) Bind() (*Binding, error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if s.session == nil {
		return nil, fmt.Errorf("%s: %w", s.path, ErrClosed)
	}
	b := &Binding{s: s, inputs: map[string]*Value{}}
	if err := take(C.mojo_bind(s.api.c, s.raw, &b.raw)); err != nil {
		return nil, fmt.Errorf("%s: cannot bind inputs and outputs: %w", s.path, err)
	}
	err := errors.Join(take(C.mojo_run_options(s.api.c, &b.options)), take(C.mojo_run_options(s.api.c, &b.queued)))
	if err != nil {
		return nil, errors.Join(fmt.Errorf("%s: cannot make options of a run: %w", s.path, err), b.Close())
	}
	if err := b.set(b.queued, disableSynchronize, "1"); err != nil {
		return nil, errors.Join(err, b.Close())
	}
	s.held.add(b)
	return b, nil
}

// disableSynchronize is the run option that makes onnxruntime not wait for the device.
const disableSynchronize = "disable_synchronize_execution_providers"

// Configure sets an entry of onnxruntime's run options for all runs, for example "gpu_graph_id" to "1".
func (b *Binding) Configure(key, value string) error {
	if b.raw == nil {
		return ErrClosed
	}
	return errors.Join(b.set(b.options, key, value), b.set(b.queued, key, value))
}

func (b *Binding) set(options *C.OrtRunOptions, key, value string) error {
	k, v := C.CString(key), C.CString(value)
	defer C.free(unsafe.Pointer(k))
	defer C.free(unsafe.Pointer(v))
	if err := take(C.mojo_run_option(b.s.api.c, options, k, v)); err != nil {
		return fmt.Errorf("%s: run option %q: %w", b.s.path, key, err)
	}
	return nil
}

// Input copies a tensor to the memory from which the session reads the input of its name. An input that Input bound
// before with the same type and shape is overwritten in place.
func (b *Binding) Input(t *onnx.Tensor) error {
	if b.raw == nil {
		return ErrClosed
	}
	if v := b.inputs[t.Name]; v != nil && v.DataType == t.DataType && slices.Equal(v.Dims, t.Dims) {
		return v.Write(t)
	}
	known := slices.Concat(b.s.inputs, b.s.overridable)
	i := slices.IndexFunc(known, func(i Info) bool { return i.Name == t.Name })
	if i < 0 {
		return fmt.Errorf("%s: the model has no input %q; its inputs are %s", b.s.path, t.Name, list(b.s.inputs))
	}
	if err := fits(t, known[i]); err != nil {
		return fmt.Errorf("%s: %w", b.s.path, err)
	}
	v, err := b.s.Allocate(t.Name, t.Dims)
	if err != nil {
		return err
	}
	if err := errors.Join(v.Write(t), b.InputValue(t.Name, v)); err != nil {
		return errors.Join(err, v.Close())
	}
	b.inputs[t.Name] = v
	return nil
}

// InputValue makes runs read an input from a value: one of Allocate, or an output of a run. A value in other memory
// than the session reads is copied now.
func (b *Binding) InputValue(name string, v *Value) error {
	if b.raw == nil || v.raw == nil {
		return ErrClosed
	}
	cname := b.s.names[name]
	if cname == nil {
		return fmt.Errorf("%s: the model has no input %q; its inputs are %s", b.s.path, name, list(b.s.inputs))
	}
	wait := C.int(1)
	if place, _, err := b.s.place(name, C.MOJO_INPUTS); err == nil && C.GoString(place.device) == v.Device &&
		int(place.id) == v.id {
		wait = 0 // nothing is copied
	}
	if err := take(C.mojo_bind_input(b.s.api.c, b.raw, cname, v.raw, wait)); err != nil {
		return fmt.Errorf("%s: cannot bind input %q: %w", b.s.path, name, err)
	}
	if old := b.inputs[name]; old != nil && old != v {
		delete(b.inputs, name)
		return old.Close()
	}
	return nil
}

// Output keeps an output in the session's memory, which the next run allocates. Later runs overwrite it, so an output
// whose shape changes must be bound again before each run.
func (b *Binding) Output(name string) error { return b.output(name, nil, false) }

// HostOutput makes the run copy an output to the host, for Value.Bytes, in memory that the next run allocates.
func (b *Binding) HostOutput(name string) error { return b.output(name, nil, true) }

// OutputValue makes runs write an output into a value, which must have its shape.
func (b *Binding) OutputValue(name string, v *Value) error {
	if v.raw == nil {
		return ErrClosed
	}
	return b.output(name, v.raw, false)
}

func (b *Binding) output(name string, value *C.OrtValue, host bool) error {
	if b.raw == nil {
		return ErrClosed
	}
	place, _, err := b.s.place(name, C.MOJO_OUTPUTS)
	if err != nil {
		return err
	}
	memory := place.memory
	if host {
		memory = nil
	}
	if err := take(C.mojo_bind_output(b.s.api.c, b.raw, b.s.names[name], value, memory)); err != nil {
		return fmt.Errorf("%s: cannot bind output %q: %w", b.s.path, name, err)
	}
	b.ran = false
	if !slices.Contains(b.outputs, name) {
		b.outputs = append(b.outputs, name)
	}
	return nil
}

// Run runs the model on the bound values and waits for the outputs. If the context ends it stops early with the
// context's error.
func (b *Binding) Run(ctx context.Context) error { return b.run(ctx, true) }

// Queue is Run without waiting if the session replays CUDA graphs. The device does the runs in order, and the next Run
// waits for all of them. Until then bound values must not be read, written or rebound. In other sessions Queue is Run.
func (b *Binding) Queue(ctx context.Context) error { return b.run(ctx, !b.s.RecordsGraphs()) }

func (b *Binding) run(ctx context.Context, wait bool) error {
	if b.raw == nil {
		return ErrClosed
	}
	var lock sync.Locker = b.s.mu.RLocker()
	if b.s.RecordsGraphs() { // all of them write into the same memory
		lock = &b.s.mu
	}
	lock.Lock()
	defer lock.Unlock()
	if b.s.session == nil {
		return fmt.Errorf("%s: %w", b.s.path, ErrClosed)
	}
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("%s: %w", b.s.path, err)
	}
	options, waits := b.options, C.int(1)
	if !wait {
		options, waits = b.queued, 0
	}
	if ctx.Done() != nil {
		ended := make(chan struct{})
		stop := context.AfterFunc(ctx, func() { C.mojo_terminate(b.s.api.c, options); close(ended) })
		defer func() {
			if !stop() {
				<-ended
				take(C.mojo_unset_terminate(b.s.api.c, options))
			}
		}()
	}
	if err := take(C.mojo_bind_run(b.s.api.c, b.s.raw, options, b.raw, waits)); err != nil {
		err = fmt.Errorf("onnxruntime %s cannot run it: %w", b.s.api.version, err)
		return fmt.Errorf("%s: %w", b.s.path, errors.Join(ctx.Err(), err))
	}
	b.ran = true
	return nil
}

// Outputs returns the outputs of the last run in the order in which they were first bound, without copying. The caller
// closes each.
func (b *Binding) Outputs() ([]*Value, error) {
	if b.raw == nil {
		return nil, ErrClosed
	}
	if !b.ran {
		return nil, fmt.Errorf("%s: the outputs have no values: the binding has not run since they were "+
			"bound", b.s.path)
	}
	raw := make([]*C.OrtValue, len(b.outputs)+1)
	if err := take(C.mojo_bind_outputs(b.s.api.c, b.raw, C.size_t(len(b.outputs)), &raw[0])); err != nil {
		return nil, fmt.Errorf("%s: %w", b.s.path, err)
	}
	values := make([]*Value, len(b.outputs))
	var failed error
	for i, name := range b.outputs {
		var err error
		values[i] = &Value{Name: name, s: b.s, raw: raw[i]}
		b.s.held.add(values[i])
		if err = values[i].describe(); err != nil {
			failed = errors.Join(failed, fmt.Errorf("%s: output %q: %w", b.s.path, name, err))
		}
	}
	if failed != nil {
		for _, v := range values {
			v.Close()
		}
		return nil, failed
	}
	return values, nil
}

// Close frees the binding, but not the values of Allocate and Outputs.
func (b *Binding) Close() error {
	if b.raw == nil {
		return nil
	}
	C.mojo_bind_release(b.s.api.c, b.raw)
	C.mojo_run_options_release(b.s.api.c, b.options)
	C.mojo_run_options_release(b.s.api.c, b.queued)
	b.raw, b.options, b.queued = nil, nil, nil
	for _, v := range b.inputs {
		v.Close()
	}
	b.inputs = nil
	b.s.held.remove(b)
	return nil
}
