package main

import (
	"errors"

	"github.com/mojo-patch/mojo-patch/fused"
	"github.com/mojo-patch/mojo-patch/ort"
	"github.com/mojo-patch/mojo-patch/rewrite"
)

// The exit codes, the same for every command.
const (
	exitDone        = 0
	exitFailed      = 1 // a comparison or a check failed, or a model could not be run
	exitUsage       = 2 // wrong arguments, or a file that cannot be read or written
	exitNothing     = 3 // nothing was fused, under --require
	exitEnvironment = 4 // onnxruntime, the kernel library or the kernels of a device are missing
)

// exitError is an error with an exit code. Its message may be empty when all was said already.
type exitError struct {
	code int
	err  error
}

func (e *exitError) Error() string {
	if e.err == nil {
		return ""
	}
	return e.err.Error()
}

func (e *exitError) Unwrap() error { return e.err }

func failed(err error) error      { return &exitError{exitFailed, err} }
func environment(err error) error { return &exitError{exitEnvironment, err} }

// exitCode returns the code for an error: what it says itself, or else by its kind.
func exitCode(err error) int {
	if err == nil {
		return exitDone
	}
	var coded *exitError
	if errors.As(err, &coded) {
		return coded.code
	}
	var unavailable *rewrite.UnavailableError
	var device *rewrite.DeviceError
	if errors.As(err, &unavailable) || errors.As(err, &device) || errors.Is(err, ort.ErrNoLibrary) ||
		errors.Is(err, fused.ErrNoLibrary) {
		return exitEnvironment
	}
	return exitUsage
}
