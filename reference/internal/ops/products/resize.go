package products

import (
	"math"
	"slices"

	"github.com/mojo-patch/mojo-patch/reference/internal/op"
	"github.com/mojo-patch/mojo-patch/reference/internal/tensor"
)

var resizeOps = map[string]op.Def{"Resize": op.Arith(1, opResize)}

// tap is an element of an axis that an element of the resized axis depends on.
type tap struct {
	index  int
	weight float64
}

// resizing resizes one axis of width elements to out elements. span is out before it was rounded.
type resizing struct {
	width, out  int
	scale, span float64
	from, to    float64 // of the region of interest, as parts of the axis
	mode        string
	transform   string
	nearest     string
	a           float64 // the coefficient of cubic
	antialias   bool
	exclude     bool
	single      bool // the scale is a float32, so quotients are
}

// opResize samples elements between those of the input, along each axis in turn. Opset 10 has no region of interest and
// no sizes, and always samples at place / scale, rounded up if nearest and smaller, or else down. Integers are rounded
// towards 0.
// Source: Resize of the standard, opset 10 to 19, and its reference implementation.
func opResize(c *op.Call) []*tensor.Tensor {
	x := c.In[0]
	r := resizing{
		mode: c.Str("mode", "nearest"), nearest: c.Str("nearest_mode", "round_prefer_floor"),
		transform: c.Str("coordinate_transformation_mode", "half_pixel"), a: c.Float("cubic_coeff_a", -0.75),
		antialias: c.Int("antialias", 0) != 0, exclude: c.Int("exclude_outside", 0) != 0,
	}
	sizes, _ := c.Integers(3)
	scales, roi := c.Arg(2), c.Arg(1)
	if c.Opset() < 11 {
		scales, roi, r.transform, r.nearest = c.Arg(1), nil, "asymmetric", "opset 10"
	}
	if !slices.Contains([]string{"nearest", "linear", "cubic"}, r.mode) {
		tensor.Fail("unknown mode %q", r.mode)
	}
	var axes []int
	list, ok := c.Ints("axes")
	for _, a := range list {
		axes = append(axes, c.Axis(a, x.Rank()))
	}
	for i := 0; i < x.Rank() && !ok; i++ {
		axes = append(axes, i)
	}
	plans := resizings(c, r, x.Shape, axes, scales, sizes)
	crops := r.transform == "tf_crop_and_resize"
	if crops && (roi == nil || roi.Len() != 2*len(axes)) {
		tensor.Fail("roi is %s, expected the start and the end of %d axes", roi, len(axes))
	}
	y := &tensor.Tensor{DataType: x.DataType, Shape: slices.Clone(x.Shape), F: x.F, I: x.I}
	if x.I != nil && r.mode != "nearest" {
		y.F, y.I = x.Floats(), nil
	}
	outside := c.Float("extrapolation_value", 0)
	for i, axis := range axes {
		p := plans[i]
		if crops {
			p.from, p.to = tensor.FloatAt(roi, i), tensor.FloatAt(roi, i+len(axes))
		} else if p.scale == 1 && p.out == p.width {
			continue
		}
		shape := slices.Clone(y.Shape)
		shape[axis] = p.out
		tensor.Check(tensor.CheckShape(shape))
		if p.width == 0 && tensor.Size(shape) > 0 {
			tensor.Fail("axis %d has no elements to sample", axis)
		}
		taps := make([][]tap, p.out)
		for k := range taps {
			taps[k] = p.taps(k)
		}
		inner := tensor.Size(shape[axis+1:])
		if y.I != nil {
			y.I = resample(y.I, p.width, inner, taps, int64(outside))
		} else {
			y.F = resample(y.F, p.width, inner, taps, outside)
		}
		y.Shape = shape
	}
	if y.I, y.F = slices.Clone(y.I), slices.Clone(y.F); x.I != nil && y.F != nil {
		y.I = make([]int64, len(y.F))
		for i, v := range y.F {
			y.I[i] = int64(v)
		}
		y.F = nil
	}
	return op.One(y)
}

// resizings returns how each of the axes is resized: by scales or to sizes.
func resizings(c *op.Call, r resizing, shape, axes []int, scales *tensor.Tensor, sizes []int64) []resizing {
	count := len(sizes)
	if scales != nil && scales.Len() > 0 {
		count += scales.Len()
	} else {
		scales = nil
	}
	if count != len(axes) {
		tensor.Fail("it needs %d scales or sizes, not %d", len(axes), count)
	}
	list := make([]resizing, len(axes))
	for i, axis := range axes {
		p := r
		if p.width = shape[axis]; scales != nil {
			p.scale, p.single = tensor.FloatAt(scales, i), true
			p.span = p.scale * float64(p.width)
			p.out = int(float32(p.scale) * float32(p.width)) // onnxruntime rounds the product to float32
		} else {
			p.out, p.scale = int(sizes[i]), float64(sizes[i])/float64(p.width)
			p.span = float64(p.out)
		}
		if !(p.scale > 0) && p.width > 0 && p.out != 0 || p.out < 0 {
			tensor.Fail("the scale or size of axis %d is not positive", axis)
		}
		list[i] = p
	}
	keep := c.Str("keep_aspect_ratio_policy", "stretch")
	if keep == "stretch" || scales != nil || len(list) == 0 {
		return list
	}
	all := list[0].scale
	for _, p := range list {
		switch keep {
		case "not_larger":
			all = min(all, p.scale)
		case "not_smaller":
			all = max(all, p.scale)
		default:
			tensor.Fail("unknown keep_aspect_ratio_policy %q", keep)
		}
	}
	for i := range list {
		p := &list[i]
		p.scale, p.span = all, all*float64(p.width)
		p.out = int(p.span + 0.5)
	}
	return list
}

