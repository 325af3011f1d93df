package reference

import (
	"math"
	"slices"
)

// opInstanceNorm normalizes each channel of each item over the remaining dimensions.
func opInstanceNorm(c *call) []*Tensor {
	x := c.floats(0)
	if x.Rank() < 2 {
		fail("the input has rank %d, expected at least 2", x.Rank())
	}
	return groupNorm(c, x, x.Shape[1], false)
}

// opGroupNorm normalizes groups of channels; scale and bias are per group before opset 21, per channel from then on.
func opGroupNorm(c *call) []*Tensor {
	x := c.floats(0)
	groups := int(c.int("num_groups", 1))
	if x.Rank() < 2 || groups < 1 || x.Shape[1]%groups != 0 {
		fail("an input of %v has no %d groups of channels", x.Shape, groups)
	}
	return groupNorm(c, x, groups, c.opset() < 21)
}

func groupNorm(c *call, x *Tensor, groups int, perGroup bool) []*Tensor {
	scale, bias := c.floats(1), c.floats(2)
	eps := c.float("epsilon", 1e-5)
	ch, inner := x.Shape[1], size(x.Shape[2:])
	want := pick(perGroup, groups, ch)
	if scale.Len() != want || bias.Len() != want {
		fail("scale %v and bias %v must have %d elements", scale.Shape, bias.Shape, want)
	}
	y := slices.Clone(x.F)
	n := ch / max(groups, 1) * inner
	for o := 0; n > 0 && o < len(y); o += n {
		v := y[o : o+n]
		m, s := meanVariance(v)
		inv := 1 / math.Sqrt(s+eps)
		for i := range v {
			k := (o + i) / inner % ch
			if perGroup {
				k = o / n % groups
			}
			v[i] = c.roundOne(x.DataType, (v[i]-m)*inv)*scale.F[k] + bias.F[k]
		}
	}
	return one(NewFloats(x.DataType, x.Shape, y))
}

// opMeanVariance is (x-mean)/std over the axes.
func opMeanVariance(c *call) []*Tensor {
	x := c.floats(0)
	axes, ok := c.axes(1, x.Rank())
	if !ok {
		axes = []int{0, 2, 3}
	}
	count := 1
	for _, a := range axes {
		if a >= x.Rank() {
			fail("axis %d is outside a rank of %d", a, x.Rank())
		}
		count *= x.Shape[a]
	}
	st := reduceStrides(x.Shape, axes)
	mean := fold(x.F, x.Shape, st, x.Len()/max(count, 1), 0, add)
	square := fold(x.F, x.Shape, st, x.Len()/max(count, 1), 0, addSquare)
	y := slices.Clone(x.F)
	if len(y) > 0 {
		walk2(x.Shape, st, st, func(o, i, _, n, si, _ int) {
			for k := range n {
				m := mean[i+k*si] / float64(count)
				y[o+k] = (y[o+k] - m) / (math.Sqrt(square[i+k*si]/float64(count)-m*m) + 1e-9)
			}
		})
	}
	return one(NewFloats(x.DataType, x.Shape, y))
}

// opLpNorm divides by the 1- or 2-norm along an axis. A norm of zero leaves zeros.
func opLpNorm(c *call) []*Tensor {
	x := c.floats(0)
	axis, p := c.axis(c.int("axis", -1), x.Rank()), c.int("p", 2)
	if p != 1 && p != 2 {
		fail("p is %d, expected 1 or 2", p)
	}
	y := slices.Clone(x.F)
	alongAxis(y, x.Shape[axis], size(x.Shape[axis+1:]), func(v []float64) {
		norm := 0.0
		for _, e := range v {
			norm += pick(p == 1, math.Abs(e), e*e)
		}
		if p == 2 {
			norm = math.Sqrt(norm)
		}
		for i := range v {
			if norm != 0 {
				v[i] /= norm
			}
		}
	})
	return one(NewFloats(x.DataType, x.Shape, y))
}
