//go:build !cgo

package ort

import (
	"context"
	"fmt"

	"github.com/mojo-patch/mojo-patch/onnx"
)

// Built without cgo, this package finds no onnxruntime and opens no session: whoever falls back on package reference
// where ErrNoLibrary is returned works as ever.
var errCannotLoad = fmt.Errorf("%w: this program was built without cgo and cannot load one", ErrNoLibrary)

// api stands for a loaded onnxruntime, of which there is none.
type api struct {
	version string
	level   int
	path    string
}

func load(string) (*api, error) { return nil, errCannotLoad }

func loadAPI(string) (*api, error) { return nil, errCannotLoad }

func (a *api) providers() ([]string, error) { return nil, errCannotLoad }

func tryKernels(string) error { return errCannotLoad }

// Session is a model opened by onnxruntime. Without cgo there is none.
type Session struct{}

// Open returns an error that wraps ErrNoLibrary.
func Open(path string, _ ...Option) (*Session, error) {
	return nil, fmt.Errorf("%s: %w", path, errCannotLoad)
}

// OpenBytes returns an error that wraps ErrNoLibrary.
func OpenBytes(_ []byte, path string, options ...Option) (*Session, error) {
	return Open(path, options...)
}

// Inputs describes the inputs that Run needs.
func (s *Session) Inputs() []Info { return nil }

// Outputs describes the outputs that Run gives.
func (s *Session) Outputs() []Info { return nil }

// Path is the model's path.
func (s *Session) Path() string { return "" }

// Runtime describes the onnxruntime that the session runs in.
func (s *Session) Runtime() Library { return Library{} }

// Run returns ErrClosed.
func (s *Session) Run([]*onnx.Tensor) ([]*onnx.Tensor, error) { return nil, ErrClosed }

// RunContext returns ErrClosed.
func (s *Session) RunContext(context.Context, []*onnx.Tensor) ([]*onnx.Tensor, error) {
	return nil, ErrClosed
}

// EndProfiling returns ErrClosed.
func (s *Session) EndProfiling() (string, error) { return "", ErrClosed }

// Close does nothing.
func (s *Session) Close() error { return nil }
