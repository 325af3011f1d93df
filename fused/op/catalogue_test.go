package op_test

import (
	"testing"

	"github.com/mojo-patch/mojo-patch/fused"
	"github.com/mojo-patch/mojo-patch/fused/op"
)

// TestShapesAreWellFormed checks that every shape parses, has a valid selector, and has only bound symbols.
func TestShapesAreWellFormed(t *testing.T) {
	for _, o := range fused.Ops() {
		op.ShapesAreWellFormed(t, o)
	}
}

// TestBounds checks each op at the bounds of each number, and just outside, which is refused by name.
func TestBounds(t *testing.T) {
	for _, o := range fused.Ops() {
		op.BoundsHold(t, o)
	}
}

// TestWideExamples has every op, in each type, take its forms at the widths of real models.
func TestWideExamples(t *testing.T) {
	for _, o := range fused.Ops() {
		op.WideExamplesHold(t, o)
	}
}
