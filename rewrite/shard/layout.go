package shard

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/mojo-patch/mojo-patch/onnx"
)

// A Layout describes which part of a value each rank holds: the axis is divided evenly over the ranks, or by units.
type Layout struct {
	Axis int `json:"axis"`
	// Runs are the sizes of pieces of the axis that are divided one by one, such as the queries, keys and values in one
	// tensor; nil stands for a single piece.
	Runs []int64 `json:"runs,omitempty"`
	// Copies is the number of consecutive ranks that hold the same part, such as a head of keys that they share; 0
	// stands for 1.
	Copies int64 `json:"copies,omitempty"`
	// Units is the number of units of each piece, such as heads of keys, if the ranks hold different numbers of them:
	// some hold one more than others. 0 stands for equal parts.
	Units int64 `json:"units,omitempty"`
	// Ranges are the first unit of each rank and the number of its units, if these are others, such as heads of keys
	// of which some are on several ranks.
	Ranges [][2]int64 `json:"ranges,omitempty"`
	// Pieces are the layouts of the pieces in Runs, if they are divided in different ways.
	Pieces []Layout `json:"pieces,omitempty"`
}

// parts returns the number of different parts.
func (l Layout) parts(ranks int64) int64 { return ranks / max(l.Copies, 1) }

// at returns the same layout for another axis.
func (l Layout) at(axis int) Layout {
	l.Axis = axis
	return l
}

func (l Layout) equal(m Layout) bool {
	return l.Axis == m.Axis && slices.Equal(l.Runs, m.Runs) && max(l.Copies, 1) == max(m.Copies, 1) &&
		l.Units == m.Units && slices.Equal(l.Ranges, m.Ranges) && slices.EqualFunc(l.Pieces, m.Pieces, Layout.equal)
}

// single returns the layout for a single piece.
func (l Layout) single() Layout {
	l.Runs, l.Pieces = nil, nil
	return l
}

// of returns the layout of a piece by itself.
func (l Layout) of(piece int) Layout {
	if l.Pieces == nil {
		return l.single()
	}
	return l.Pieces[piece].at(l.Axis)
}

// sideBySide returns the layout of values of these sizes and layouts, one after the other along an axis.
func sideBySide(axis int, parts []Layout, sizes []int64) Layout {
	var l Layout
	same := true
	for i, p := range parts {
		for k, n := range p.runs(sizes[i]) {
			l.Runs, l.Pieces = append(l.Runs, n), append(l.Pieces, p.of(k).at(0))
			same = same && l.Pieces[0].equal(p.of(k).at(0))
		}
	}
	if same {
		runs := l.Runs
		l = l.Pieces[0]
		if len(runs) > 1 {
			l.Runs = runs
		}
	}
	return l.at(axis)
}

// isShared reports whether elements are on several ranks, so that parts cannot be concatenated.
func (l Layout) isShared() bool {
	sum := int64(0)
	for _, r := range l.Ranges {
		sum += r[1]
	}
	return l.Copies > 1 || sum > l.Units || slices.ContainsFunc(l.Pieces, Layout.isShared)
}

// isWhole reports whether every rank holds all of the axis, and so of any axis.
func (l Layout) isWhole(ranks int64) bool { return l.Pieces == nil && l.Copies == ranks }

// alike returns the number of pieces that are equally large and divided alike; 0 for other pieces.
func (l Layout) alike() int64 {
	if l.Pieces != nil || len(slices.Compact(slices.Clone(l.Runs))) != 1 {
		return 0
	}
	return int64(len(l.Runs))
}

// share returns the first of the equal units of a piece that a rank holds, their number, and the number of all.
func (l Layout) share(rank, ranks int64) (first, count, units int64) {
	if l.Ranges != nil {
		return l.Ranges[rank][0], l.Ranges[rank][1], l.Units
	}
	part, parts := rank/max(l.Copies, 1), l.parts(ranks)
	if l.Units == 0 {
		return part, 1, parts
	}
	first = (part*l.Units + parts - 1) / parts
	return first, ((part+1)*l.Units+parts-1)/parts - first, l.Units
}

// size returns the size of a rank's part of an axis of this size.
func (l Layout) size(size, rank, ranks int64) (part int64) {
	if l.Pieces == nil {
		_, count, units := l.share(rank, ranks)
		return size / units * count
	}
	for _, s := range l.slices(size, rank, ranks) {
		part += s.size
	}
	return part
}

