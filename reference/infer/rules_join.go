package infer

import "slices"

// joinRules: ops that put tensors together, take them apart or cut them along axes.
var joinRules = map[string]rule{
	"Concat": concat,
	"Split":  split,
	"Slice":  slice,
	"Pad":    pad,
}

func concat(c *call) {
	t := c.firstType(0)
	var out []int64
	at := 0
	for i := range c.in {
		s := c.shape(i)
		if s == nil {
			continue
		}
		if out == nil {
			a, ok := axis(c.attrInt("axis", 1), len(s))
			if !ok {
				return
			}
			at, out = a, slices.Clone(s)
			out[at] = 0
		}
		if len(s) != len(out) {
			c.set(0, t, nil)
			return
		}
		for k, d := range s {
			switch {
			case k != at:
				out[k] = c.must(out[k], d)
			case d < 0 || out[k] < 0:
				out[k] = -1
			default:
				out[k] += d
			}
		}
	}
	if out != nil {
		for i := range c.in {
			if c.shape(i) == nil {
				out[at] = -1
			}
		}
	}
	c.set(0, t, out)
}

func split(c *call) {
	s, n := c.shape(0), len(c.out)
	a, ok := axis(c.attrInt("axis", 0), len(s))
	if s == nil || !ok {
		for i := range c.out {
			c.set(i, c.dtype(0), nil)
		}
		return
	}
	sizes, given, known := c.axes(1, "split")
	if !given {
		// Equal parts, of which the last may be smaller.
		sizes = make([]int64, n)
		parts := c.attrInt("num_outputs", int64(n))
		for i := range sizes {
			if sizes[i] = -1; s[a] >= 0 && parts > 0 {
				size := (s[a] + parts - 1) / parts
				sizes[i] = min(size, max(s[a]-int64(i)*size, 0))
			}
		}
		known = true
	}
	for i := range c.out {
		d := int64(-1)
		if known && i < len(sizes) {
			d = sizes[i]
		}
		c.set(i, c.dtype(0), with(s, a, d))
	}
}

func slice(c *call) {
	s, t := c.shape(0), c.dtype(0)
	if s == nil {
		c.set(0, t, nil)
		return
	}
	starts, _, ok1 := c.axes(1, "starts")
	ends, _, ok2 := c.axes(2, "ends")
	axes, given, ok3 := c.axes(3, "axes")
	steps, stepped, ok4 := c.axes(4, "steps")
	if !ok3 {
		c.set(0, t, unknown(len(s)))
		return
	}
	if !given {
		n := len(starts)
		if r := c.shape(1); !ok1 && len(r) == 1 && r[0] >= 0 {
			n = int(r[0])
		}
		for i := range min(n, len(s)) {
			axes = append(axes, int64(i))
		}
	}
	out := slices.Clone(s)
	for i, x := range axes {
		a, ok := axis(x, len(s))
		if !ok {
			c.set(0, t, unknown(len(s)))
			return
		}
		if out[a] = -1; !ok1 || !ok2 || !ok4 || i >= len(starts) || i >= len(ends) || s[a] < 0 {
			if ok1 && ok2 && ok4 && i < len(starts) && i < len(ends) {
				out[a] = openSlice(starts[i], ends[i], pickStep(steps, stepped, i))
			}
			continue
		}
		out[a] = sliced(s[a], starts[i], ends[i], pickStep(steps, stepped, i))
	}
	c.set(0, t, out)
}

func pickStep(steps []int64, given bool, i int) int64 {
	if given && i < len(steps) {
		return steps[i]
	}
	return 1
}

// sliced returns the length of start:end:step of a dimension d.
func sliced(d, start, end, step int64) int64 {
	if start < 0 {
		start += d
	}
	if end < 0 && end >= -d {
		end += d
	} else if end < 0 {
		end = -1
	}
	switch {
	case step > 0:
		start, end = min(max(start, 0), d), min(max(end, 0), d)
		return max(0, (end-start+step-1)/step)
	case step < 0:
		start, end = min(max(start, 0), d-1), min(max(end, -1), d-1)
		return max(0, (start-end-step-1)/-step)
	}
	return -1
}

// openSlice returns the length of a slice of a dimension that is not known: none but an empty one is sure.
func openSlice(start, end, step int64) int64 {
	if step > 0 && start >= 0 && end >= 0 && end <= start {
		return 0
	}
	return -1
}

func pad(c *call) {
	s, t := c.shape(0), c.dtype(0)
	pads, _, ok := c.axes(1, "pads")
	axes, given, ok2 := c.axes(3, "axes")
	if s == nil || !ok || !ok2 {
		if s != nil {
			s = unknown(len(s))
		}
		c.set(0, t, s)
		return
	}
	if !given {
		axes = nil
		for i := range s {
			axes = append(axes, int64(i))
		}
	}
	out := slices.Clone(s)
	if len(pads) != 2*len(axes) {
		c.set(0, t, unknown(len(s)))
		return
	}
	for i, x := range axes {
		if a, ok := axis(x, len(s)); ok && s[a] >= 0 {
			out[a] = max(0, s[a]+pads[i]+pads[i+len(axes)])
		}
	}
	c.set(0, t, out)
}
