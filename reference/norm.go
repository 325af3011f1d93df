package reference

import (
	"fmt"
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
}

// opSoftmax is Softmax, LogSoftmax and Hardmax: along one axis from opset 13 on, before that over all dimensions from
// axis on taken together.
func opSoftmax(c *call) ([]*Tensor, error) {
	x := c.floats(0)
	def := int64(-1)
	if c.opset() < 13 {
		def = 1
	}
	axis := c.axis(c.int("axis", def), max(x.Rank(), 1))
	if c.err != nil {
		return nil, c.err
	}
	n, inner := 1, 1
	switch {
	case x.Rank() == 0:
	case c.opset() < 13:
		n = size(x.Shape[axis:])
	default:
		n, inner = x.Shape[axis], size(x.Shape[axis+1:])
	}
	r := &Tensor{DataType: x.DataType, Shape: x.Shape, F: slices.Clone(x.F)}
	line := map[string]func([]float64){"Softmax": softmaxLine, "LogSoftmax": logSoftmaxLine,
		"Hardmax": hardmaxLine}[c.n.OpType]
	alongAxis(r.F, n, inner, line)
	return one(r)
}

// alongAxis calls f for each line of n elements, inner apart, and writes back what f leaves in its argument.
func alongAxis(v []float64, n, inner int, f func([]float64)) {
	if len(v) == 0 {
		return
	}
	if inner == 1 {
		for o := 0; o < len(v); o += n {
			f(v[o : o+n])
		}
		return
	}
	line := make([]float64, n)
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

// softmaxLine subtracts the maximum first. A line of -Inf alone gives NaN, as in every other implementation.
func softmaxLine(v []float64) {
	top, sum := slices.Max(v), 0.0
	for i, x := range v {
		v[i] = math.Exp(x - top)
		sum += v[i]
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

// trailing returns the dimensions from axis on, over which a norm runs, and how many elements they have.
func (c *call) trailing(x *Tensor, def int64) (axis, n int) {
	axis = c.axis(c.int("axis", def), x.Rank())
	if c.err != nil {
		return 0, 0
	}
	return axis, size(x.Shape[axis:])
}

// opLayerNorm is (x-mean)/sqrt(var+epsilon)*scale + B over the dimensions from axis on; the normalised value is
// computed in stash_type (float32) and rounded to the input's type before the scale, as the standard's function body.
func opLayerNorm(c *call) ([]*Tensor, error) {
	x, scale := c.floats(0), c.floats(1)
	axis, n := c.trailing(x, -1)
	eps, stash := c.float("epsilon", 1e-5), onnx.DataType(c.int("stash_type", int64(onnx.Float)))
	if c.err != nil {
		return nil, c.err
	}
	statShape := slices.Clone(x.Shape)
	for i := axis; i < len(statShape); i++ {
		statShape[i] = 1
	}
	mean, inv := c.newFloats(stash, statShape), c.newFloats(stash, statShape)
	y := slices.Clone(x.F)
	for row := range mean.F {
		v := y[row*n : (row+1)*n]
		m, s := meanVariance(v)
		mean.F[row], inv.F[row] = m, 1/math.Sqrt(s+eps)
		for i := range v {
			v[i] = c.roundOne(x.DataType, (v[i]-m)*inv.F[row])
		}
	}
	r, err := c.affine(x, y, scale, c.arg(2))
	if err != nil {
		return nil, err
	}
	return []*Tensor{r, mean, inv}, nil
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
func (c *call) affine(x *Tensor, y []float64, scale, bias *Tensor) (*Tensor, error) {
	out, err := broadcastShape(x.Shape, scale.Shape)
	if err != nil || !slices.Equal(out, x.Shape) {
		return nil, fmt.Errorf("a scale of %v does not fit an input of %v", scale.Shape, x.Shape)
	}
	r := NewFloats(scale.DataType, x.Shape, zipWith(y, x.Shape, scale.F, scale.Shape, out, func(a, b float64) float64 {
		return a * b
	}))
	if bias == nil {
		return r, nil
	}
	if out, err = broadcastShape(x.Shape, bias.Shape); err != nil || !slices.Equal(out, x.Shape) {
		return nil, fmt.Errorf("a bias of %v does not fit an input of %v", bias.Shape, x.Shape)
	}
	c.round(r.DataType, r.F)
	r.F = zipWith(r.F, x.Shape, bias.toFloats(), bias.Shape, out, func(a, b float64) float64 { return a + b })
	return r, nil
}

// rmsNormalize divides each run of n elements by its root mean square, the mean of the squares being of type stash.
func (c *call) rmsNormalize(v []float64, n int, eps float64, stash onnx.DataType) (y, inv []float64) {
	y = make([]float64, len(v))
	if len(v) == 0 {
		return y, nil
	}
	for o := 0; o < len(v); o += n {
		sum := 0.0
		for _, x := range v[o : o+n] {
			sum += x * x
		}
		f := 1 / math.Sqrt(c.roundOne(stash, sum/float64(n))+eps) // squares may leave the type's range
		inv = append(inv, f)
		for i, x := range v[o : o+n] {
			y[o+i] = x * f
		}
	}
	return y, inv
}

// opRMSNorm (opset 23) rounds the normalised value to the input's type before the scale.
func opRMSNorm(c *call) ([]*Tensor, error) {
	x, scale := c.floats(0), c.floats(1)
	_, n := c.trailing(x, -1)
	eps, stash := c.float("epsilon", 1e-5), onnx.DataType(c.int("stash_type", int64(onnx.Float)))
	if c.err != nil {
		return nil, c.err
	}
	y, _ := c.rmsNormalize(x.F, n, eps, stash)
	c.round(x.DataType, y)
	r, err := c.affine(x, y, scale, nil)
	if err != nil {
		return nil, err
	}
	return one(r)
}

// opSimplifiedLayerNorm is onnxruntime's RMS norm: one rounding at the end; the second output is 1/rms.
func opSimplifiedLayerNorm(c *call) ([]*Tensor, error) {
	x, scale := c.floats(0), c.floats(1)
	axis, n := c.trailing(x, -1)
	eps := c.float("epsilon", 1e-5)
	if c.err != nil {
		return nil, c.err
	}
	y, inv := c.rmsNormalize(x.F, n, eps, onnx.Float)
	r, err := c.affine(x, y, scale, nil)
	if err != nil {
		return nil, err
	}
	shape := slices.Clone(x.Shape)
	for i := axis; i < len(shape); i++ {
		shape[i] = 1
	}
	stat := c.newFloats(onnx.Float, shape)
	copy(stat.F, inv)
	return []*Tensor{r, stat}, nil
}

// opSkipSimplifiedLayerNorm adds a residual, and a bias, before the RMS norm; output 3 is the sum.
func opSkipSimplifiedLayerNorm(c *call) ([]*Tensor, error) {
	sum, err := combine(c, c.floats(0), c.floats(1), sumF, nil, nil)
	if err != nil || c.err != nil {
		return nil, err
	}
	if c.arg(3) != nil {
		if sum, err = combine(c, sum[0], c.floats(3), sumF, nil, nil); err != nil || c.err != nil {
			return nil, err
		}
	}
	x, scale := sum[0], c.floats(2)
	c.round(x.DataType, x.F)
	if x.Rank() == 0 || c.err != nil {
		return nil, fmt.Errorf("the input is a scalar")
	}
	y, _ := c.rmsNormalize(x.F, x.Shape[x.Rank()-1], c.float("epsilon", float64(float32(1e-12))), onnx.Float)
	r, err := c.affine(x, y, scale, nil)
	if err != nil {
		return nil, err
	}
	return []*Tensor{r, nil, nil, x}, nil
}

// opBatchNorm is the inference form over dimension 1; training_mode uses the batch's own statistics.
func opBatchNorm(c *call) ([]*Tensor, error) {
	x, scale, bias, mean, variance := c.floats(0), c.floats(1), c.floats(2), c.floats(3), c.floats(4)
	eps, momentum := c.float("epsilon", 1e-5), c.float("momentum", float64(float32(0.9)))
	training := c.int("training_mode", 0) != 0
	if c.err != nil {
		return nil, c.err
	}
	ch := 1
	if x.Rank() > 1 {
		ch = x.Shape[1]
	}
	if scale.Len() != ch || bias.Len() != ch || mean.Len() != ch || variance.Len() != ch {
		return nil, fmt.Errorf("scale, B, mean and var must have %d elements", ch)
	}
	inner := 1
	if x.Rank() > 1 {
		inner = size(x.Shape[2:])
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
	return out, nil
}
