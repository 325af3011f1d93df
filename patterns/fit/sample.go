package fit

import (
	"slices"
	"strings"

	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/patterns/match"
	"github.com/mojo-patch/mojo-patch/reference"
)

// Regions are run on tensors that are smaller than the model's where they compute at other sizes: an image has more
// rows than a norm has to be asked for, and more elements than a gated unit.

const (
	fewRows     = 6 // of a norm, as many as there are kinds of special ones
	fewElements = 512
)

// atMost returns the shape with the first axes made shorter until there are n elements or less, none shorter than least
// and those of keep as they are.
func atMost(shape []int, n, least int, keep ...int) []int {
	small := slices.Clone(shape)
	for axis := range small {
		if d := small[axis]; d > least && !slices.Contains(keep, axis) {
			small[axis] = min(d, max(least, n/max(1, match.Elements(small)/d)))
		}
	}
	return small
}

// smallest returns the first of some shapes that a region computes at, if its operands all have it: a result of the
// same shape. Nil where it computes at none.
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

// isWeights reports whether a side is a constant of different numbers, or of one for each index of an axis: a region
// that reads it does something of its own in each place of that.
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

// keepsElements reports whether a node gives the elements of its first input another shape or type.
func keepsElements(n *onnx.Node) bool {
	switch n.OpType {
	case "Reshape", "Unsqueeze", "Squeeze", "Expand", "Identity", "Cast", "Flatten", "Tile":
		return true
	}
	return false
}

// sized makes a tensor of a shape for a value.
func (f *finder) sized(v *onnx.Value, shape []int, elements []float64) *reference.Tensor {
	return reference.NewFloats(f.g.Facts.DataType(v), shape, elements)
}
