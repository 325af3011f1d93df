package norms

import (
	"math"
	"slices"

	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/reference/internal/op"
	"github.com/mojo-patch/mojo-patch/reference/internal/ops/elementwise"
	"github.com/mojo-patch/mojo-patch/reference/internal/tensor"
)

var normOps = map[string]op.Def{
	"Softmax":                   op.Arith(1, opSoftmax),
	"LogSoftmax":                op.Arith(1, opSoftmax),
	"Hardmax":                   op.Arith(1, opSoftmax),
	"LayerNormalization":        op.Arith(2, opLayerNorm),
	"RMSNormalization":          op.Arith(2, opRMSNorm),
	"BatchNormalization":        op.Arith(5, opBatchNorm),
	"InstanceNormalization":     op.Arith(3, opInstanceNorm),
	"GroupNormalization":        op.Arith(3, opGroupNorm),
	"MeanVarianceNormalization": op.Arith(1, opMeanVariance),
	"LpNormalization":           op.Arith(1, opLpNorm),

	"SimplifiedLayerNormalization":                   op.Arith(2, opSimplifiedLayerNorm),
	"com.microsoft:SimplifiedLayerNormalization":     op.Arith(2, opSimplifiedLayerNorm),
	"com.microsoft:SkipSimplifiedLayerNormalization": op.Arith(3, opSkipSimplifiedLayerNorm),
	"com.microsoft:SkipLayerNormalization":           op.Arith(3, opSkipLayerNorm),
	"com.microsoft:GatedRMSNorm":                     op.Arith(3, opGatedRMSNorm),
}

// opSoftmax is Softmax, LogSoftmax and Hardmax: along one axis from opset 13 on, before that over all dimensions from
// axis on together.
func opSoftmax(c *op.Call) []*tensor.Tensor {
	x := c.Floats(0)
	axis := c.Axis(c.Int("axis", tensor.Pick[int64](c.Opset() < 13, 1, -1)), max(x.Rank(), 1))
	n, inner := 1, 1
	switch {
	case x.Rank() == 0:
	case c.Opset() < 13:
		n = tensor.Size(x.Shape[axis:])
	default:
		n, inner = x.Shape[axis], tensor.Size(x.Shape[axis+1:])
	}
	r := &tensor.Tensor{DataType: x.DataType, Shape: x.Shape, F: slices.Clone(x.F)}
	add := c.Adder(x.DataType, elementwise.Add[float64])
	line := map[string]func([]float64){"LogSoftmax": logSoftmaxLine, "Hardmax": hardmaxLine,
		"Softmax": func(v []float64) { SoftmaxLine(v, add) }}[c.Node.OpType]
	tensor.AlongAxis(r.F, n, inner, line)
	return op.One(r)
}

