package probe

import (
	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/patterns/match"
	"github.com/mojo-patch/mojo-patch/reference"
)

// Row is the elements of a product's result that lie along the axis of its channels: the first one, and the step
// between them.
type Row struct{ first, step, channels int }

// EachSum visits the rows of a product's result, with each matrix that it comes from, and the one number that all
// channels of the row of data have which the matrix is multiplied with.
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
			if a.ResultOut == len(shape)-1 {
				i += shape[a.ResultOut] - 2 // to the end of the row
			}
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

// Add adds to the elements of a row.
func (r Row) Add(out *reference.Tensor, of func(channel int) float64) {
	for c := range r.channels {
		out.F[r.first+c*r.step] += of(c)
	}
}

// placeAt is what a place of the axes that are added up adds to the number of a matrix, and to the place of the
// data.
type placeAt struct{ place, data int }

// summed lists the places of the axes of the weight that the result adds up, and returns the strides of all its axes
// of places.
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

// RowOf returns the elements along an axis, of the first row that is not zero; nil where there is none.
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
