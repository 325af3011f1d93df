package rules

import (
	"slices"

	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/reference"
)

// neuralRules: layers that are one op in the standard.
var neuralRules = map[string]Rule{
	"LayerNormalization":  layerNormalization,
	"RMSNormalization":    rmsNormalization,
	"BatchNormalization":  batchNormalization,
	"RotaryEmbedding":     unary,
	"SwiGLU":              shaped(firstOf(0), func(c *Call) []int64 { return c.same(c.shape(0), c.shape(1)) }),
	"Attention":           attention,
	"LinearAttention":     linearAttention,
	"CausalConvWithState": causalConv,
	"Conv":                shaped(like(0), conv),
	"MaxPool":             pool,
	"AveragePool":         pool,
	"LpPool":              pool,
	"Resize":              shaped(like(0), resize),
}

// resize: either the sizes or their factors are given.
func resize(c *Call) []int64 {
	x := c.shape(0)
	if x == nil || c.attrString("keep_aspect_ratio_policy", "stretch") != "stretch" {
		return nil
	}
	out := slices.Clone(x)
	axes := c.attrInts("axes")
	if axes == nil {
		for i := range x {
			axes = append(axes, int64(i))
		}
	}
	sizes, known := c.ints(3)
	scales := c.val(2)
	if c.has(3) && !known || !c.has(3) && scales == nil {
		sizes = unknown(len(axes))
	}
	for i, a := range axes {
		at, ok := Axis(a, len(x))
		switch {
		case !ok:
			return nil
		case i < len(sizes):
			out[at] = sizes[i]
		case scales == nil || i >= len(scales.F):
			return nil
		case x[at] >= 0:
			out[at] = int64(float32(x[at]) * float32(scales.F[i]))
		}
	}
	return out
}

// causalConv: the output, and the elements that are kept for the next call.
func causalConv(c *Call) {
	c.set(0, c.dtype(0), c.shape(0))
	if x, w := c.shape(0), c.shape(1); len(x) > 0 && len(w) == len(x) && w[len(w)-1] > 0 {
		c.set(1, c.dtype(0), With(x, len(x)-1, w[len(w)-1]-1))
	}
}

// plainCausalConv is causalConv for nodes that use no extension of onnxruntime's which changes a shape.
func plainCausalConv(c *Call) {
	if name, _ := reference.ExtendedCausalConv(c.attrInt); name == "" {
		causalConv(c)
	}
}

// batchNormalization: in training mode the running mean and variance are outputs too.
func batchNormalization(c *Call) {
	c.set(0, c.dtype(0), c.shape(0))
	c.set(1, c.dtype(3), c.shape(3))
	c.set(2, c.dtype(4), c.shape(4))
}

// linearAttention is LinearAttention of opset 27 and of onnxruntime: query, key and value are [batch, length,
// heads*size], the output [batch, length, heads*size of a value], the state [batch, kv heads, size of a key, size of a
// value]. The output has as many heads as the queries or the values have, whichever is more.
func linearAttention(c *Call) {
	q, k, v := c.shape(0), c.shape(1), c.shape(2)
	if len(q) != 3 || len(k) != 3 || len(v) != 3 {
		return
	}
	queries, kv := c.attrInt("q_num_heads", -1), c.attrInt("kv_num_heads", -1)
	state := c.dtype(3)
	if state == onnx.Undefined {
		state = c.dtype(0)
	}
	key, value := split3(q, queries)[3], split3(v, kv)[3]
	c.set(0, c.dtype(0), []int64{q[0], q[1], c.product([]int64{max(queries, kv), value})})
	c.set(1, state, []int64{q[0], kv, key, value})
}

