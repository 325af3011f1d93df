package shard

import (
	"errors"
	"fmt"
	"slices"

	"github.com/mojo-patch/mojo-patch/onnx"
)

func concat(b *block, n *onnx.Node) error {
	l, output, index := b.known(n)
	r, err := b.rank(n.Outputs[0])
	if err != nil {
		return err
	}
	axis := axisOf(n, r, 0)
	if axis != l.Axis {
		for i := range n.Inputs {
			if err := b.take(n, i, l); err != nil {
				return err
			}
		}
		return b.hold(n.Outputs[0], l)
	}
	if output {
		index = -1
	}
	sizes, err := b.sizes(n.Inputs, axis)
	if err != nil {
		return err
	}
	parts, err := pieces(l, sizes, index)
	if err != nil {
		return err
	}
	for i, p := range parts {
		if err := b.take(n, i, p); err != nil {
			return err
		}
	}
	return b.hold(n.Outputs[0], sideBySide(axis, parts, sizes))
}

func (b *block) sizes(values []*onnx.Value, axis int) (sizes []int64, err error) {
	for _, v := range values {
		n, ok := b.size(v, axis)
		if !ok {
			return nil, fmt.Errorf("axis %d of %q has no fixed size", axis, v.Name)
		}
		sizes = append(sizes, n)
	}
	return sizes, nil
}

// pieces returns the layouts of values side by side, given that of one of them (or of all together with index -1).
func pieces(l Layout, sizes []int64, index int) ([]Layout, error) {
	list, k := make([]Layout, len(sizes)), 0
	for i, size := range sizes {
		list[i] = l.single()
		if i == index {
			list[i] = l
		}
		if index >= 0 || len(l.Runs) == 0 {
			continue
		}
		var parts []Layout
		first, sum := k, int64(0)
		for ; sum < size && k < len(l.Runs); k++ {
			sum += l.Runs[k]
			parts = append(parts, l.of(k))
		}
		if sum != size {
			return nil, fmt.Errorf("pieces of %v do not end at %d", l.Runs, size)
		}
		list[i] = sideBySide(l.Axis, parts, l.Runs[first:k])
	}
	return list, nil
}

// nearby is the number of nodes between the pieces of a value and attention, at most.
const nearby = 8

// wanted returns the layout of a piece for attention that reads it behind a few nodes, or else l: heads of keys may be
// divided in another way than those of queries.
func (b *block) wanted(v *onnx.Value, l Layout, depth int) (Layout, bool) {
	for _, u := range v.Uses() {
		if w, ok := b.wants[u]; ok {
			return w.single().at(l.Axis), true
		}
	}
	for _, u := range v.Uses() {
		if y := u.Node.OutputValue(0); y != nil && depth > 0 && matrixOf(u.Node) == nil && u.Node.Graph == b.graph {
			if w, ok := b.wanted(y, l, depth-1); ok {
				return w, true
			}
		}
	}
	return l, false
}

// wantedRun returns the layout that is wanted of the slice of v from start to end, or l.
func (b *block) wantedRun(v *onnx.Value, l Layout, start, end, size int64) Layout {
	for _, u := range v.Uses() {
		if !u.Node.Is("Slice") || u.Index != 0 {
			continue
		}
		if at, err := b.sliced(u.Node, l.Axis); err == nil && at >= 0 {
			if s, e, err := b.rangeOf(u.Node, at, size); err == nil && s == start && e == end {
				l, _ = b.wanted(u.Node.Outputs[0], l, nearby)
			}
		}
	}
	return l
}

func split(b *block, n *onnx.Node) error {
	l, output, index := b.known(n)
	r, err := b.rank(n.Inputs[0])
	if err != nil {
		return err
	}
	axis := axisOf(n, r, 0)
	if axis != l.Axis {
		if err := b.take(n, 0, l); err != nil {
			return err
		}
		for _, v := range n.Outputs {
			if err := b.hold(v, l); err != nil {
				return err
			}
		}
		return nil
	}
	if n.Attr("split") != nil {
		return errors.New("its sizes are an attribute")
	}
	sizes, err := b.sizes(n.Outputs, axis)
	if err != nil {
		return err
	}
	if !output {
		index = -1
	}
	parts, err := pieces(l, sizes, index)
	if err != nil {
		return err
	}
	for i := range parts {
		if output && i != index {
			parts[i], _ = b.wanted(n.Outputs[i], parts[i], nearby)
		}
		if n.Input(1) != nil {
			if err := b.divide(n, 1, i, parts[i]); err != nil {
				return err
			}
		}
	}
	if err := b.take(n, 0, sideBySide(axis, parts, sizes)); err != nil {
		return err
	}
	for i, v := range n.Outputs {
		if err := b.hold(v, parts[i]); err != nil {
			return err
		}
	}
	return nil
}

