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
	var runs []int64
	for i, p := range parts {
		if err := b.take(n, i, p); err != nil {
			return err
		}
		runs = append(runs, p.runs(sizes[i])...)
	}
	out := l
	out.Runs = runs
	return b.hold(n.Outputs[0], out)
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
	list, runs := make([]Layout, len(sizes)), l.Runs
	for i, size := range sizes {
		list[i] = l.single()
		if i == index {
			list[i] = l
		}
		if index >= 0 || len(runs) == 0 {
			continue
		}
		sum, k := int64(0), 0
		for ; sum < size && k < len(runs); k++ {
			sum += runs[k]
		}
		if sum != size {
			return nil, fmt.Errorf("pieces of %v do not end at %d", l.Runs, size)
		}
		if k > 1 {
			list[i].Runs = runs[:k]
		}
		runs = runs[k:]
	}
	return list, nil
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
	in := l.single()
	for i, p := range parts {
		in.Runs = append(in.Runs, p.runs(sizes[i])...)
		if n.Input(1) != nil {
			if err := b.divide(n, 1, i, l); err != nil {
				return err
			}
		}
	}
	if err := b.take(n, 0, in); err != nil {
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
	in := l
	if output {
		in = l.single()
		if in.Runs, err = b.ends(n.Inputs[0], l.Axis, size); err != nil {
			return err
		}
	}
	start, end, err := b.rangeOf(n, at, size)
	if err != nil {
		return err
	}
	out, offset := l.single(), int64(0)
	for _, run := range in.runs(size) {
		if offset >= start && offset+run <= end {
			out.Runs = append(out.Runs, run)
		} else if offset < end && offset+run > start {
			return fmt.Errorf("it cuts a piece of %d at %d to %d", run, start, end)
		}
		offset += run
	}
	if len(out.Runs) == 1 {
		out.Runs = nil
	}
	for i := 1; i <= 2; i++ {
		if err := b.divide(n, i, at, l); err != nil {
			return err
		}
	}
	return b.through(n, in, out)
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
	if len(cuts) == 2 {
		return nil, nil
	}
	runs := make([]int64, len(cuts)-1)
	for i := range runs {
		runs[i] = cuts[i+1] - cuts[i]
	}
	return runs, nil
}
