package fit

import (
	"slices"

	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/patterns/match"
)

// layout tells which elements of a tensor are the channels of one row.
type layout struct {
	shape    []int
	axes     []int // of the channels
	channels int
	index    [][]int // of elements, by row and channel
}

func newLayout(shape, axes []int) layout {
	l := layout{shape: shape, axes: axes, channels: 1}
	for _, axis := range axes {
		l.channels *= shape[axis]
	}
	steps := onnx.RowMajor(shape)
	row := make([]int, match.Elements(shape))
	var firsts []int
	rows := map[int]int{} // by their first element
	for i := range row {
		first := i
		for _, axis := range axes {
			first -= i / steps[axis] % shape[axis] * steps[axis]
		}
		if _, ok := rows[first]; !ok {
			rows[first] = len(firsts)
			firsts = append(firsts, first)
			l.index = append(l.index, nil)
		}
		k := rows[first]
		l.index[k] = append(l.index[k], i)
	}
	return l
}

// of returns the rows of a tensor.
func (l layout) of(elements []float64) [][]float64 {
	list := make([][]float64, len(l.index))
	for i, row := range l.index {
		list[i] = make([]float64, len(row))
		for c, at := range row {
			list[i][c] = elements[at]
		}
	}
	return list
}

// special returns rows of a magnitude that random ones do not cover: one-hot, constant, zero, of one sign, and with
// elements of very different sizes.
func (l layout) special(magnitude float64) []float64 {
	noise := random(len(l.index)*l.channels, 31)
	out := make([]float64, len(noise))
	for i, row := range l.index {
		for c, at := range row {
			x := noise[at]
			switch i % 6 {
			case 0:
				x = 0
				if c == i/6%l.channels {
					x = 1
				}
			case 1:
				x = -1
			case 2:
				x = 0
			case 3:
				x = max(x, -x)
			case 4:
				x *= []float64{1, 1e-3, 1e3}[c%3]
			}
			out[at] = x * magnitude
		}
	}
	return out
}

// readRows finds the axes along which elements of the result depend on one of the operand. It shortens the rows if the
// region can be run so. It reports whether there are such axes.
func (n *normReader) readRows() bool {
	own, ok := n.lab.Shape(n.x)
	last := len(own) - 1
	if !ok || last < 0 {
		return false
	}
	shape := n.smallest(n.region, atMost(own, fewRows, 2), atMost(own, fewRows*own[last], 2, last),
		atMost(own, fewRows*own[min(1, last)], 2, 1), own)
	if shape == nil {
		return false
	}
	axes := n.coupled(shape)
	if len(axes) == 0 || slices.ContainsFunc(axes, func(axis int) bool {
		_, static := n.g.Facts.Dim(n.x, axis)
		return !static
	}) {
		return false
	}
	n.rows, n.norm.Axes, n.channels = newLayout(shape, axes), axes, 1
	for _, axis := range axes {
		n.channels *= own[axis]
	}
	return true
}

// wholeRows makes the rows as long as the model's, and reports whether the region can be run with them.
func (n *normReader) wholeRows() bool {
	own, _ := n.lab.Shape(n.x)
	shape := n.smallest(n.region, atMost(own, fewRows*n.channels, 2, n.norm.Axes...), own)
	if shape != nil {
		n.rows = newLayout(shape, n.norm.Axes)
	}
	return shape != nil
}

// coupled changes elements one at a time, and returns the axes along which others change with them; nil if these
// differ.
func (n *normReader) coupled(shape []int) []int {
	base := random(match.Elements(shape), 1)
	steps := onnx.RowMajor(shape)
	answer := func(list []float64) []float64 {
		out, err := n.compute(n.Result, values{n.x: n.sized(n.x, shape, list)})
		if err != nil || len(out) != len(list) {
			return nil
		}
		return out
	}
	was := answer(base)
	if was == nil {
		return nil
	}
	var axes []int
	for _, at := range []int{0, len(base) - 1, len(base) / 2} {
		changed := slices.Clone(base)
		changed[at] += 0.75
		is := answer(changed)
		if is == nil {
			return nil
		}
		var found []int
		count := 0
		for i := range is {
			if is[i] == was[i] {
				continue
			}
			count++
			for axis, step := range steps {
				if i/step%shape[axis] != at/step%shape[axis] && !slices.Contains(found, axis) {
					found = append(found, axis)
				}
			}
		}
		slices.Sort(found)
		size := 1
		for _, axis := range found {
			size *= shape[axis]
		}
		if size < 2 || count != size || axes != nil && !slices.Equal(axes, found) {
			return nil
		}
		axes = found
	}
	return axes
}