// SoftmaxLine first subtracts the maximum. A line of only -Inf returns NaN, as in every other implementation.
func SoftmaxLine(v []float64, add func(a, x float64) float64) {
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
func trailing(c *op.Call, x *tensor.Tensor) (n int, stats []int) {
	axis := c.Axis(c.Int("axis", -1), x.Rank())
	return tensor.Size(x.Shape[axis:]), slices.Concat(x.Shape[:axis], slices.Repeat([]int{1}, x.Rank()-axis))
}

// opLayerNorm is (x-mean)/sqrt(var+epsilon)*scale + B over the dimensions from axis on. The normalized value is
// computed in stash_type (float32) and rounded to the input's type before the scale, as in the standard's function
// body.
func opLayerNorm(c *op.Call) []*tensor.Tensor {
	x := c.Floats(0)
	n, stats := trailing(c, x)
	eps, stash := c.Float("epsilon", 1e-5), onnx.DataType(c.Int("stash_type", int64(onnx.Float)))
	mean, inv := tensor.ZeroFloats(stash, stats), tensor.ZeroFloats(stash, stats)
	y := slices.Clone(x.F)
	for row := range mean.F {
		v := y[row*n : (row+1)*n]
		m, s := meanVariance(v)
		mean.F[row], inv.F[row] = m, 1/math.Sqrt(s+eps)
		for i := range v {
			v[i] = c.RoundOne(x.DataType, (v[i]-m)*inv.F[row])
		}
	}
	return []*tensor.Tensor{affine(c, x, y, c.Floats(1), c.Arg(2)), mean, inv}
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
func affine(c *op.Call, x *tensor.Tensor, y []float64, scale, bias *tensor.Tensor) *tensor.Tensor {
	fits("scale", scale, x)
	r := tensor.NewFloats(scale.DataType, x.Shape,
		tensor.ZipWith(y, x.Shape, scale.F, scale.Shape, x.Shape, elementwise.Multiply))
	if bias == nil {
		return r
	}
	fits("bias", bias, x)
	c.Round(r.DataType, r.F)
	r.F = tensor.ZipWith(r.F, x.Shape, bias.Floats(), bias.Shape, x.Shape, elementwise.Add)
	return r
}

// fits fails unless t broadcasts to the shape of x.
func fits(name string, t, x *tensor.Tensor) {
	if !tensor.BroadcastsTo(t.Shape, x.Shape) {
		tensor.Fail("a %s of %v does not fit an input of %v", name, t.Shape, x.Shape)
	}
}

// rmsNormalize divides each run of n elements by its root mean square. The mean of the squares has type stash.
func rmsNormalize(c *op.Call, v []float64, n int, eps float64, stash onnx.DataType) (y, inv []float64) {
	y = slices.Clone(v)
	tensor.AlongAxis(y, n, 1, func(line []float64) {
		sum := 0.0
		for _, x := range line {
			sum += x * x
		}
		f := 1 / math.Sqrt(c.RoundOne(stash, sum/float64(n))+eps) // squares may leave the type's range
		inv = append(inv, f)
		for i := range line {
			line[i] *= f
		}
	})
	return y, inv
}

// opRMSNorm (opset 23) rounds the normalized value to the input's type before the scale.
func opRMSNorm(c *op.Call) []*tensor.Tensor {
	x := c.Floats(0)
	n, _ := trailing(c, x)
	y, _ := rmsNormalize(c, x.F, n, c.Float("epsilon", 1e-5), onnx.DataType(c.Int("stash_type", int64(onnx.Float))))
	c.Round(x.DataType, y)
	return op.One(affine(c, x, y, c.Floats(1), nil))
}

// opSimplifiedLayerNorm is onnxruntime's RMS norm: one rounding at the end; the second output is 1/rms.
func opSimplifiedLayerNorm(c *op.Call) []*tensor.Tensor {
	x := c.Floats(0)
	n, stats := trailing(c, x)
	y, inv := rmsNormalize(c, x.F, n, c.Float("epsilon", 1e-5), onnx.Float)
	stat := tensor.ZeroFloats(onnx.Float, stats)
	copy(stat.F, inv)
	return []*tensor.Tensor{affine(c, x, y, c.Floats(1), nil), stat}
}

// opGatedRMSNorm divides runs as long as the scale by their root mean square, and rounds once, behind the gate.
func opGatedRMSNorm(c *op.Call) []*tensor.Tensor {
	x, scale, gate := c.Floats(0), c.Floats(1), c.Floats(2)
	n := scale.Len()
	if x.Rank() == 0 || n == 0 || x.Shape[x.Rank()-1]%n != 0 || !slices.Equal(x.Shape, gate.Shape) {
		tensor.Fail("a scale of %d and a gate of %v do not fit an input of %v", n, gate.Shape, x.Shape)
	}
	silu := c.Str("activation", "silu") != "sigmoid"
	y, _ := rmsNormalize(c, x.F, n, c.Float("epsilon", 1e-5), onnx.Float)
	for i, z := range gate.F {
		factor := 1 / (1 + math.Exp(-z))
		if silu {
			factor *= z
		}
		y[i] *= scale.F[i%n] * factor
	}
	return op.One(tensor.NewFloats(x.DataType, x.Shape, y))
}

// skipSum is the sum of the first two inputs, and of input bias if it is given.
func skipSum(c *op.Call, bias int) *tensor.Tensor {
	x := elementwise.Combine(c, c.Floats(0), c.Floats(1), elementwise.Add, nil, nil)
	if c.Arg(bias) != nil {
		x = elementwise.Combine(c, x, c.Floats(bias), elementwise.Add, nil, nil)
	}
	c.Round(x.DataType, x.F)
	if x.Rank() == 0 {
		tensor.Fail("the input is a scalar")
	}
	return x
}

// skipEpsilon is the default of onnxruntime's norms of sums.
const skipEpsilon = float64(float32(1e-12))

// opSkipSimplifiedLayerNorm adds a residual, and a bias, before the RMS norm; output 3 is the sum.
func opSkipSimplifiedLayerNorm(c *op.Call) []*tensor.Tensor {
	x := skipSum(c, 3)
	y, _ := rmsNormalize(c, x.F, x.Shape[x.Rank()-1], c.Float("epsilon", skipEpsilon), onnx.Float)
	return []*tensor.Tensor{affine(c, x, y, c.Floats(2), nil), nil, nil, x}
}

// opSkipLayerNorm adds a residual, and a bias, before the layer norm, which rounds once; output 3 is the sum.
func opSkipLayerNorm(c *op.Call) []*tensor.Tensor {
	x := skipSum(c, 4)
	eps, y := c.Float("epsilon", skipEpsilon), slices.Clone(x.F)
	tensor.AlongAxis(y, x.Shape[x.Rank()-1], 1, func(line []float64) {
		m, v := meanVariance(line)
		for i := range line {
			line[i] = (line[i] - m) / math.Sqrt(v+eps)
		}
	})
	scale, beta := c.Floats(2), c.Arg(3)
	fits("scale", scale, x)
	y = tensor.ZipWith(y, x.Shape, scale.F, scale.Shape, x.Shape, elementwise.Multiply)
	if beta != nil {
		fits("bias", beta, x)
		y = tensor.ZipWith(y, x.Shape, beta.Floats(), beta.Shape, x.Shape, elementwise.Add)
	}
	return []*tensor.Tensor{tensor.NewFloats(x.DataType, x.Shape, y), nil, nil, x}
}

// opBatchNorm is the inference form over dimension 1. training_mode uses the batch's own statistics.
func opBatchNorm(c *op.Call) []*tensor.Tensor {
	x, scale, bias, mean, variance := c.Floats(0), c.Floats(1), c.Floats(2), c.Floats(3), c.Floats(4)
	eps, momentum := c.Float("epsilon", 1e-5), c.Float("momentum", float64(float32(0.9)))
	training := c.Int("training_mode", 0) != 0
	ch, inner := 1, 1
	if x.Rank() > 1 {
		ch, inner = x.Shape[1], tensor.Size(x.Shape[2:])
	}
	if scale.Len() != ch || bias.Len() != ch || mean.Len() != ch || variance.Len() != ch {
		tensor.Fail("scale, B, mean and var must have %d elements", ch)
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
	out := []*tensor.Tensor{tensor.NewFloats(x.DataType, x.Shape, y)}
	if training {
		mix := func(old, now []float64) []float64 {
			return tensor.ZipWith(old, mean.Shape, now, mean.Shape, mean.Shape, func(a, b float64) float64 {
				return a*momentum + b*(1-momentum)
			})
		}
		out = append(out, tensor.NewFloats(mean.DataType, mean.Shape, mix(mean.F, m)),
			tensor.NewFloats(variance.DataType, variance.Shape, mix(variance.F, v)))
	}
	return out
}