// place returns the place in the input of element k of the output.
func (r *resizing) place(k int) float64 {
	x, last := float64(k), float64(r.width-1)
	switch r.transform {
	case "half_pixel", "pytorch_half_pixel":
		if r.out == 1 && r.transform != "half_pixel" {
			return 0
		}
		return r.unscaled(x+0.5) - 0.5
	case "half_pixel_symmetric":
		return float64(r.width)/2*(1-float64(r.out)/r.span) + r.unscaled(x+0.5) - 0.5
	case "align_corners":
		length := r.span // as in the standard's tests, but the rounded length for sizes
		if !r.single {
			length = float64(r.out)
		}
		if length == 1 || r.out == 1 {
			return 0
		}
		return x * last / (length - 1)
	case "asymmetric":
		return r.unscaled(x)
	case "tf_half_pixel_for_nn":
		return r.unscaled(x + 0.5)
	case "tf_crop_and_resize":
		if r.out == 1 {
			return r.from*last + (r.to-r.from)*last/2
		}
		return r.from*last + x*(r.to-r.from)*last/float64(r.out-1)
	}
	tensor.Fail("unknown coordinate_transformation_mode %q", r.transform)
	return 0
}

func (r *resizing) unscaled(x float64) float64 {
	if r.single {
		return float64(float32(x) / float32(r.scale))
	}
	return x / r.scale
}

// taps lists the elements on which element k of the output depends, or none if it is outside of the input. Elements
// beyond an edge are those at the edge, unless they are excluded.
func (r *resizing) taps(k int) (list []tap) {
	x, near := r.place(k), 1e-6*float64(r.width) // roi has float32s
	if r.transform == "tf_crop_and_resize" && (x < -near || x > float64(r.width-1)+near) {
		return nil
	}
	inside := func(i float64) int { return int(min(max(i, 0), float64(r.width-1))) }
	if r.mode == "nearest" {
		return []tap{{inside(r.round(x)), 1}}
	}
	narrow := 1.0 // wider filters read more elements
	if r.antialias {
		narrow = min(r.scale, 1)
	}
	reach := 1.0
	if r.mode == "cubic" {
		reach = 2
	}
	left, sum := math.Ceil(x)-1, 0.0
	first := math.Floor(-reach/narrow) + 1
	if reach/narrow > float64(r.width)+1e6 {
		tensor.Fail("the scale %g is too small", r.scale)
	}
	for i := first; i < 2-first; i++ {
		at, w := left+i, r.weight((i-(x-left))*narrow)
		if r.exclude && (at < 0 || at >= float64(r.width)) {
			continue
		}
		list, sum = append(list, tap{inside(at), w}), sum+w
	}
	for i := range list {
		list[i].weight /= sum
	}
	return list
}

// round returns the element that is nearest to a place.
func (r *resizing) round(x float64) float64 {
	switch r.nearest {
	case "round_prefer_floor":
		return math.Ceil(x - 0.5)
	case "round_prefer_ceil":
		return math.Floor(x + 0.5)
	case "opset 10":
		if r.scale < 1 {
			return math.Ceil(x)
		}
		return math.Floor(x)
	case "floor":
		return math.Floor(x)
	case "ceil":
		return math.Ceil(x)
	}
	tensor.Fail("unknown nearest_mode %q", r.nearest)
	return 0
}

// weight returns the weight of an element at a distance.
func (r *resizing) weight(d float64) float64 {
	d = math.Abs(d)
	switch {
	case r.mode == "linear":
		return max(0, 1-d)
	case d <= 1:
		return ((r.a+2)*d-(r.a+3))*d*d + 1
	case d < 2:
		return ((r.a*d-5*r.a)*d+8*r.a)*d - 4*r.a
	}
	return 0
}

// resample makes the elements of an axis, whose elements are inner apart, from taps.
func resample[T int64 | float64](v []T, width, inner int, taps [][]tap, outside T) []T {
	block := width * inner
	rows := len(v) / max(block, 1)
	out := make([]T, rows*len(taps)*inner)
	for row := range rows {
		from := v[row*block : (row+1)*block]
		for k, list := range taps {
			to := out[(row*len(taps)+k)*inner:][:inner]
			for i := range to {
				if len(list) == 0 {
					to[i] = outside
				}
				for _, t := range list {
					if x := from[t.index*inner+i]; t.weight == 1 {
						to[i] += x
					} else {
						to[i] += T(t.weight * float64(x))
					}
				}
			}
		}
	}
	return out
}