// attention is the standard's Attention of opset 23: inputs Q, K, V, mask, past key, past value; outputs Y, present
// key, present value, scores. Q, K and V are [batch, heads, length, size], or [batch, length, heads*size].
func attention(c *Call) {
	q, k, v := c.shape(0), c.shape(1), c.shape(2)
	if q == nil || k == nil || v == nil || len(q) != len(k) || len(k) != len(v) || len(q) < 3 || len(q) > 4 {
		for i := range c.out {
			c.set(i, c.dtype(min(i, 2)%3), nil)
		}
		return
	}
	heads, kvHeads := c.attrInt("q_num_heads", -1), c.attrInt("kv_num_heads", -1)
	flat := len(q) == 3
	if flat {
		q, k, v = split3(q, heads), split3(k, kvHeads), split3(v, kvHeads)
	}
	total := k[2]
	if past := c.shape(4); len(past) == 4 {
		total = -1
		if past[2] >= 0 && k[2] >= 0 {
			total = c.plus(past[2], k[2])
		}
	} else if c.has(4) {
		total = -1
	}
	c.must(k[2], v[2])
	batch := c.must(c.must(q[0], k[0]), v[0])
	if flat {
		c.set(0, c.dtype(0), []int64{batch, q[2], c.product([]int64{q[1], v[3]})})
	} else {
		c.set(0, c.dtype(0), []int64{batch, q[1], q[2], v[3]})
	}
	c.set(1, c.dtype(1), []int64{batch, k[1], total, k[3]})
	c.set(2, c.dtype(2), []int64{batch, v[1], total, v[3]})
	c.set(3, c.dtype(0), []int64{batch, q[1], q[2], total})
}

// split3 reads [batch, length, heads*size] as [batch, heads, length, size].
func split3(s []int64, heads int64) []int64 {
	size := int64(-1)
	if heads > 0 && s[2] >= 0 {
		size = s[2] / heads
	}
	return []int64{s[0], heads, s[1], size}
}

func conv(c *Call) []int64 {
	x, w := c.shape(0), c.shape(1)
	if len(x) < 2 || len(w) != len(x) {
		return nil
	}
	kernel := c.attrInts("kernel_shape")
	if kernel == nil {
		kernel = w[2:]
	}
	return slices.Concat([]int64{x[0], w[0]}, c.windows(x[2:], kernel))
}

func pool(c *Call) {
	x := c.shape(0)
	var s []int64
	if len(x) >= 2 {
		s = slices.Concat(x[:2], c.windows(x[2:], c.attrInts("kernel_shape")))
	}
	c.set(0, c.dtype(0), s)
	c.set(1, onnx.Int64, s)
}

// windows returns the number of places of a sliding window along each spatial dimension.
func (c *Call) windows(dims, kernel []int64) []int64 {
	strides, dilations, pads := c.attrInts("strides"), c.attrInts("dilations"), c.attrInts("pads")
	auto := c.attrString("auto_pad", "NOTSET")
	out := unknown(len(dims))
	if len(kernel) != len(dims) {
		return out
	}
	for i, d := range dims {
		stride, dilation, padding := int64(1), int64(1), int64(0)
		if i < len(strides) {
			stride = strides[i]
		}
		if i < len(dilations) {
			dilation = dilations[i]
		}
		if len(pads) == 2*len(dims) {
			padding = pads[i] + pads[i+len(dims)]
		}
		if d < 0 || kernel[i] < 0 || stride < 1 {
			continue
		}
		if stride > 1 && d > 1 && c.w == 0 && (d+stride-1)/stride == 1 && c.Node.Is("Conv") {
			c.tooShort(stride) // different lengths would become equal
		}
		if c.w == Proof && c.table().Open(d) {
			out[i] = c.window(d, kernel[i], stride, dilation, padding, auto)
			continue
		}
		if auto == "SAME_UPPER" || auto == "SAME_LOWER" {
			out[i] = (d + stride - 1) / stride
			continue
		}
		span := d + padding - (kernel[i]-1)*dilation - 1
		if span < 0 {
			if stride == 1 && d > 0 {
				stride = (d - span + d - 1) / d
			}
			c.tooShort(stride)
			out[i] = 0
			continue
		}
		if out[i] = span/stride + 1; c.attrInt("ceil_mode", 0) != 0 {
			out[i] = (span+stride-1)/stride + 1
			// The last window must start inside the input or its padding at the start.
			if len(pads) == 2*len(dims) && (out[i]-1)*stride >= d+pads[i] || pads == nil && (out[i]-1)*stride >= d {
				out[i]--
			}
		}
		out[i] = max(out[i], 0)
	}
	return out
}

// window returns the number of places of a sliding window in the proof world.
func (c *Call) window(d, kernel, stride, dilation, padding int64, auto string) int64 {
	t := c.table()
	if auto == "SAME_UPPER" || auto == "SAME_LOWER" {
		return t.Floor(t.Add(d, stride-1), stride)
	}
	span := t.Add(d, padding-(kernel-1)*dilation-1)
	if c.attrInt("ceil_mode", 0) != 0 {
		return t.Dimension("window", span, stride)
	}
	return t.Greatest(t.Add(t.Floor(span, stride), 1), 0)
}
