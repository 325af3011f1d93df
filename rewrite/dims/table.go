package dims

import (
	"fmt"
	"math"
	"slices"

	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/reference"
)

// A family describes how the elements of a table depend on their positions, so that the table can be computed in other
// sizes. The zero value describes nothing.
type family struct {
	even   []bool // for each axis, whether elements are equal along it
	linear int    // the axis along which integers change by equal steps, or -1
	start  int64  // the first of these integers
	by     int64  // their step
	short  bool   // there are only two, 0 and 1: only rows that the model computes alone tell a count
	// step means a mask: elements are low up to a diagonal and high beyond it.
	step          bool
	rows, columns int
	diagonal      int64 // the largest difference of column and row with a low element
	low, high     int   // positions of such elements
	// window bounds the distance of positions in a table over rows and columns, if recorded outputs show it, or is 0.
	window int64
	// grid lists, for each position along the last axis, how indices for GatherND count.
	grid  []line
	waves *waves
	plane *plane
}

// A line is a list of integers in equal steps along an axis, or one integer if there is no step.
type line struct {
	axis      int
	start, by int64
}

// fewest is the number of integers in equal steps that make a count.
const fewest = 3

// familyOf finds the family of a table.
func familyOf(t *reference.Tensor) family {
	f := family{even: make([]bool, t.Rank()), linear: -1}
	var varying []int
	for axis := range t.Shape {
		if f.even[axis] = isEven(t, axis); !f.even[axis] {
			varying = append(varying, axis)
		}
	}
	switch len(varying) {
	case 1:
		f.findLinear(t, varying[0])
		if axis := varying[0]; f.linear < 0 { // one row or one column of a mask
			for other := range t.Shape {
				if other != axis && t.Shape[other] == 1 && !f.step {
					f.findStep(t, min(other, axis), max(other, axis))
				}
			}
		}
	case 2:
		if f.findStep(t, varying[0], varying[1]); !f.step {
			p, q := varying[0], varying[1]
			if f.waves = findAngles(t, p, q); f.waves == nil {
				f.waves = findAngles(t, q, p)
			}
			if f.waves == nil {
				f.waves = findWaves(t, p, q)
			}
		}
	}
	if n := len(varying); n > 1 && !f.step && f.waves == nil {
		f.plane = findPlane(t, varying[n-2], varying[n-1])
	}
	if len(varying) > 1 && !f.step && f.plane == nil && t.I != nil && t.DataType != onnx.Bool {
		f.findGrid(t)
	}
	return f
}

// grows reports whether the table can be extended along one axis while the others stay.
func (f *family) grows(axis int) bool {
	return f.even != nil && (f.even[axis] || f.grid != nil && axis < len(f.even)-1 || f.linear == axis ||
		f.waves != nil && axis == f.waves.positions || f.plane.has(axis) ||
		f.step && (axis == f.rows || axis == f.columns))
}

// windowed reports whether the table may be a mask whose window is longer than the table.
func (f *family) windowed(t *reference.Tensor) bool {
	n := t.Rank()
	return n >= 2 && f.window == 0 && (f.step && f.rows == n-2 && f.columns == n-1 ||
		t.DataType == onnx.Bool && f.even != nil && !slices.Contains(f.even, false))
}

// outside reports whether an element is outside of the window: the last row is the position of the last column.
func (f *family) outside(shape []int, row, column int) bool {
	n := len(shape)
	return f.window > 0 && int64(row+shape[n-1]-shape[n-2]-column) >= f.window
}

// counts returns the axis of equal steps, of angles of positions or of a plane's columns, or -1.
func (f *family) counts() int {
	if f.plane != nil {
		return f.plane.columns
	}
	if f.waves != nil && f.waves.first > 0 {
		return f.waves.positions
	}
	return f.linear
}

// first returns the first of the integers or positions along this axis.
func (f *family) first() int64 {
	if f.waves != nil {
		return int64(f.waves.first)
	}
	if f.plane != nil {
		return f.plane.start
	}
	return f.start
}

// same reports whether two elements are equal.
func same(t *reference.Tensor, i, k int) bool {
	if t.I != nil {
		return t.I[i] == t.I[k]
	}
	return t.F[i] == t.F[k]
}

