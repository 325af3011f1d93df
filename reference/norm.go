package reference

import (
	"math"
	"slices"

	"github.com/mojo-patch/mojo-patch/onnx"
)

var normOps = map[string]opDef{
	"Softmax":                   arith(1, opSoftmax),
	"LogSoftmax":                arith(1, opSoftmax),
	"Hardmax":                   arith(1, opSoftmax),
	"LayerNormalization":        arith(2, opLayerNorm),
	"RMSNormalization":          arith(2, opRMSNorm),
	"BatchNormalization":        arith(5, opBatchNorm),
	"InstanceNormalization":     arith(3, opInstanceNorm),
	"GroupNormalization":        arith(3, opGroupNorm),
	"MeanVarianceNormalization": arith(1, opMeanVariance),
	"LpNormalization":           arith(1, opLpNorm),

	"SimplifiedLayerNormalization":                   arith(2, opSimplifiedLayerNorm),
	"com.microsoft:SimplifiedLayerNormalization":     arith(2, opSimplifiedLayerNorm),
	"com.microsoft:SkipSimplifiedLayerNormalization": arith(3, opSkipSimplifiedLayerNorm),
	"com.microsoft:SkipLayerNormalization":           arith(3, opSkipLayerNorm),
	"com.microsoft:GatedRMSNorm":                     arith(3, opGatedRMSNorm),
}

// opSoftmax is Softmax, LogSoftmax and Hardmax: along one axis from opset 13 on, before that over all dimensions from
// axis on together.
func opSoftmax(c *call) []*Tensor {
	x := c.floats(0)
	axis := c.axis(c.int("axis", pick[int64](c.opset() < 13, 1, -1)), max(x.Rank(), 1))
	n, inner := 1, 1
	switch {
	case x.Rank() == 0:
	case c.opset() < 13:
		n = size(x.Shape[axis:])
	default:
		n, inner = x.Shape[axis], size(x.Shape[axis+1:])
	}
	r := &Tensor{DataType: x.DataType, Shape: x.Shape, F: slices.Clone(x.F)}
	add := c.adder(x.DataType, add[float64])
	line := map[string]func([]float64){"LogSoftmax": logSoftmaxLine, "Hardmax": hardmaxLine,
		"Softmax": func(v []float64) { softmaxLine(v, add) }}[c.n.OpType]
	alongAxis(r.F, n, inner, line)
	return one(r)
}

// alongAxis calls f for each line of n elements, inner apart, and writes back the changes of f.
func alongAxis[T any](v []T, n, inner int, f func([]T)) {
	if len(v) == 0 {
		return
	}
	if inner == 1 {
		for o := 0; o < len(v); o += n {
			f(v[o : o+n])
		}
		return
	}
	line := make([]T, n)
	for o := 0; o < len(v); o += n * inner {
		for k := range inner {
			for j := range line {
				line[j] = v[o+k+j*inner]
			}
			f(line)
			for j := range line {
				v[o+k+j*inner] = line[j]
			}
		}
	}
}

// softmaxLine first subtracts the maximum. A line of only -Inf returns NaN, as in every other implementation.
func softmaxLine(v []float64, add func(a, x float64) float64) {
	top, sum := slices.Max(v), 0.0
	for i, x := range v {
		v[i] = math.Exp(x - top)
		sum = add(sum, v[i])
	}
	for i := range v {
		v[i] /= sum
	}
}

func logSoftmaxLine(v []float64) {
	top, sum := slices.Max(v), 0.0
	for _, x := range v {
		sum += math.Exp(x - top)
	}
	shift := top + math.Log(sum)
	for i := range v {
		v[i] -= shift
	}
}

func hardmaxLine(v []float64) {
	best := 0
	for i, x := range v {
		if x > v[best] {
			best = i
		}
	}
	clear(v)
	v[best] = 1
}

// trailing returns the number of elements in the dimensions from axis on, over which a norm runs, and the shape of its
// statistics.
func (c *call) trailing(x *Tensor) (n int, stats []int) {
	axis := c.axis(c.int("axis", -1), x.Rank())
	return size(x.Shape[axis:]), slices.Concat(x.Shape[:axis], slices.Repeat([]int{1}, x.Rank()-axis))
}

