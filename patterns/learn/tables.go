package learn

import (
	"fmt"
	"slices"

	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/reference"
)

// tableAxes returns conditions on the axes of a table, which a rotation reads as the replacement has changed it.
func (w *writer) tableAxes(table *onnx.Value) (list []string) {
	var steps []*onnx.Node // from an input to the table, the last first
	for table.Producer != nil {
		steps, table = append(steps, table.Producer), table.Producer.Inputs[0]
	}
	at := slices.Index(w.m.Replacement.Inputs, table)
	if at < 0 {
		return nil
	}
	v, name := w.m.Inputs[at], w.params[at]
	rank, ok := w.Facts.Rank(v)
	if !ok {
		return nil
	}
	axes := make([]int, rank) // of the input, in the order after the steps
	for i := range axes {
		axes[i] = i
	}
	for _, n := range slices.Backward(steps) {
		axes = remaining(n, axes)
	}
	list = append(list, fmt.Sprintf("rank(%s) == %d", name, rank))
	for axis := range rank {
		place := slices.Index(axes, axis)
		d, known := w.Facts.Dim(v, axis)
		switch {
		case place == len(axes)-1: // the channels
		case known && d == 1:
			list = append(list, fmt.Sprintf("dim(%s, %d) == 1", name, axis))
		case place >= 0:
			list = append(list, fmt.Sprintf("samedim(%s, %d, %s, %d)", name, axis, w.params[0], place-len(axes)))
		}
	}
	return list
}

// added is an axis that an input does not have.
const added = -1

// remaining returns the axes after a node, in order.
func remaining(n *onnx.Node, axes []int) []int {
	var numbers *reference.Tensor
	if len(n.Inputs) > 1 && n.Inputs[1].Constant() != nil {
		numbers, _ = reference.FromONNX(n.Inputs[1].Constant()) // belongs to the replacement and can be read
	}
	switch perm := n.AttrInts("perm"); {
	case n.Is("Transpose") && len(perm) == len(axes):
		moved := make([]int, len(axes))
		for i, axis := range perm {
			moved[i] = axes[axis]
		}
		return moved
	case n.Is("Unsqueeze") && numbers != nil:
		out := slices.Clone(axes)
		for _, place := range slices.Sorted(slices.Values(numbers.I)) {
			out = slices.Insert(out, min(int(place), len(out)), added)
		}
		return out
	case n.Is("Gather") && numbers != nil && len(numbers.Shape) == 0:
		if axis := int(n.AttrInt("axis", 0)); axis >= 0 && axis < len(axes) {
			return slices.Delete(slices.Clone(axes), axis, axis+1)
		}
	}
	return axes
}
