package fit

import (
	"slices"
	"strings"

	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/patterns/match"
	"github.com/mojo-patch/mojo-patch/reference"
)

// Regions are run on smaller tensors than the model's if they can be: an image has more rows than are needed to read a
// norm, and more elements than for a gated unit.

const (
	fewRows     = 6 // of a norm: one for each kind of special row
	fewElements = 512
)

// atMost returns the shape with its first axes shortened until it has at most n elements. No axis becomes shorter than
// least, and the axes in keep are unchanged.
func atMost(shape []int, n, least int, keep ...int) []int {
	small := slices.Clone(shape)
	for axis := range small {
		if d := small[axis]; d > least && !slices.Contains(keep, axis) {
			small[axis] = min(d, max(least, n/max(1, match.Elements(small)/d)))
		}
	}
	return small
}

// smallest returns the first shape that a region can be run with, so that its operands and its result have it. It
// returns nil if there is none.
func (f *finder) smallest(r *region, shapes ...[]int) []int {
	own, _ := f.lab.Shape(r.Result)
	for i, shape := range shapes {
		size := match.Elements(shape)
		if size == 0 || size > maxRunElements || slices.ContainsFunc(shapes[:i], func(was []int) bool {
			return slices.Equal(was, shape)
		}) {
			continue
		}
		if slices.Equal(shape, own) {
			return own
		}
		env := values{}
		for k, v := range r.Operands {
			env[v] = f.sized(v, shape, random(size, uint64(k)))
		}
		if y, err := f.compute(r.Result, env); err == nil && len(y) == size {
			return shape
		}
	}
	return nil
}

// isWeights reports whether a side is a constant of different numbers, or with one for each index of an axis: then the
// region may compute another function at each index.
func (f *finder) isWeights(v *onnx.Value) bool {
	for range match.MaxDetour {
		if v == nil {
			break
		}
		if c := v.Constant(); c != nil {
			return c.DataType.IsFloat() && c.Len() > 1 &&
				(isVector(c) || !strings.HasPrefix(f.contents(v), "all "))
		}
		if v.Producer == nil || v.Graph != f.g.Graph || !keepsElements(v.Producer) {
			break
		}
		v = v.Producer.Input(0)
	}
	return false
}

// keepsElements reports whether a node only changes the shape or type of its first input.
func keepsElements(n *onnx.Node) bool {
	switch n.OpType {
	case "Reshape", "Unsqueeze", "Squeeze", "Expand", "Identity", "Cast", "Flatten", "Tile":
		return true
	}
	return false
}

// sized makes a tensor of the given shape for a value.
func (f *finder) sized(v *onnx.Value, shape []int, elements []float64) *reference.Tensor {
	return reference.NewFloats(f.g.Facts.DataType(v), shape, elements)
}
