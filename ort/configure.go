//go:build cgo

package ort

/*
#include <stdlib.h>
#include "shim.h"
*/
import "C"

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"unsafe"

	"github.com/mojo-patch/mojo-patch/fused"
	"github.com/mojo-patch/mojo-patch/ort/providers"
	"github.com/yalue/onnxruntime_go"
)

// apply makes onnxruntime's session options; the caller destroys them.
func (c *config) apply() (*onnxruntime_go.SessionOptions, error) {
	o, err := onnxruntime_go.NewSessionOptions()
	if err != nil {
		return nil, err
	}
	if err := c.set(o); err != nil {
		return nil, errors.Join(err, o.Destroy())
	}
	return o, nil
}

func (c *config) set(o *onnxruntime_go.SessionOptions) error {
	if c.threads < 0 {
		return fmt.Errorf("the number of threads is %d: it must be 0 (onnxruntime chooses) or more", c.threads)
	}
	levels := map[Optimization]onnxruntime_go.GraphOptimizationLevel{
		OptimizeNone:     onnxruntime_go.GraphOptimizationLevelDisableAll,
		OptimizeBasic:    onnxruntime_go.GraphOptimizationLevelEnableBasic,
		OptimizeExtended: onnxruntime_go.GraphOptimizationLevelEnableExtended,
		OptimizeAll:      onnxruntime_go.GraphOptimizationLevelEnableAll,
	}
	level, ok := levels[c.optimization]
	if !ok {
		return fmt.Errorf("unknown optimization level %v", c.optimization)
	}
	if err := o.SetGraphOptimizationLevel(level); err != nil {
		return err
	}
	if err := o.SetLogSeverityLevel(onnxruntime_go.LoggingLevel(c.severity)); err != nil {
		return fmt.Errorf("log severity %d: %w", c.severity, err)
	}
	if c.threads > 0 {
		if err := o.SetIntraOpNumThreads(c.threads); err != nil {
			return err
		}
	}
	if c.profile != "" {
		if err := o.EnableProfiling(c.profile); err != nil {
			return fmt.Errorf("profiling to %q: %w", c.profile, err)
		}
	}
	if c.optimizedPath != "" {
		if err := o.SetOptimizedModelFilePath(c.optimizedPath); err != nil {
			return err
		}
	}
	for _, key := range slices.Sorted(maps.Keys(c.entries)) {
		if err := o.AddSessionConfigEntry(key, c.entries[key]); err != nil {
			return fmt.Errorf("session config entry %q: %w", key, err)
		}
	}
	if err := c.setDimensions(o); err != nil {
		return err
	}
	for _, p := range c.providers {
		if err := c.appendProvider(o, p); err != nil {
			return fmt.Errorf("execution provider %q: %w", providers.Short(p.name), err)
		}
	}
	return c.registerKernels(o)
}

func (c *config) registerKernels(o *onnxruntime_go.SessionOptions) error {
	paths := c.kernels
	if c.findKernels {
		found, err := fused.FindLibrary("")
		if err != nil {
			return err
		}
		paths = append([]string{found}, paths...)
	}
	for _, path := range paths {
		if err := o.RegisterCustomOpsLibrary(path); err != nil {
			return fmt.Errorf("cannot register the kernels of %s: %w", path, err)
		}
		registered.Store(path, true)
	}
	return nil
}

// registered holds the paths of the kernel libraries of this process's sessions.
var registered sync.Map

// BeginCollectives begins to connect this process to the other ranks of a sharded model, as opening a session does. A
// program that calls it before it loads the model can tell them by LeaveCollectives that it fails. kernels is the path
// of the library that the session will register (fused.FindLibrary).
func BeginCollectives(kernels string) {
	registered.Store(kernels, true)
	callCollectives("MojoCollectivesBegin")
}

// EndCollectives ends the communication of this process with the other ranks of a sharded model. It waits until they
// end it too. A process that exits without it looks like a dead rank to MPI, which then ends the others.
func EndCollectives() { callCollectives("MojoCollectivesFinalize") }

// LeaveCollectives prepares an exit after an error. It waits for up to 5 seconds until this process is connected to the
// other ranks, because they notice the end of a process only then.
func LeaveCollectives() { callCollectives("MojoCollectivesLeave") }

func callCollectives(function string) {
	registered.Range(func(path, _ any) bool {
		cpath, cfunction := C.CString(path.(string)), C.CString(function)
		defer C.free(unsafe.Pointer(cpath))
		defer C.free(unsafe.Pointer(cfunction))
		C.mojo_collectives(cpath, cfunction)
		return true
	})
}

// TryKernels registers a kernel library with options that no session uses. Load onnxruntime before.
func TryKernels(path string) error {
	o, err := onnxruntime_go.NewSessionOptions()
	if err != nil {
		return err
	}
	defer o.Destroy()
	if err := o.RegisterCustomOpsLibrary(path); err != nil {
		return fmt.Errorf("cannot register the kernels of %s: %w", path, err)
	}
	return nil
}
