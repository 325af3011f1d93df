package norms

import (
	"math"
	"slices"

	"github.com/mojo-patch/mojo-patch/reference/internal/op"
	"github.com/mojo-patch/mojo-patch/reference/internal/ops/elementwise"
	"github.com/mojo-patch/mojo-patch/reference/internal/tensor"
)

// opInstanceNorm normalizes each channel of each item over the remaining dimensions.
func opInstanceNorm(c *op.Call) []*tensor.Tensor {
	x := c.Floats(0)
	if x.Rank() < 2 {
		tensor.Fail("the input has rank %d, expected at least 2", x.Rank())
	}
	return groupNorm(c, x, x.Shape[1], false)
}

// opGroupNorm normalizes groups of channels; scale and bias are per group before opset 21, per channel from then on.
func opGroupNorm(c *op.Call) []*tensor.Tensor {
	x := c.Floats(0)
	groups := int(c.Int("num_groups", 1))
	if x.Rank() < 2 || groups < 1 || x.Shape[1]%groups != 0 {
		tensor.Fail("an input of %v has no %d groups of channels", x.Shape, groups)
	}
	return groupNorm(c, x, groups, c.Opset() < 21)
}

func groupNorm(c *op.Call, x *tensor.Tensor, groups int, perGroup bool) []*tensor.Tensor {
	scale, bias := c.Floats(1), c.Floats(2)
	eps := c.Float("epsilon", 1e-5)
	ch, inner := x.Shape[1], tensor.Size(x.Shape[2:])
	want := tensor.Pick(perGroup, groups, ch)
	if scale.Len() != want || bias.Len() != want {
		tensor.Fail("scale %v and bias %v must have %d elements", scale.Shape, bias.Shape, want)
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
			v[i] = c.RoundOne(x.DataType, (v[i]-m)*inv)*scale.F[k] + bias.F[k]
		}
	}
	return op.One(tensor.NewFloats(x.DataType, x.Shape, y))
}

// opMeanVariance is (x-mean)/std over the axes.
func opMeanVariance(c *op.Call) []*tensor.Tensor {
	x := c.Floats(0)
	axes, ok := c.Axes(1, x.Rank())
	if !ok {
		axes = []int{0, 2, 3}
	}
	count := 1
	for _, a := range axes {
		if a >= x.Rank() {
			tensor.Fail("axis %d is outside a rank of %d", a, x.Rank())
		}
		count *= x.Shape[a]
	}
	st := reduceStrides(x.Shape, axes)
	mean := fold(x.F, x.Shape, st, x.Len()/max(count, 1), 0, elementwise.Add)
	square := fold(x.F, x.Shape, st, x.Len()/max(count, 1), 0, addSquare)
	y := slices.Clone(x.F)
	if len(y) > 0 {
		tensor.Walk2(x.Shape, st, st, func(o, i, _, n, si, _ int) {
			for k := range n {
				m := mean[i+k*si] / float64(count)
				y[o+k] = (y[o+k] - m) / (math.Sqrt(square[i+k*si]/float64(count)-m*m) + 1e-9)
			}
		})
	}
	return op.One(tensor.NewFloats(x.DataType, x.Shape, y))
}

// opLpNorm divides by the 1- or 2-norm along an axis. A norm of zero leaves zeros.
func opLpNorm(c *op.Call) []*tensor.Tensor {
	x := c.Floats(0)
	axis, p := c.Axis(c.Int("axis", -1), x.Rank()), c.Int("p", 2)
	if p != 1 && p != 2 {
		tensor.Fail("p is %d, expected 1 or 2", p)
	}
	y := slices.Clone(x.F)
	tensor.AlongAxis(y, x.Shape[axis], tensor.Size(x.Shape[axis+1:]), func(v []float64) {
		norm := 0.0
		for _, e := range v {
			norm += tensor.Pick(p == 1, math.Abs(e), e*e)
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
	return op.One(tensor.NewFloats(x.DataType, x.Shape, y))
}