// opLayerNorm is (x-mean)/sqrt(var+epsilon)*scale + B over the dimensions from axis on. The normalized value is
// computed in stash_type (float32) and rounded to the input's type before the scale, as in the standard's function
// body.
func opLayerNorm(c *call) []*Tensor {
	x := c.floats(0)
	n, stats := c.trailing(x)
	eps, stash := c.float("epsilon", 1e-5), onnx.DataType(c.int("stash_type", int64(onnx.Float)))
	mean, inv := newFloats(stash, stats), newFloats(stash, stats)
	y := slices.Clone(x.F)
	for row := range mean.F {
		v := y[row*n : (row+1)*n]
		m, s := meanVariance(v)
		mean.F[row], inv.F[row] = m, 1/math.Sqrt(s+eps)
		for i := range v {
			v[i] = c.roundOne(x.DataType, (v[i]-m)*inv.F[row])
		}
	}
	return []*Tensor{c.affine(x, y, c.floats(1), c.arg(2)), mean, inv}
}

func meanVariance(v []float64) (mean, variance float64) {
	for _, x := range v {
		mean += x
	}
	mean /= float64(len(v))
	for _, x := range v {
		variance += (x - mean) * (x - mean)
	}
	return mean, variance / float64(len(v))
}

// affine is y*scale + bias with broadcasting of scale and bias (may be nil) to x's shape, in scale's type.
func (c *call) affine(x *Tensor, y []float64, scale, bias *Tensor) *Tensor {
	fits("scale", scale, x)
	r := NewFloats(scale.DataType, x.Shape, zipWith(y, x.Shape, scale.F, scale.Shape, x.Shape, multiply))
	if bias == nil {
		return r
	}
	fits("bias", bias, x)
	c.round(r.DataType, r.F)
	r.F = zipWith(r.F, x.Shape, bias.Floats(), bias.Shape, x.Shape, add)
	return r
}

// fits fails unless t broadcasts to the shape of x.
func fits(name string, t, x *Tensor) {
	if !broadcastsTo(t.Shape, x.Shape) {
		fail("a %s of %v does not fit an input of %v", name, t.Shape, x.Shape)
	}
}

// rmsNormalize divides each run of n elements by its root mean square. The mean of the squares has type stash.
func (c *call) rmsNormalize(v []float64, n int, eps float64, stash onnx.DataType) (y, inv []float64) {
	y = slices.Clone(v)
	alongAxis(y, n, 1, func(line []float64) {
		sum := 0.0
		for _, x := range line {
			sum += x * x
		}
		f := 1 / math.Sqrt(c.roundOne(stash, sum/float64(n))+eps) // squares may leave the type's range
		inv = append(inv, f)
		for i := range line {
			line[i] *= f
		}
	})
	return y, inv
}

// opRMSNorm (opset 23) rounds the normalized value to the input's type before the scale.
func opRMSNorm(c *call) []*Tensor {
	x := c.floats(0)
	n, _ := c.trailing(x)
	y, _ := c.rmsNormalize(x.F, n, c.float("epsilon", 1e-5), onnx.DataType(c.int("stash_type", int64(onnx.Float))))
	c.round(x.DataType, y)
	return one(c.affine(x, y, c.floats(1), nil))
}

// opSimplifiedLayerNorm is onnxruntime's RMS norm: one rounding at the end; the second output is 1/rms.
func opSimplifiedLayerNorm(c *call) []*Tensor {
	x := c.floats(0)
	n, stats := c.trailing(x)
	y, inv := c.rmsNormalize(x.F, n, c.float("epsilon", 1e-5), onnx.Float)
	stat := newFloats(onnx.Float, stats)
	copy(stat.F, inv)
	return []*Tensor{c.affine(x, y, c.floats(1), nil), stat}
}

// opGatedRMSNorm divides runs as long as the scale by their root mean square, and rounds once, behind the gate.
func opGatedRMSNorm(c *call) []*Tensor {
	x, scale, gate := c.floats(0), c.floats(1), c.floats(2)
	n := scale.Len()
	if x.Rank() == 0 || n == 0 || x.Shape[x.Rank()-1]%n != 0 || !slices.Equal(x.Shape, gate.Shape) {
		fail("a scale of %d and a gate of %v do not fit an input of %v", n, gate.Shape, x.Shape)
	}
	silu := c.str("activation", "silu") != "sigmoid"
	y, _ := c.rmsNormalize(x.F, n, c.float("epsilon", 1e-5), onnx.Float)
	for i, z := range gate.F {
		factor := 1 / (1 + math.Exp(-z))
		if silu {
			factor *= z
		}
		y[i] *= scale.F[i%n] * factor
	}
	return one(NewFloats(x.DataType, x.Shape, y))
}