// sliceRule keeps axes that are not cut. On the divided axis a slice must be pieces of the input.
func sliceRule(b *block, n *onnx.Node) error {
	l, output, _ := b.known(n)
	at, err := b.sliced(n, l.Axis)
	if err != nil {
		return err
	}
	if at < 0 {
		return b.through(n, l, l)
	}
	size, ok := b.size(n.Inputs[0], l.Axis)
	if !ok {
		return errors.New("the size of the divided axis is not known")
	}
	in, runs := l, l.runs(size)
	if output {
		if runs, err = b.ends(n.Inputs[0], l.Axis, size); err != nil {
			return err
		}
		in = l.single()
		in.Runs = runs
	}
	start, end, err := b.rangeOf(n, at, size)
	if err != nil {
		return err
	}
	parts := make([]Layout, len(runs))
	var first, last int // of the runs in the output
	offset := int64(0)
	for i, run := range runs {
		if parts[i] = in.of(i); output && (offset != start || offset+run != end) {
			parts[i] = b.wantedRun(n.Inputs[0], parts[i], offset, offset+run, size)
		}
		if offset+run <= start {
			first = i + 1
		}
		if offset < end {
			last = i + 1
		}
		if offset < start && offset+run > start || offset < end && offset+run > end {
			return fmt.Errorf("it cuts a piece of %d at %d to %d", run, start, end)
		}
		offset += run
	}
	if first >= last {
		return errors.New("it takes nothing")
	}
	for i, before := range []int{first, last} {
		if before == 0 || before == len(parts) { // the start stays 0, and the end is behind all
			continue
		}
		if err := b.divide(n, i+1, at, sideBySide(l.Axis, parts[:before], runs)); err != nil {
			return err
		}
	}
	return b.through(n, sideBySide(l.Axis, parts, runs), sideBySide(l.Axis, parts[first:last], runs[first:last]))
}

// sliced returns the place of an axis among the axes that a Slice cuts, or -1.
func (b *block) sliced(n *onnx.Node, axis int) (int, error) {
	r, err := b.rank(n.Inputs[0])
	if err != nil {
		return 0, err
	}
	starts, ok := b.facts.Known(n.Input(1), 0)
	if !ok {
		return 0, errors.New("its starts are not known")
	}
	if n.Input(3) == nil {
		if axis < len(starts.I) {
			return axis, nil
		}
		return -1, nil
	}
	axes, ok := b.facts.Constant(n.Input(3))
	if !ok {
		return 0, errors.New("its axes are not known")
	}
	return slices.IndexFunc(axes.I, func(a int64) bool { return int(a) == axis || int(a)+r == axis }), nil
}

// rangeOf returns the range of a Slice along one of its axes.
func (b *block) rangeOf(n *onnx.Node, at int, size int64) (start, end int64, err error) {
	s, ok := b.facts.Constant(n.Input(1))
	e, known := b.facts.Constant(n.Input(2))
	if !ok || !known || at >= len(s.I) || at >= len(e.I) {
		return 0, 0, errors.New("its ends are not known")
	}
	if v := n.Input(4); v != nil {
		steps, ok := b.facts.Constant(v)
		if !ok || at >= len(steps.I) || steps.I[at] != 1 {
			return 0, 0, errors.New("it takes steps along the divided axis")
		}
	}
	start, end = s.I[at], min(e.I[at], size)
	if start < 0 || end < 0 {
		return 0, 0, errors.New("it counts from the end of the divided axis")
	}
	return start, end, nil
}

// ends returns the pieces between the ends of all slices of a value along an axis.
func (b *block) ends(v *onnx.Value, axis int, size int64) ([]int64, error) {
	cuts := []int64{0, size}
	for _, u := range v.Uses() {
		if !u.Node.Is("Slice") || u.Index != 0 {
			continue
		}
		at, err := b.sliced(u.Node, axis)
		if err != nil {
			return nil, err
		}
		if at < 0 {
			continue
		}
		start, end, err := b.rangeOf(u.Node, at, size)
		if err != nil {
			return nil, err
		}
		cuts = append(cuts, start, end)
	}
	slices.Sort(cuts)
	cuts = slices.Compact(cuts)
	runs := make([]int64, len(cuts)-1)
	for i := range runs {
		runs[i] = cuts[i+1] - cuts[i]
	}
	return runs, nil
}
