// Package reason holds the reasons why a block was not recognized, or not replaced: a code that programs can rely on,
// the node concerned, one line for people, and the figures in it.
package reason

import (
	"errors"
	"fmt"

	"github.com/mojo-patch/mojo-patch/onnx"
)

// A Reason is a reason as an error. As finds it in a wrapped error.
type Reason struct {
	// Code is the kind of reason. It appears in reports and does not change between versions.
	Code Code
	// Node is where the graph differs, nil if the reason concerns the whole site.
	Node *onnx.Node
	// Figures are the numbers and names in the text, for programs.
	Figures map[string]any

	err error
}

// New returns a reason. format and args are as in fmt.Errorf, including %w.
func New(code Code, node *onnx.Node, format string, args ...any) *Reason {
	return &Reason{Code: code, Node: node, err: fmt.Errorf(format, args...)}
}

// With adds a figure and returns r.
func (r *Reason) With(name string, value any) *Reason {
	if r.Figures == nil {
		r.Figures = map[string]any{}
	}
	r.Figures[name] = value
	return r
}

// Error returns the reason in one line.
func (r *Reason) Error() string { return r.err.Error() }

// Unwrap returns the error that the reason wraps, if any.
func (r *Reason) Unwrap() error { return errors.Unwrap(r.err) }

// As returns the reason that err is or wraps, or nil.
func As(err error) *Reason {
	var r *Reason
	if errors.As(err, &r) {
		return r
	}
	return nil
}
