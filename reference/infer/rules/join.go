package rules

import (
	"slices"

	"github.com/mojo-patch/mojo-patch/reference"
)

// joinRules: ops that join, split or cut tensors along axes.
var joinRules = map[string]Rule{
	"Concat": shaped(firstOf(0), concat),
	"Split":  split,
	"Slice":  shaped(like(0), slice),
	"Pad":    shaped(like(0), pad),
}

func concat(c *Call) []int64 {
	var out []int64
	at, open := 0, false
	for i := range c.In {
		s := c.shape(i)
		if s == nil {
			open = true
			continue
		}
		if out == nil {
			a, ok := Axis(c.attrInt("axis", 1), len(s))
			if !ok {
				return nil
			}
			at, out = a, slices.Clone(s)
			out[at] = 0
		}
		if len(s) != len(out) {
			return nil
		}
		for k, d := range s {
			switch {
			case k != at:
				out[k] = c.must(out[k], d)
			default:
				out[k] = c.plus(out[k], d)
			}
		}
	}
	if out != nil && open {
		out[at] = -1
	}
	return out
}

func split(c *Call) {
	s, n := c.shape(0), len(c.out)
	a, ok := Axis(c.attrInt("axis", 0), len(s))
	sizes, given, _ := c.axes(1, "split")
	if ok && !given && s[a] >= 0 { // equal parts, of which the last may be smaller
		if parts := c.attrInt("num_outputs", int64(n)); parts > 0 {
			for i := range int64(n) {
				sizes = append(sizes, c.split(s[a], parts, i))
			}
		}
	}
	for i := range c.out {
		switch {
		case !ok:
			c.set(i, c.dtype(0), nil)
		case i < len(sizes):
			c.set(i, c.dtype(0), With(s, a, sizes[i]))
		default:
			c.set(i, c.dtype(0), With(s, a, -1))
		}
	}
}

func slice(c *Call) []int64 {
	s := c.shape(0)
	starts, _, ok1 := c.axes(1, "starts")
	ends, _, ok2 := c.axes(2, "ends")
	axes, given, ok3 := c.axes(3, "axes")
	steps, _, ok4 := c.axes(4, "steps")
	if s == nil {
		return nil
	}
	if !ok3 {
		return unknown(len(s))
	}
	if !given {
		n := len(starts)
		if k, ok := c.count(1); !ok1 && ok {
			n = k
		}
		for i := range min(n, len(s)) {
			axes = append(axes, int64(i))
		}
	}
	out := slices.Clone(s)
	for i, x := range axes {
		a, ok := Axis(x, len(s))
		if !ok {
			return unknown(len(s))
		}
		if out[a] = -1; ok1 && ok2 && ok4 && i < len(starts) && i < len(ends) {
			step := int64(1)
			if i < len(steps) {
				step = steps[i]
			}
			out[a] = c.sliced(s[a], starts[i], ends[i], step)
		}
	}
	return out
}

// sliced returns the length of start:end:step of a dimension d. If d is unknown, only an empty slice is certain.
func sliced(d, start, end, step int64) int64 {
	switch {
	case step == 0:
		return -1
	case d >= 0:
		return reference.SliceLength(start, end, step, d)
	case step > 0 && start >= 0 && start >= end && end >= 0:
		return 0
	}
	return -1
}

func pad(c *Call) []int64 {
	s := c.shape(0)
	pads, _, ok := c.axes(1, "pads")
	axes, given, ok2 := c.axes(3, "axes")
	if s == nil {
		return nil
	}
	if !given {
		axes = nil
		for i := range s {
			axes = append(axes, int64(i))
		}
	}
	if !ok || !ok2 || len(pads) != 2*len(axes) {
		return unknown(len(s))
	}
	out := slices.Clone(s)
	for i, x := range axes {
		if a, ok := Axis(x, len(s)); ok && s[a] >= 0 {
			if c.w == Proof {
				out[a] = c.table().Greatest(0, c.table().Add(s[a], c.table().Add(pads[i], pads[i+len(axes)])))
				continue
			}
			out[a] = max(0, s[a]+pads[i]+pads[i+len(axes)])
		}
	}
	return out
}
