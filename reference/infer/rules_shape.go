package infer

import (
	"slices"

	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/reference"
)

// shapeRules: ops that read a shape or give the same elements another one.
var shapeRules = map[string]rule{
	"Shape":           shapeOp,
	"Size":            sizeOp,
	"Reshape":         reshape,
	"Transpose":       transpose,
	"Unsqueeze":       unsqueeze,
	"Squeeze":         squeeze,
	"Flatten":         flatten,
	"Expand":          expand,
	"Tile":            tile,
	"ConstantOfShape": constantOfShape,
}

func shapeOp(c *call) {
	s := c.shape(0)
	if s == nil {
		c.set(0, onnx.Int64, []int64{-1})
		return
	}
	rank := int64(len(s))
	bound := func(name string, def int64) int64 {
		v := c.attrInt(name, def)
		if v < 0 {
			v += rank
		}
		return min(max(v, 0), rank)
	}
	from, to := bound("start", 0), bound("end", rank)
	s = s[from:max(from, to)]
	if !complete(s) {
		c.set(0, onnx.Int64, []int64{int64(len(s))})
		return
	}
	c.setValue(0, reference.NewInts(onnx.Int64, []int{len(s)}, s))
}

func sizeOp(c *call) {
	s := c.shape(0)
	if n := product(s); s != nil && n >= 0 {
		c.setValue(0, reference.NewInts(onnx.Int64, []int{}, []int64{n}))
		return
	}
	c.set(0, onnx.Int64, []int64{})
}

func reshape(c *call) {
	t := c.dtype(0)
	target, ok := c.ints(1)
	if !c.has(1) {
		target = c.attrInts("shape") // opset 1
		ok = target != nil
	}
	if !ok {
		var s []int64
		if r := c.shape(1); len(r) == 1 && r[0] >= 0 && r[0] < 64 {
			s = unknown(int(r[0]))
		}
		c.set(0, t, s)
		return
	}
	c.set(0, t, c.reshaped(c.shape(0), target, c.attrInt("allowzero", 0) != 0))
}

// reshaped returns the shape that a tensor of shape s has after Reshape to the target.
func (c *call) reshaped(s, target []int64, allowZero bool) []int64 {
	out := slices.Clone(target)
	if out == nil {
		out = []int64{}
	}
	open := -1
	for i, d := range out {
		switch {
		case d == 0 && !allowZero:
			out[i] = -1
			if i < len(s) {
				out[i] = s[i]
			}
		case d == -1:
			open = i
		}
	}
	if s == nil || len(s) > 0 && !complete(s) && open < 0 {
		return out
	}
	// Equal dimensions are left out on both sides: the rest tells more when the sizes disagree, and may be known when
	// the whole is not.
	left := slices.Clone(s)
	var right []int64
	for i, d := range out {
		if i == open {
			continue
		}
		if k := slices.Index(left, d); k >= 0 && d > 0 {
			left = slices.Delete(left, k, k+1)
			continue
		}
		right = append(right, d)
	}
	have, want := product(left), product(right)
	switch {
	case open < 0:
		if have >= 0 && want >= 0 && (have != want || c.gather) && c.must(have, want) < 0 {
			return unknown(len(out))
		}
	case have < 0 || want <= 0:
	case have%want == 0:
		out[open] = have / want
	default:
		c.misfit()
		// Of what is left, dimensions that are alone on their side ought to be equal.
		if len(left) == 1 && len(right) == 1 {
			c.must(left[0], right[0])
			out[open] = 1
			return out
		}
		for i := 0; i < min(len(left), len(right)); i++ {
			c.must(left[i], right[i])
		}
	}
	return out
}

