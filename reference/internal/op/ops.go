package op

import (
	"errors"

	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/reference/internal/tensor"
)

// Func evaluates one call.
type Func func(c *Call) []*tensor.Tensor

// Def is an entry of the op table.
type Def struct {
	Fn  Func
	Min int // the number of required inputs
	// arithmetic ops make new elements, which the dispatcher rounds or wraps to their type.
	Arithmetic bool
	Takes      kind
}

// kind is the kind of inputs that an op takes.
type kind int

const (
	numbers kind = iota // tensors of numbers
	Tensors             // strings too
	values              // sequences too
)

// Check fails for an input of another kind.
func (k kind) Check(i int, x *tensor.Tensor) {
	switch {
	case x == nil:
	case tensor.IsSequence(x) && k < values:
		tensor.Fail("input %d is a %s, expected a tensor", i, x)
	case x.DataType == onnx.String && k < Tensors:
		tensor.Fail("input %d is %s, expected numbers", i, x)
	}
}

// Arith is an op whose outputs are rounded; min is the number of required inputs.
func Arith(min int, fn Func) Def { return Def{Fn: fn, Min: min, Arithmetic: true} }

// Plain is an op that moves elements of any type.
func Plain(min int, fn Func) Def { return Def{Fn: fn, Min: min, Takes: Tensors} }

// Anything is an op that takes sequences too.
func Anything(min int, fn Func) Def { return Def{Fn: fn, Min: min, Takes: values} }

// Exact is an op on numbers whose results need no rounding.
func Exact(min int, fn Func) Def { return Def{Fn: fn, Min: min} }

// One makes the outputs of an op that has one.
func One(t *tensor.Tensor) []*tensor.Tensor { return []*tensor.Tensor{t} }

// ErrUnsupported is wrapped by errors about ops that the evaluator lacks.
var ErrUnsupported = errors.New("the built-in evaluator has no such op")
