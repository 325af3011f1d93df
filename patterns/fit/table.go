package fit

import (
	"maps"
	"slices"

	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/patterns/match"
)

// A Table tells how a table of cosines or sines is read from a value: some axes have Fixed indexes, one has the
// Channels, and the others are axes of x.
type Table struct {
	Value    *onnx.Value
	Fixed    map[int]int // by axis of Value
	Axis     int         // of the channels
	Channels []int
	Rows     map[int]int // axes of x, by axis of Value
	Negative bool
}

// tableReader collects the elements of a table for each row and channel.
type tableReader struct {
	*rotationReader
	value    *onnx.Value
	elements [][]int // by rows of x and rotated channels
}

func (n *rotationReader) newTable(channels int) *tableReader {
	t := &tableReader{rotationReader: n, elements: make([][]int, len(n.factors))}
	for row := range t.elements {
		t.elements[row] = make([]int, channels)
	}
	return t
}

// set records an element; it returns false if the element is from another table.
func (t *tableReader) set(row, channel int, of term) bool {
	if t.value == nil {
		t.value = of.table
	}
	t.elements[row][channel] = of.element
	return of.table == t.value
}

// read returns the table, with one channel for each pair if both channels of each pair have the same element.
func (t *tableReader) read(layout string) (*Table, bool) {
	channels := len(t.elements[0])
	half := make([]int, channels/2)
	same := true
	for _, row := range t.elements {
		for i := range half {
			a, b := i, i+channels/2
			if layout == "interleaved" {
				a, b = 2*i, 2*i+1
			}
			half[i] = a
			same = same && row[a] == row[b]
		}
	}
	if same {
		return t.of(half)
	}
	return t.wide()
}

// wide returns the table with all channels.
func (t *tableReader) wide() (*Table, bool) {
	all := make([]int, len(t.elements[0]))
	for i := range all {
		all[i] = i
	}
	return t.of(all)
}

// of reads the axes of the table with the given channels; ok is false if its elements do not vary along them.
func (t *tableReader) of(channels []int) (*Table, bool) {
	shape, _ := t.lab.Shape(t.value)
	steps, rowSteps := onnx.RowMajor(shape), onnx.RowMajor(t.shape[:len(t.shape)-1])
	table := &Table{Value: t.value, Axis: -1, Fixed: map[int]int{}, Rows: map[int]int{}}
	at := func(row, channel, axis int) int { return t.elements[row][channel] / steps[axis] % shape[axis] }
	for axis := range shape {
		list := make([]int, len(channels))
		for i, c := range channels {
			list[i] = at(0, c, axis)
		}
		if slices.ContainsFunc(list, func(x int) bool { return x != list[0] }) {
			if table.Axis >= 0 {
				return nil, false
			}
			table.Axis, table.Channels = axis, list
		}
	}
	if table.Axis < 0 {
		return nil, false
	}
	for axis := range shape {
		if axis == table.Axis {
			continue
		}
		follows := -2 // not an axis of x
		for of, step := range rowSteps {
			is := true
			for row := range t.elements {
				is = is && at(row, channels[0], axis) == row/step%t.shape[of]
			}
			if is && t.sameDim(axis, of) && t.shape[of] > 1 {
				follows = of
			}
		}
		if follows >= 0 {
			table.Rows[axis] = follows
		} else {
			table.Fixed[axis] = at(0, channels[0], axis)
		}
	}
	for row := range t.elements {
		for i, c := range channels {
			for axis := range shape {
				want := 0
				if of, ok := table.Rows[axis]; ok {
					want = row / rowSteps[of] % t.shape[of]
				} else if axis == table.Axis {
					want = table.Channels[i]
				} else {
					want = table.Fixed[axis]
				}
				if at(row, c, axis) != want {
					return nil, false
				}
			}
		}
	}
	for axis := range table.Fixed { // at other sizes, an open axis has no fixed index
		if d, ok := t.g.Facts.Dim(t.value, axis); !ok || d > 1 && axis < len(shape)-2 {
			return nil, false
		}
	}
	return table, true
}

// sameDim reports whether an axis of the table has the length of an axis of x.
func (t *tableReader) sameDim(axis, of int) bool {
	return t.g.Facts.SameDim(t.value, axis, t.x, of)
}

// ofOneAngle reports whether two tables hold, in each row and channel, the cosine and the sine of one angle, as far as
// the graph shows: they are read and computed in the same way.
func (f *finder) ofOneAngle(cos, sin *Table) bool {
	if cos.Axis != sin.Axis || !maps.Equal(cos.Rows, sin.Rows) {
		return false
	}
	apart := 0
	if cos.Value == sin.Value {
		apart = sin.Channels[0] - cos.Channels[0]
	} else if !maps.Equal(cos.Fixed, sin.Fixed) || !f.twins(cos.Value, sin.Value, 2*match.MaxDetour) {
		return false
	}
	for i, c := range cos.Channels {
		if sin.Channels[i]-c != apart {
			return false
		}
	}
	return true
}

// twins reports whether two values are computed in the same way from a cosine and a sine of one value, from two
// constants or from two inputs.
func (f *finder) twins(cos, sin *onnx.Value, steps int) bool {
	a, b := f.g.Resolve(cos), f.g.Resolve(sin)
	p, q := match.Producer(a), match.Producer(b)
	switch {
	case a == b || p == nil && q == nil || a.Constant() != nil && b.Constant() != nil:
		return a == b || f.g.Facts.SameShape(a, b)
	case p == nil || q == nil || steps == 0:
		return false
	case p.Is("Cos") && q.Is("Sin"):
		return f.g.Same(p.Input(0), q.Input(0))
	case p == q:
		return true
	}
	k1, ok1 := match.AttributesKey(p)
	k2, ok2 := match.AttributesKey(q)
	if p.OpType != q.OpType || !ok1 || !ok2 || k1 != k2 || len(p.Inputs) != len(q.Inputs) {
		return false
	}
	for i, v := range p.Inputs {
		if w := q.Inputs[i]; !f.g.Same(v, w) && (v == nil || w == nil || !f.twins(v, w, steps-1)) {
			return false
		}
	}
	return true
}