// largest returns the size of the largest part of a size, which may also be a number of bytes.
func (l Layout) largest(size, ranks int64) int64 {
	most, all := int64(0), int64(0)
	for rank := range ranks {
		_, count, units := l.share(rank, ranks)
		if l.Pieces != nil {
			count, units = l.size(0, rank, ranks), l.all(0)
		}
		most, all = max(most, count), units
	}
	return size * most / all
}

// all returns the size of an axis: of all pieces, or this one.
func (l Layout) all(size int64) (sum int64) {
	for _, n := range l.runs(size) {
		sum += n
	}
	return sum
}

// runs returns the pieces of an axis of this size.
func (l Layout) runs(size int64) []int64 {
	if l.Runs == nil {
		return []int64{size}
	}
	return l.Runs
}

// fits errs unless an axis of this size can be divided.
func (l Layout) fits(size, ranks int64) error {
	sum := int64(0)
	for i, n := range l.runs(size) {
		if l.Pieces != nil && len(l.Pieces) != len(l.Runs) {
			return fmt.Errorf("there are %d layouts of %d pieces", len(l.Pieces), len(l.Runs))
		}
		p := l.of(i)
		parts := p.parts(ranks)
		units := cmp.Or(p.Units, parts)
		outside := func(r [2]int64) bool { return r[0] < 0 || r[1] < 1 || r[1] > units-r[0] }
		switch sum += n; {
		case max(p.Copies, 1)*parts != ranks:
			return fmt.Errorf("%d ranks cannot hold each part %d times", ranks, p.Copies)
		case p.Ranges == nil && units < parts:
			return fmt.Errorf("%d units are too few for %d ranks", units, ranks)
		case p.Ranges != nil && int64(len(p.Ranges)) != ranks || slices.ContainsFunc(p.Ranges, outside):
			return fmt.Errorf("%d ranks cannot hold %v of %d units", ranks, p.Ranges, units)
		case n <= 0 || n%units != 0:
			return fmt.Errorf("%d is not a multiple of %d", n, units)
		}
	}
	if sum != size {
		return fmt.Errorf("pieces of %v make %d, not %d", l.Runs, sum, size)
	}
	return nil
}

// grains errs unless a size can be divided into parts of whole grains.
func (l Layout) grains(size, grain, ranks int64) error {
	if size%grain != 0 {
		return fmt.Errorf("%d is not a multiple of %d", size, grain)
	}
	if err := l.single().fits(size/grain, ranks); err != nil {
		return fmt.Errorf("in blocks of %d, %w", grain, err)
	}
	return nil
}

// scaled returns the layout with pieces times/by as large.
func (l Layout) scaled(times, by int64) (Layout, error) {
	if l.Runs == nil {
		return l, nil
	}
	out := l
	out.Runs = make([]int64, len(l.Runs))
	for i, n := range l.Runs {
		if n*times%by != 0 {
			return l, fmt.Errorf("a piece of %d is not a multiple of %d", n, by)
		}
		out.Runs[i] = n * times / by
	}
	return out, nil
}

// slice is the range of elements of an axis that a rank holds of one piece.
type slice struct{ start, size int64 }

func (l Layout) slices(size, rank, ranks int64) (list []slice) {
	offset := int64(0)
	for i, n := range l.runs(size) {
		first, count, units := l.of(i).share(rank, ranks)
		list = append(list, slice{offset + n/units*first, n / units * count})
		offset += n
	}
	return list
}

// cut returns a rank's part of a constant. Its elements are read when the model is written.
func (l Layout) cut(t *onnx.Tensor, name string, rank, ranks int64) (*onnx.Tensor, error) {
	if l.Axis >= len(t.Dims) {
		return nil, fmt.Errorf("%q has the shape %v, without axis %d", t.Name, t.Dims, l.Axis)
	}
	if err := l.fits(t.Dims[l.Axis], ranks); err != nil {
		return nil, fmt.Errorf("axis %d of %q: %w", l.Axis, t.Name, err)
	}
	strides := onnx.RowMajor(t.Dims)
	var pieces []*onnx.Tensor
	for _, s := range l.slices(t.Dims[l.Axis], rank, ranks) {
		dims := slices.Clone(t.Dims)
		dims[l.Axis] = s.size
		piece, err := t.View(name, dims, s.start*strides[l.Axis], strides)
		if err != nil {
			return nil, err
		}
		pieces = append(pieces, piece)
	}
	if len(pieces) == 1 {
		return pieces[0], nil
	}
	return onnx.Concat(name, l.Axis, pieces)
}