func isEven(t *reference.Tensor, axis int) bool {
	s := onnx.RowMajor(t.Shape)
	for i := range t.Len() {
		if at := i / s[axis] % t.Shape[axis]; at > 0 && !same(t, i, i-s[axis]*at) {
			return false
		}
	}
	return true
}

func (f *family) findLinear(t *reference.Tensor, axis int) {
	n, s := t.Shape[axis], onnx.RowMajor(t.Shape)[axis]
	if t.I == nil || n < 2 || t.IsFloat() || t.DataType == onnx.Bool {
		return
	}
	by := t.I[s] - t.I[0]
	if f.short = n < fewest; f.short && (t.I[0] != 0 || by != 1 || t.Rank() < 2) {
		return
	}
	for k := range n {
		if t.I[k*s] != t.I[0]+int64(k)*by {
			return
		}
	}
	f.linear, f.start, f.by = axis, t.I[0], by
}

// findGrid looks for integers that count along at most one axis, another one for each position along the last axis.
func (f *family) findGrid(t *reference.Tensor) {
	last := t.Rank() - 1
	var grid []line
	for k := range t.Shape[last] {
		part, l := slice(t, last, k, k+1), line{}
		for axis := range last {
			if isEven(part, axis) {
				continue
			}
			one := family{linear: -1}
			if one.findLinear(part, axis); one.linear < 0 || l.by != 0 {
				return
			}
			l = line{axis, one.start, one.by}
			f.short = f.short || one.short
		}
		if l.by == 0 {
			l.start = part.I[0]
		}
		grid = append(grid, l)
	}
	s := onnx.RowMajor(t.Shape)
	for i, x := range t.I {
		if l := grid[i%t.Shape[last]]; x != l.start+l.by*int64(i/s[l.axis]%t.Shape[l.axis]) {
			return
		}
	}
	f.grid = grid
}

// findStep looks for a mask over two axes.
func (f *family) findStep(t *reference.Tensor, rows, columns int) {
	s := onnx.RowMajor(t.Shape)
	n, m := t.Shape[rows], t.Shape[columns]
	at := func(i, k int) int { return i*s[rows] + k*s[columns] }
	low, high := at(n-1, 0), at(0, m-1)
	if same(t, low, high) {
		f.findBand(t, rows, columns, at)
		return
	}
	greatest, least := -int64(n), int64(m)
	for i := range n {
		for k := range m {
			switch d := int64(k - i); {
			case same(t, at(i, k), low):
				greatest = max(greatest, d)
			case same(t, at(i, k), high):
				least = min(least, d)
			default:
				return
			}
		}
	}
	if least == greatest+1 {
		f.step, f.rows, f.columns, f.diagonal, f.low, f.high = true, rows, columns, greatest, low, high
	}
}

// findBand looks for a mask with a window: elements are high beyond the diagonal and outside of the window.
func (f *family) findBand(t *reference.Tensor, rows, columns int, at func(i, k int) int) {
	n, m, low := t.Shape[rows], t.Shape[columns], -1
	least, greatest := int64(m), -int64(n)
	for i := range n {
		for k := range m {
			if d := int64(k - i); !same(t, at(i, k), at(0, m-1)) {
				low, least, greatest = at(i, k), min(least, d), max(greatest, d)
			}
		}
	}
	for i := range n {
		for k := range m {
			inside := int64(k-i) >= least && int64(k-i) <= greatest
			if inside && !same(t, at(i, k), low) || !inside && !same(t, at(i, k), at(0, m-1)) {
				return
			}
		}
	}
	if window := int64(m-n) - least + 1; low >= 0 && window > 0 && rows == t.Rank()-2 {
		f.step, f.rows, f.columns, f.diagonal, f.low, f.high = true, rows, columns, greatest, low, at(0, m-1)
		f.window = window
	}
}

