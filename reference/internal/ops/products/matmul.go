package products

import (
	"github.com/mojo-patch/mojo-patch/reference/internal/op"
	"github.com/mojo-patch/mojo-patch/reference/internal/tensor"
)

var matmulOps = map[string]op.Def{
	"MatMul": op.Arith(2, opMatMul),
	"Gemm":   op.Arith(2, opGemm),

	"com.microsoft:FusedMatMul": op.Arith(2, opFusedMatMul),
}

func opMatMul(c *op.Call) []*tensor.Tensor {
	c.SameType(0, 1)
	return op.One(tensor.MatMulWith(c.Gemm(c.In[0].DataType), c.In[0], c.In[1]))
}

// opGemm is alpha·A'·B' + beta·C, where A' and B' are A and B or transposed.
func opGemm(c *op.Call) []*tensor.Tensor {
	a, b := c.In[0], c.In[1]
	c.SameType(0, 1, 2)
	if a.Rank() != 2 || b.Rank() != 2 {
		tensor.Fail("inputs are %s and %s, expected matrices", a, b)
	}
	ta, tb := c.Int("transA", 0) != 0, c.Int("transB", 0) != 0
	m, k := a.Shape[0], a.Shape[1]
	if ta {
		m, k = k, m
	}
	k2, n := b.Shape[0], b.Shape[1]
	if tb {
		k2, n = n, k2
	}
	if k != k2 {
		tensor.Fail("matrices of %v and %v do not fit", a.Shape, b.Shape)
	}
	alpha, beta := c.Float("alpha", 1), c.Float("beta", 1)
	shape := []int{m, n}
	out, mul := make([]float64, m*n), c.Gemm(a.DataType)
	if a.IsLazy() || b.IsLazy() {
		if ta {
			a = tensor.SwapLast(a)
		}
		if tb {
			b = tensor.SwapLast(b)
		}
		tensor.Check(tensor.MatMulLazy(mul, a, b, a.Shape, b.Shape, nil, m, k, n, out))
	} else {
		tensor.Gemm(mul, ta, tb, m, n, k, a.Floats(), b.Floats(), out)
	}
	if alpha != 1 {
		for i := range out {
			out[i] *= alpha
		}
	}
	if t := c.Arg(2); t != nil {
		t := tensor.Try(t.Dense())
		if !tensor.BroadcastsTo(t.Shape, shape) {
			tensor.Fail("a C of %v does not broadcast to %v", t.Shape, shape)
		}
		for i, v := range tensor.Expand(t.Floats(), t.Shape, shape) {
			out[i] += beta * v
		}
	}
	return op.One(tensor.OfFloats(a.DataType, shape, out))
}

// opFusedMatMul is onnxruntime's alpha·A'·B', transposing the last two dimensions.
func opFusedMatMul(c *op.Call) []*tensor.Tensor {
	a, b := c.Floats(0), c.Floats(1)
	if c.Int("transBatchA", 0) != 0 || c.Int("transBatchB", 0) != 0 {
		tensor.Fail("transBatchA and transBatchB are not implemented")
	}
	if c.Int("transA", 0) != 0 {
		a = tensor.SwapLast(a)
	}
	if c.Int("transB", 0) != 0 {
		b = tensor.SwapLast(b)
	}
	r := tensor.MatMulWith(c.Gemm(a.DataType), a, b)
	alpha := c.Float("alpha", 1)
	for i := range r.F {
		r.F[i] *= alpha
	}
	return op.One(r)
}
