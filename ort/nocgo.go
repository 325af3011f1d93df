//go:build !cgo

package ort

import (
	"context"
	"fmt"

	"github.com/mojo-patch/mojo-patch/onnx"
)

// Built without cgo, this package finds no onnxruntime and opens no session. Callers that fall back to package
// reference on ErrNoLibrary work as usual.
var errCannotLoad = fmt.Errorf("%w: this program was built without cgo and cannot load one", ErrNoLibrary)

// api represents a loaded onnxruntime. It is never created here.
type api struct {
	version string
	level   int
	path    string
}

// Load always returns an error.
func Load(string) (Library, []string, error) { return Library{}, nil, errCannotLoad }

func loadAPI(string) (*api, error) { return nil, errCannotLoad }

// Providers returns an error that wraps ErrNoLibrary.
func Providers(string, ...string) ([]ProviderFacts, error) { return nil, errCannotLoad }

// BeginCollectives does nothing: no session exists.
func BeginCollectives(string) {}

// EndCollectives does nothing.
func EndCollectives() {}

// LeaveCollectives does nothing.
func LeaveCollectives() {}

// TryKernels always returns an error.
func TryKernels(string) error { return errCannotLoad }

// Session is a model opened by onnxruntime. Without cgo no session exists.
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

// Outputs describes the outputs that Run returns.
func (s *Session) Outputs() []Info { return nil }

// Path returns the model's path.
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

// Placement returns ErrClosed.
func (s *Session) Placement() ([]PlacedNode, error) { return nil, ErrClosed }

// RecordsGraphs returns false.
func (s *Session) RecordsGraphs() bool { return false }

// Beside returns ErrClosed.
func (s *Session) Beside(*onnx.Model) (*Session, error) { return nil, ErrClosed }

// Close does nothing.
func (s *Session) Close() error { return nil }

// Bind returns ErrClosed.
func (s *Session) Bind() (*Binding, error) { return nil, ErrClosed }

// Allocate returns ErrClosed.
func (s *Session) Allocate(string, []int64) (*Value, error) { return nil, ErrClosed }

// Binding holds the inputs and outputs of runs. Without cgo no binding exists.
type Binding struct{}

// Configure returns ErrClosed.
func (b *Binding) Configure(key, value string) error { return ErrClosed }

// Input returns ErrClosed.
func (b *Binding) Input(*onnx.Tensor) error { return ErrClosed }

// InputValue returns ErrClosed.
func (b *Binding) InputValue(string, *Value) error { return ErrClosed }

// Output returns ErrClosed.
func (b *Binding) Output(string) error { return ErrClosed }

// HostOutput returns ErrClosed.
func (b *Binding) HostOutput(string) error { return ErrClosed }

// OutputValue returns ErrClosed.
func (b *Binding) OutputValue(string, *Value) error { return ErrClosed }

// Run returns ErrClosed.
func (b *Binding) Run(context.Context) error { return ErrClosed }

// Queue returns ErrClosed.
func (b *Binding) Queue(context.Context) error { return ErrClosed }

// Outputs returns ErrClosed.
func (b *Binding) Outputs() ([]*Value, error) { return nil, ErrClosed }

// Close does nothing.
func (b *Binding) Close() error { return nil }

// Value is a tensor in the memory that a session reads or writes. Without cgo no value exists.
type Value struct {
	Name     string
	DataType onnx.DataType
	Dims     []int64
	Device   string
}

// OnHost returns true.
func (v *Value) OnHost() bool { return true }

// Tensor returns ErrClosed.
func (v *Value) Tensor() (*onnx.Tensor, error) { return nil, ErrClosed }

// Bytes returns ErrClosed.
func (v *Value) Bytes() ([]byte, error) { return nil, ErrClosed }

// Write returns ErrClosed.
func (v *Value) Write(*onnx.Tensor) error { return ErrClosed }

// CopyRow returns ErrClosed.
func (v *Value) CopyRow(int, int) error { return ErrClosed }

// Close does nothing.
func (v *Value) Close() error { return nil }
