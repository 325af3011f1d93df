package probe

import "slices"

// Parts tells into how many equal matrices a product's matrix splits: side by side, with results side by side, or below
// each other, with results added. 0 and 1 mean one matrix.
type Parts struct{ Out, In int }

// split splits the matrix of a product into parts, as further matrices of the weight. Only the reading changes; no
// element moves. It reports whether the parts are equal.
func (a *Product) split(parts Parts) bool {
	if n := parts.Out; n > 1 {
		if a.weight.Shape[a.out]%n != 0 {
			return false
		}
		result := a.ResultOut
		a.splitWeight(a.out, n)
		a.shape = splitAxis(a.shape, result, n)
		a.ResultOut = result + 1
		a.rows = slices.Insert(a.rows, result, noAxis)
		shift(a.resultBatch, result)
		a.dataBatch, a.resultBatch = append(a.dataBatch, noAxis), append(a.resultBatch, result)
	}
	if n := parts.In; n > 1 {
		if a.weight.Shape[a.in]%n != 0 {
			return false
		}
		data := a.DataIn
		a.splitWeight(a.in, n)
		a.Data = a.Data.WithShape(splitAxis(a.Data.Shape, data, n))
		a.DataIn = data + 1
		shift(a.rows, data)
		shift(a.dataBatch, data)
		a.dataBatch, a.resultBatch = append(a.dataBatch, data), append(a.resultBatch, noAxis)
	}
	return true
}

// splitWeight splits an axis of the weight in two; the first has size n and is a batch axis, the second replaces it.
func (a *Product) splitWeight(axis, n int) {
	a.weight = a.weight.WithShape(splitAxis(a.weight.Shape, axis, n))
	shift(a.batch, axis)
	for _, at := range []*int{&a.in, &a.out} {
		if *at >= axis {
			*at++
		}
	}
	a.batch = append(a.batch, axis)
}

// splitAxis splits an axis in two, the first of size n.
func splitAxis(shape []int, axis, n int) []int {
	shape = slices.Insert(slices.Clone(shape), axis, n)
	shape[axis+1] /= n
	return shape
}

// shift renumbers the axes after one that was split.
func shift(axes []int, axis int) {
	for i, a := range axes {
		if a > axis {
			axes[i]++
		}
	}
}