// extended returns the table in another shape, with another diagonal or start.
func (f *family) extended(t *reference.Tensor, shape []int, diagonal int64) (*reference.Tensor, error) {
	n := 1
	for axis, d := range shape {
		if d < 0 || d > maxTable || n > maxTable {
			return nil, fmt.Errorf("a table of %v", shape)
		}
		if d != t.Shape[axis] && !f.grows(axis) {
			return nil, fmt.Errorf("it is not known how axis %d continues", axis)
		}
		n *= d
	}
	out := &reference.Tensor{DataType: t.DataType, Shape: slices.Clone(shape)}
	if t.I != nil {
		out.I = make([]int64, n)
	} else {
		out.F = make([]float64, n)
	}
	from, to := onnx.RowMajor(t.Shape), onnx.RowMajor(out.Shape)
	for i := range n {
		place := 0
		for axis := range shape {
			if k := i / to[axis] % shape[axis]; !f.even[axis] && axis != f.linear && !f.step && !f.plane.has(axis) {
				place += k * from[axis]
			}
		}
		if w := f.waves; w != nil {
			later := int(diagonal) - w.first // of the first position
			k := i/to[w.positions]%shape[w.positions] + later
			if place += later * from[w.positions]; k < 0 || k >= t.Shape[w.positions] {
				out.F[i] = w.value(k, i/to[w.channels]%shape[w.channels], w.rates)
				continue
			}
		}
		if f.step {
			row, column := i/to[f.rows]%shape[f.rows], i/to[f.columns]%shape[f.columns]
			if place = f.low; int64(column-row) > diagonal || f.outside(shape, row, column) {
				place = f.high
			}
		}
		switch {
		case f.plane != nil:
			if x := f.plane.value(i, shape, to, diagonal, f.plane.rates[place]); t.I != nil {
				out.I[i] = int64(x)
			} else {
				out.F[i] = x
			}
		case f.grid != nil:
			l := f.grid[i%shape[len(shape)-1]]
			out.I[i] = l.start + l.by*int64(i/to[l.axis]%shape[l.axis])
		case f.window > 0 && !f.step:
			out.I[i] = t.I[0]
			if f.outside(shape, i/shape[len(shape)-1]%shape[len(shape)-2], i%shape[len(shape)-1]) {
				out.I[i] = 1 - t.I[0]
			}
		case f.linear >= 0:
			out.I[i] = diagonal + f.by*int64(i/to[f.linear]%shape[f.linear])
		case t.I != nil:
			out.I[i] = t.I[place]
		default:
			out.F[i] = t.F[place]
		}
	}
	return out, nil
}

// A plane is a table of rate·(start + column - row), or of the magnitude of this distance times a rate.
type plane struct {
	rows, columns int
	start         int64
	magnitude     bool
	rates         []float64 // of each element
}

func (p *plane) has(axis int) bool { return p != nil && (axis == p.rows || axis == p.columns) }

// value returns the element of a table whose rows and columns have these sizes and strides.
func (p *plane) value(i int, shape, strides []int, start int64, rate float64) float64 {
	at := func(axis int) int64 { return int64(i / strides[axis] % shape[axis]) }
	d := float64(start + at(p.columns) - at(p.rows))
	if p.magnitude {
		d = math.Abs(d)
	}
	return rate * d
}

// findPlane looks for a plane over two axes. The rates of floats are powers of 2, which round nothing.
func findPlane(t *reference.Tensor, rows, columns int) *plane {
	m, s := t.Shape[columns], onnx.RowMajor(t.Shape)
	if min(t.Shape[rows], m) < fewest || t.DataType == onnx.Bool || t.I == nil && t.DataType != onnx.Float {
		return nil
	}
	element := func(i int) float64 {
		if t.I != nil {
			return float64(t.I[i])
		}
		return t.F[i]
	}
	p := &plane{rows: rows, columns: columns, rates: make([]float64, t.Len())}
	for i := range p.rates {
		last := i + (m-1-i/s[columns]%m)*s[columns] - i/s[rows]%t.Shape[rows]*s[rows] // in row 0
		p.rates[i] = element(last) - element(last-s[columns])
		if r := math.Abs(p.rates[i]); r == 0 || t.I == nil && math.Exp2(math.Round(math.Log2(r))) != r {
			return nil
		}
	}
	p.start = int64(element((m-1)*s[columns])/p.rates[0]) - int64(m-1)
	for _, p.magnitude = range []bool{false, true} {
		fits := true
		for i := 0; i < t.Len() && fits; i++ {
			fits = p.value(i, t.Shape, s, p.start, p.rates[i]) == element(i)
		}
		if fits {
			return p
		}
	}
	return nil
}
