package rules

import (
	"slices"

	"github.com/mojo-patch/mojo-patch/onnx"
)

// microsoftRules: ops of onnxruntime (docs/ContribOperators.md) in language models.
var microsoftRules = merge(
	each(unary, "Gelu", "FastGelu", "QuickGelu", "BiasGelu", "RotaryEmbedding", "MoE", "QMoE", "GemmaRotaryEmbedding",
		"GatedRMSNorm"),
	each(skipNormalization, "SkipLayerNormalization", "SkipSimplifiedLayerNormalization"),
	map[string]Rule{
		"SimplifiedLayerNormalization": rmsNormalization,
		"FusedMatMul":                  shaped(firstOf(0), fusedMatMul),
		"MatMulNBits":                  shaped(like(0), matMulNBits),
		"GatherBlockQuantized":         shaped(like(2), gatherBlockQuantized),
		"GroupQueryAttention":          groupQueryAttention,
		"MultiHeadAttention":           multiHeadAttention,
		"CausalConvWithState":          plainCausalConv,
		"GatedDeltaNet":                gatedDeltaNet,
		"PagedAttention": func(c *Call) {
			q, pool := c.shape(0), c.shape(3)
			if !c.has(2) && len(q) == 2 && len(pool) == 4 && pool[3] > 0 { // keys and values follow the queries
				q = []int64{q[0], c.attrInt("num_heads", 0) * pool[3]}
			}
			c.set(0, c.dtype(0), q)
			c.set(1, c.dtype(3), c.shape(3))
			c.set(2, c.dtype(4), c.shape(4))
		},
		"LinearAttention": func(c *Call) {
			if c.attrInt("state_window", 0) == 0 {
				linearAttention(c)
			}
		},
	},
)

// gatedDeltaNet: query, key and value [..., heads, size], or packed [..., width]; initial_state, input 6, is [batch,
// heads of v, size of v, size of k].
func gatedDeltaNet(c *Call) {
	q, v, state := c.shape(0), c.shape(2), c.shape(6)
	outer := max(0, len(q)-2)
	switch packed := !c.has(1) && !c.has(2); {
	case packed && len(q) > 0 && len(state) == 4:
		c.set(0, c.dtype(0), append(slices.Clone(q[:len(q)-1]), state[1], state[2]))
	case !packed && len(q) >= 3 && len(v) == len(q):
		c.set(0, c.dtype(0), append(slices.Clone(q[:outer]), v[outer:]...))
	default:
		c.set(0, c.dtype(0), nil)
	}
	if state == nil && len(q) == 4 && len(v) == 4 {
		state = []int64{q[0], v[2], v[3], q[3]}
	}
	c.set(1, onnx.Float, state)
}

// skipNormalization: the output, mean, inverse deviation, and the sum of input and skip.
func skipNormalization(c *Call) {
	s := c.shape(0)
	stats := normalizedFrom(s, -1)
	c.set(0, c.dtype(0), s)
	c.set(1, onnx.Float, stats)
	c.set(2, onnx.Float, stats)
	c.set(3, c.dtype(0), s)
}

func fusedMatMul(c *Call) []int64 {
	swap := func(s []int64, attr string) []int64 {
		if n := len(s); n >= 2 && c.attrInt(attr, 0) != 0 {
			s = slices.Clone(s)
			s[n-1], s[n-2] = s[n-2], s[n-1]
		}
		return s
	}
	if c.attrInt("transBatchA", 0) != 0 || c.attrInt("transBatchB", 0) != 0 {
		return nil
	}
	return c.matmul(swap(c.shape(0), "transA"), swap(c.shape(1), "transB"))
}

// matMulNBits: A [..., K] times a quantized matrix with attributes K, N.
func matMulNBits(c *Call) []int64 {
	a := c.shape(0)
	if len(a) == 0 {
		return nil
	}
	return With(a, len(a)-1, c.attrInt("N", -1))
}

// gatherBlockQuantized: rows of a quantized table as floats. A uint8 may contain two 4-bit elements.
func gatherBlockQuantized(c *Call) []int64 {
	s := c.shape(0)
	if bits, last := c.attrInt("bits", 4), len(s)-1; last >= 0 && c.dtype(0) == onnx.Uint8 && bits > 0 && bits < 8 &&
		s[last] > 0 {
		s = With(s, last, s[last]*(8/bits))
	}
	return gathered(s, c.shape(1), c.attrInt("gather_axis", 0))
}

// groupQueryAttention: query [batch, length, heads*size], possibly with key and value packed into it; past key and
// value [batch, kv heads, past, size]; total_sequence_length is input 6.
func groupQueryAttention(c *Call) {
	q, t := c.shape(0), c.dtype(0)
	heads, kv := c.attrInt("num_heads", 0), c.attrInt("kv_num_heads", 0)
	if len(q) != 3 || heads <= 0 || kv <= 0 {
		for i := range c.out {
			c.set(i, t, nil)
		}
		return
	}
	size := int64(-1)
	if width := q[2]; width >= 0 {
		size = width / heads
		if !c.has(1) {
			size = width / (heads + 2*kv)
		}
	}
	c.set(0, t, []int64{q[0], q[1], c.product([]int64{heads, size})})
	for i := 3; i <= 4; i++ {
		if past := c.shape(i); len(past) == 4 && size > 0 && c.attrInt("kv_cache_bit_width", 0) == 0 {
			c.fixes(past[3], size)
		}
	}
	total := int64(-1)
	if n, ok := c.int(6); ok {
		total = n
		switch past := c.shape(3); {
		case len(past) == 4 && past[2] >= 0:
			if q[1] >= 0 && c.cacheGrows() {
				n = c.most(n, c.must(n, c.plus(past[2], q[1])))
			}
			total = c.most(n, past[2]) // a shared buffer keeps its length
		case c.has(3):
			total = -1
		}
	}
	for i := 1; i <= 2; i++ {
		kind := c.dtype(2 + i)
		if kind == onnx.Undefined {
			kind = t
		}
		c.set(i, kind, []int64{q[0], kv, total, size})
	}
}

// cacheGrows reports whether the present of the node is declared longer than its past, or neither is declared. A buffer
// for both has one number or one name.
func (c *Call) cacheGrows() bool {
	length := func(v *onnx.Value) (d onnx.Dim, ok bool) {
		if v == nil {
			return d, false
		}
		if t, declared := v.Type(); declared && t.HasShape && len(t.Dims) == 4 {
			return t.Dims[2], true
		}
		return d, false
	}
	past, ok := length(c.Node.Input(3))
	present, declared := length(c.Node.OutputValue(1))
	return !ok || past.Param != "" && !(declared && present.Param == past.Param) ||
		past.Param == "" && past.Value <= 0
}

// multiHeadAttention: query [batch, length, heads*size], value [batch, length, heads*size of a value]; other layouts
// are left to the declared types.
func multiHeadAttention(c *Call) {
	q, v := c.shape(0), c.shape(2)
	for i := range c.out {
		c.set(i, c.dtype(0), nil)
	}
	if len(q) == 3 && len(v) == 3 {
		c.set(0, c.dtype(0), []int64{q[0], q[1], v[2]})
	} else if len(q) == 3 && len(v) == 4 {
		c.set(0, c.dtype(0), []int64{q[0], q[1], c.product([]int64{v[1], v[3]})})
	}
}
