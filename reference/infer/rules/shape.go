package rules

import (
	"slices"

	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/reference"
)

// shapeRules: ops that read a shape or change the shape of the same elements.
var shapeRules = map[string]Rule{
	"Shape":           shapeOp,
	"Size":            sizeOp,
	"Reshape":         shaped(like(0), reshape),
	"Transpose":       shaped(like(0), transpose),
	"Unsqueeze":       shaped(like(0), unsqueeze),
	"Squeeze":         shaped(like(0), squeeze),
	"Flatten":         shaped(like(0), flatten),
	"Expand":          shaped(like(0), expand),
	"Tile":            shaped(like(0), tile),
	"ConstantOfShape": shaped(constantType, constantOfShape),
}

func shapeOp(c *Call) {
	s := c.shape(0)
	if s == nil {
		c.set(0, onnx.Int64, []int64{-1})
		return
	}
	rank := int64(len(s))
	from, to := reference.ShapeRange(c.attrInt("start", 0), c.attrInt("end", rank), rank)
	s = s[from:to]
	if !Complete(s) {
		c.set(0, onnx.Int64, []int64{int64(len(s))})
		return
	}
	c.setValue(0, reference.NewInts(onnx.Int64, []int{len(s)}, s))
}

func sizeOp(c *Call) {
	s := c.shape(0)
	if n := c.product(s); s != nil && n >= 0 {
		c.setValue(0, reference.NewInts(onnx.Int64, []int{}, []int64{n}))
		return
	}
	c.set(0, onnx.Int64, []int64{})
}

func reshape(c *Call) []int64 {
	target, ok := c.ints(1)
	if !c.has(1) {
		target = c.attrInts("shape") // opset 1
		ok = target != nil
	}
	if ok {
		return c.reshaped(c.shape(0), target, c.attrInt("allowzero", 0) != 0)
	}
	if n, ok := c.count(1); ok {
		return unknown(n)
	}
	return nil
}

// reshaped returns the shape of a tensor of shape s after Reshape to the target.
func (c *Call) reshaped(s, target []int64, allowZero bool) []int64 {
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
	if s == nil || len(s) > 0 && !Complete(s) && open < 0 {
		return out
	}
	// Cancel equal dimensions on both sides: the rest tells more if the sizes disagree, and may be known when the whole
	// is not.
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
	have, want := c.product(left), c.product(right)
	switch {
	case open < 0:
		if have >= 0 && want >= 0 && (have != want || c.Gather) && c.must(have, want) < 0 {
			return unknown(len(out))
		}
	case have < 0 || want <= 0:
	case c.w == Proof:
		out[open] = c.table().Quotient(have, want)
	case have%want == 0:
		if c.Gather && open > 0 { // in another world it does not divide: two names may be one batch
			c.must(s[0], out[0])
		}
		out[open] = have / want
	default:
		c.misfit()
		if open > 0 {
			c.must(s[0], out[0])
		}
		// If one dimension remains on each side, they should be equal.
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

func transpose(c *Call) []int64 {
	s, perm := c.shape(0), c.attrInts("perm")
	if s == nil || perm != nil && len(perm) != len(s) {
		return nil
	}
	out := make([]int64, len(s))
	for i := range s {
		k, ok := len(s)-1-i, true
		if perm != nil {
			k, ok = Axis(perm[i], len(s))
		}
		if !ok {
			return nil
		}
		out[i] = s[k]
	}
	return out
}

func unsqueeze(c *Call) []int64 {
	s := c.shape(0)
	axes, _, ok := c.axes(1, "axes")
	if s == nil {
		return nil
	}
	if !ok {
		if n, ok := c.count(1); ok {
			return unknown(len(s) + n)
		}
		return nil
	}
	out := make([]int64, len(s)+len(axes))
	for _, a := range axes {
		k, ok := Axis(a, len(out))
		if !ok || out[k] == 1 {
			return nil
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
	return out
}

func squeeze(c *Call) []int64 {
	s := c.shape(0)
	axes, given, ok := c.axes(1, "axes")
	if s == nil || !ok || !given && !Complete(s) {
		return nil
	}
	if !given {
		return slices.DeleteFunc(slices.Clone(s), func(d int64) bool { return d == 1 })
	}
	return without(s, axes)
}

// without drops dimensions. It returns nil for an axis out of range.
func without(s, axes []int64) []int64 {
	drop := make([]bool, len(s))
	for _, a := range axes {
		k, ok := Axis(a, len(s))
		if !ok {
			return nil
		}
		drop[k] = true
	}
	out := make([]int64, 0, len(s))
	for i, d := range s {
		if !drop[i] {
			out = append(out, d)
		}
	}
	return out
}

func flatten(c *Call) []int64 {
	s := c.shape(0)
	if s == nil {
		return []int64{-1, -1}
	}
	a := c.attrInt("axis", 1)
	if a < 0 {
		a += int64(len(s))
	}
	if a < 0 || a > int64(len(s)) {
		return nil
	}
	return []int64{c.product(s[:a]), c.product(s[a:])}
}

func expand(c *Call) []int64 {
	s := c.shape(0)
	target, ok := c.ints(1)
	if !ok {
		if n, ok := c.count(1); ok && s != nil {
			return unknown(max(n, len(s)))
		}
		return nil
	}
	to := make([]int64, len(target))
	for i, d := range target {
		if to[i] = d; d < 0 { // torch's -1: the dimension as it is
			to[i] = 1
		}
	}
	return c.broadcast(s, to)
}

func tile(c *Call) []int64 {
	s := c.shape(0)
	repeats, ok := c.ints(1)
	if s == nil {
		return nil
	}
	if !ok || len(repeats) != len(s) {
		return unknown(len(s))
	}
	out := make([]int64, len(s))
	for i, d := range s {
		out[i] = c.product([]int64{d, repeats[i]})
	}
	return out
}

func constantType(c *Call) onnx.DataType {
	if a := c.attr("value"); a != nil && a.Tensor != nil {
		return a.Tensor.DataType
	}
	return onnx.Float
}

func constantOfShape(c *Call) []int64 {
	if s, ok := c.ints(0); ok && !slices.ContainsFunc(s, func(d int64) bool { return d < 0 }) {
		return append([]int64{}, s...)
	}
	if n, ok := c.count(0); ok {
		return unknown(n)
	}
	return nil
}

// count returns how many numbers input i lists, such as the dimensions of a shape, if known.
func (c *Call) count(i int) (int, bool) {
	if r := c.shape(i); len(r) == 1 && r[0] >= 0 && r[0] < 64 {
		return int(r[0]), true
	}
	return 0, false
}