// skipSum is the sum of the first two inputs, and of input bias if it is given.
func (c *call) skipSum(bias int) *Tensor {
	x := combine(c, c.floats(0), c.floats(1), add, nil, nil)
	if c.arg(bias) != nil {
		x = combine(c, x, c.floats(bias), add, nil, nil)
	}
	c.round(x.DataType, x.F)
	if x.Rank() == 0 {
		fail("the input is a scalar")
	}
	return x
}

// skipEpsilon is the default of onnxruntime's norms of sums.
const skipEpsilon = float64(float32(1e-12))

// opSkipSimplifiedLayerNorm adds a residual, and a bias, before the RMS norm; output 3 is the sum.
func opSkipSimplifiedLayerNorm(c *call) []*Tensor {
	x := c.skipSum(3)
	y, _ := c.rmsNormalize(x.F, x.Shape[x.Rank()-1], c.float("epsilon", skipEpsilon), onnx.Float)
	return []*Tensor{c.affine(x, y, c.floats(2), nil), nil, nil, x}
}

// opSkipLayerNorm adds a residual, and a bias, before the layer norm, which rounds once; output 3 is the sum.
func opSkipLayerNorm(c *call) []*Tensor {
	x := c.skipSum(4)
	eps, y := c.float("epsilon", skipEpsilon), slices.Clone(x.F)
	alongAxis(y, x.Shape[x.Rank()-1], 1, func(line []float64) {
		m, v := meanVariance(line)
		for i := range line {
			line[i] = (line[i] - m) / math.Sqrt(v+eps)
		}
	})
	scale, beta := c.floats(2), c.arg(3)
	fits("scale", scale, x)
	y = zipWith(y, x.Shape, scale.F, scale.Shape, x.Shape, multiply)
	if beta != nil {
		fits("bias", beta, x)
		y = zipWith(y, x.Shape, beta.Floats(), beta.Shape, x.Shape, add)
	}
	return []*Tensor{NewFloats(x.DataType, x.Shape, y), nil, nil, x}
}

// opBatchNorm is the inference form over dimension 1. training_mode uses the batch's own statistics.
func opBatchNorm(c *call) []*Tensor {
	x, scale, bias, mean, variance := c.floats(0), c.floats(1), c.floats(2), c.floats(3), c.floats(4)
	eps, momentum := c.float("epsilon", 1e-5), c.float("momentum", float64(float32(0.9)))
	training := c.int("training_mode", 0) != 0
	ch, inner := 1, 1
	if x.Rank() > 1 {
		ch, inner = x.Shape[1], size(x.Shape[2:])
	}
	if scale.Len() != ch || bias.Len() != ch || mean.Len() != ch || variance.Len() != ch {
		fail("scale, B, mean and var must have %d elements", ch)
	}
	m, v := mean.F, variance.F
	if training {
		m, v = make([]float64, ch), make([]float64, ch)
		lines := make([][]float64, ch)
		for i, e := range x.F {
			k := i / inner % ch
			lines[k] = append(lines[k], e)
		}
		for k := range lines {
			m[k], v[k] = meanVariance(lines[k])
		}
	}
	y := make([]float64, len(x.F))
	for i, e := range x.F {
		k := i / inner % ch
		y[i] = (e-m[k])/math.Sqrt(v[k]+eps)*scale.F[k] + bias.F[k]
	}
	out := []*Tensor{NewFloats(x.DataType, x.Shape, y)}
	if training {
		mix := func(old, now []float64) []float64 {
			return zipWith(old, mean.Shape, now, mean.Shape, mean.Shape, func(a, b float64) float64 {
				return a*momentum + b*(1-momentum)
			})
		}
		out = append(out, NewFloats(mean.DataType, mean.Shape, mix(mean.F, m)),
			NewFloats(variance.DataType, variance.Shape, mix(variance.F, v)))
	}
	return out
}