func transpose(c *call) {
	s := c.shape(0)
	if s == nil {
		c.set(0, c.dtype(0), nil)
		return
	}
	perm := c.attrInts("perm")
	out := make([]int64, len(s))
	for i := range s {
		k := len(s) - 1 - i
		if perm != nil {
			var ok bool
			if len(perm) != len(s) {
				c.set(0, c.dtype(0), nil)
				return
			}
			if k, ok = axis(perm[i], len(s)); !ok {
				c.set(0, c.dtype(0), nil)
				return
			}
		}
		out[i] = s[k]
	}
	c.set(0, c.dtype(0), out)
}

func unsqueeze(c *call) {
	s := c.shape(0)
	axes, _, ok := c.axes(1, "axes")
	if s == nil || !ok {
		if r := c.shape(1); s != nil && len(r) == 1 && r[0] >= 0 && r[0] < 64 {
			c.set(0, c.dtype(0), unknown(len(s)+int(r[0])))
			return
		}
		c.set(0, c.dtype(0), nil)
		return
	}
	out := make([]int64, len(s)+len(axes))
	for _, a := range axes {
		k, ok := axis(a, len(out))
		if !ok || out[k] == 1 {
			c.set(0, c.dtype(0), nil)
			return
		}
		out[k] = 1
	}
	i := 0
	for k := range out {
		if out[k] == 0 {
			out[k] = s[i]
			i++
		}
	}
	c.set(0, c.dtype(0), out)
}

func squeeze(c *call) {
	s := c.shape(0)
	axes, given, ok := c.axes(1, "axes")
	if s == nil || !ok || !given && !complete(s) {
		c.set(0, c.dtype(0), nil)
		return
	}
	drop := make([]bool, len(s))
	for _, a := range axes {
		k, ok := axis(a, len(s))
		if !ok {
			c.set(0, c.dtype(0), nil)
			return
		}
		drop[k] = true
	}
	out := []int64{}
	for i, d := range s {
		if !drop[i] && (given || d != 1) {
			out = append(out, d)
		}
	}
	c.set(0, c.dtype(0), out)
}

func flatten(c *call) {
	s := c.shape(0)
	if s == nil {
		c.set(0, c.dtype(0), []int64{-1, -1})
		return
	}
	a := c.attrInt("axis", 1)
	if a < 0 {
		a += int64(len(s))
	}
	if a < 0 || a > int64(len(s)) {
		return
	}
	c.set(0, c.dtype(0), []int64{product(s[:a]), product(s[a:])})
}

func expand(c *call) {
	s := c.shape(0)
	target, ok := c.ints(1)
	if !ok {
		var out []int64
		if r := c.shape(1); s != nil && len(r) == 1 && r[0] >= 0 && r[0] < 64 {
			out = unknown(max(int(r[0]), len(s)))
		}
		c.set(0, c.dtype(0), out)
		return
	}
	if slices.ContainsFunc(target, func(d int64) bool { return d < 0 }) {
		target = slices.Clone(target) // torch's -1: the dimension as it is
		for i, d := range target {
			if d < 0 {
				target[i] = 1
			}
		}
	}
	if target == nil {
		target = []int64{}
	}
	c.set(0, c.dtype(0), c.broadcast(s, target))
}

func tile(c *call) {
	s := c.shape(0)
	repeats, ok := c.ints(1)
	if s == nil || !ok || len(repeats) != len(s) {
		if s != nil {
			s = unknown(len(s))
		}
		c.set(0, c.dtype(0), s)
		return
	}
	out := make([]int64, len(s))
	for i, d := range s {
		out[i] = product([]int64{d, repeats[i]})
	}
	c.set(0, c.dtype(0), out)
}

func constantOfShape(c *call) {
	t := onnx.Float
	if a := c.attr("value"); a != nil && a.Tensor != nil {
		t = a.Tensor.DataType
	}
	if s, ok := c.ints(0); ok && !slices.ContainsFunc(s, func(d int64) bool { return d < 0 }) {
		c.set(0, t, append([]int64{}, s...))
		return
	}
	if r := c.shape(0); len(r) == 1 && r[0] >= 0 && r[0] < 64 {
		c.set(0, t, unknown(int(r[0])))
		return
	}
	c.set(0, t, nil)
}
