package reference

import (
	"maps"

	"github.com/mojo-patch/mojo-patch/onnx"
)

// opFunc evaluates one call.
type opFunc func(c *call) []*Tensor

// opDef is an entry of the op table.
type opDef struct {
	fn  opFunc
	min int // the number of required inputs
	// arithmetic ops make new elements, which the dispatcher rounds or wraps to their type.
	arithmetic bool
	takes      kind
}

// kind is the kind of inputs that an op takes.
type kind int

const (
	numbers kind = iota // tensors of numbers
	tensors             // strings too
	values              // sequences too
)

// check fails for an input of another kind.
func (k kind) check(i int, x *Tensor) {
	switch {
	case x == nil:
	case x.isSeq && k < values:
		fail("input %d is a %s, expected a tensor", i, x)
	case x.DataType == onnx.String && k < tensors:
		fail("input %d is %s, expected numbers", i, x)
	}
}

// table maps the standard's op types, and domain:type of others, to their implementation. The ops check the opset
// themselves if versions differ.
var table = map[string]opDef{}

// arith is an op whose outputs are rounded; min is the number of required inputs.
func arith(min int, fn opFunc) opDef { return opDef{fn: fn, min: min, arithmetic: true} }

// plain is an op that moves elements of any type.
func plain(min int, fn opFunc) opDef { return opDef{fn: fn, min: min, takes: tensors} }

// anything is an op that takes sequences too.
func anything(min int, fn opFunc) opDef { return opDef{fn: fn, min: min, takes: values} }

// exact is an op on numbers whose results need no rounding.
func exact(min int, fn opFunc) opDef { return opDef{fn: fn, min: min} }

// The table is filled at start, not in its declaration, because control flow ops refer back to it.
func init() {
	for _, ops := range []map[string]opDef{activationOps, attentionOps, binaryOps, blockOps, castOps, constantOps,
		controlOps, convOps, gatherOps, linearOps, logicOps, matmulOps, mixtureOps, normOps, poolOps, quantOps,
		recurrentOps, reduceOps, scatterOps, sequenceOps, shapeOps, sliceOps, sortOps, spaceOps, unaryOps} {
		maps.Copy(table, ops)
	}
}

func one(t *Tensor) []*Tensor { return []*Tensor{t} }
