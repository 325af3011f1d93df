package rules

import (
	"math"
	"slices"

	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/reference"
)

// Worlds is the number of assignments of numbers to symbolic dimensions.
const Worlds = 3

// Proof is the world in which open dimensions are expressions; AllWorlds is the number of worlds including it. Values
// that are equal there are equal for all sizes; see package term.
const (
	Proof     = Worlds
	AllWorlds = Worlds + 1
)

// MaxElements is the size up to which the elements of a tensor are followed.
const MaxElements = 1024

// Fact is the facts about one value. Its slices and tensors are shared between facts and never changed.
type Fact struct {
	DataType onnx.DataType
	// Shape is nil if even the rank is unknown; an unknown dimension is -1.
	Shape [AllWorlds][]int64
	Value [AllWorlds]*reference.Tensor
	// Follows classifies how known elements depend on open sizes.
	Follows Follows
	// Same means that all worlds have the very same slices and tensors.
	Same bool
}

// Nothing holds no facts.
var Nothing = &Fact{Same: true}

// Follows classifies how the elements of a value depend on open sizes.
type Follows uint8

const (
	steady    Follows = iota // they do not
	algebraic                // by sums and products, or they count the places of an axis
	Loose                    // otherwise: values at some sizes do not determine those at others
)

// Complete reports whether the rank and every dimension are known.
func Complete(s []int64) bool {
	return s != nil && !slices.Contains(s, -1)
}

// product multiplies dimensions. It returns -1 if one is unknown or the product overflows.
func product(s []int64) int64 {
	if slices.Contains(s, 0) {
		return 0
	}
	n := int64(1)
	for _, d := range s {
		if d < 0 || n > math.MaxInt64/16/d {
			return -1
		}
		n *= d
	}
	return n
}
