package probe

import (
	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/patterns/match"
	"github.com/mojo-patch/mojo-patch/reference"
)

// A Row is the channels of one row of a product's result: the first element, and the step to the next.
type Row struct{ first, step, channels int }

// EachSum visits the rows of a product's result. For each matrix that contributes to a row, it passes the number x that
// all channels of the data's row have.
func (a *Product) EachSum(visit func(r Row, place int, x float64) error) error {
	strides, shape := onnx.RowMajor(a.Data.Shape), a.shape
	index, steps := make([]int, len(shape)), onnx.RowMajor(shape)
	last := (a.Data.Shape[a.DataIn] - 1) * strides[a.DataIn]
	placeStrides, summed := a.summed(strides)
	for i := 0; i < match.Elements(shape); i++ {
		for axis := range index {
			index[axis] = i / steps[axis] % shape[axis]
		}
		if index[a.ResultOut] > 0 {
			i += (shape[a.ResultOut]-1)*steps[a.ResultOut] - 1 // to the end of these rows
			continue
		}
		at, fixed := 0, 0
		for axis, d := range a.rows {
			if d >= 0 && a.Data.Shape[d] > 1 {
				at += index[axis] * strides[d]
			}
		}
		for k, axis := range a.resultBatch {
			if axis >= 0 {
				fixed += index[axis] * placeStrides[k]
			}
		}
		for _, sum := range summed {
			x := a.Data.F[at+sum.data]
			if a.Data.F[at+sum.data+last] != x {
				return NoExperts("the channels of a token or of an expert are weighted one by one")
			}
			if err := visit(Row{i, steps[a.ResultOut], shape[a.ResultOut]}, fixed+sum.place, x); err != nil {
				return err
			}
		}
	}
	return nil
}

// Add adds of(channel) to each element of a row.
func (r Row) Add(out *reference.Tensor, of func(channel int) float64) {
	for c := range r.channels {
		out.F[r.first+c*r.step] += of(c)
	}
}

// placeAt is an index into the summed axes: its contribution to the number of a matrix and to the index of the data.
type placeAt struct{ place, data int }

// summed lists the indexes of the weight's axes that the result sums over, and returns the strides of all its batch
// axes.
func (a *Product) summed(dataStrides []int) (placeStrides []int, list []placeAt) {
	dims := make([]int, len(a.batch))
	for k, axis := range a.batch {
		dims[k] = a.weight.Shape[axis]
	}
	placeStrides, list = onnx.RowMajor(dims), []placeAt{{}}
	for k, axis := range a.resultBatch {
		if axis >= 0 {
			continue
		}
		step := 0
		if a.dataBatch[k] >= 0 {
			step = dataStrides[a.dataBatch[k]]
		}
		var next []placeAt
		for _, p := range list {
			for i := range dims[k] {
				next = append(next, placeAt{p.place + i*placeStrides[k], p.data + i*step})
			}
		}
		list = next
	}
	return placeStrides, list
}

// RowOf returns the elements along an axis in the first row that is not zero, or nil.
func RowOf(t *reference.Tensor, axis int) []float64 {
	n, inner := t.Shape[axis], match.Elements(t.Shape[axis+1:])
	for first := range match.Elements(t.Shape) {
		if first/inner%n != 0 {
			continue
		}
		row := make([]float64, n)
		zero := true
		for i := range row {
			row[i] = t.F[first+i*inner]
			zero = zero && row[i] == 0
		}
		if !zero {
			return row
		}
	}
	return nil
}
