package reference

import (
	"slices"

	"gonum.org/v1/gonum/blas"
	"gonum.org/v1/gonum/blas/gonum"
)

var matmulOps = map[string]opDef{
	"MatMul": arith(2, opMatMul),
	"Gemm":   arith(2, opGemm),

	"com.microsoft:FusedMatMul": arith(2, opFusedMatMul),
}

var blas64 gonum.Implementation

// gemmFunc computes c = a·b + beta·c for row-major a of m×k and b of k×n, each possibly stored transposed. lda, ldb and
// ldc are the lengths of stored rows.
type gemmFunc func(ta, tb bool, m, n, k int, a []float64, lda int, b []float64, ldb int, beta float64, c []float64,
	ldc int)

// gemm64 sums in float64.
func gemm64(ta, tb bool, m, n, k int, a []float64, lda int, b []float64, ldb int, beta float64, c []float64,
	ldc int) {
	blas64.Dgemm(transposed[ta], transposed[tb], m, n, k, 1, a, lda, b, ldb, beta, c, ldc)
}

var transposed = map[bool]blas.Transpose{false: blas.NoTrans, true: blas.Trans}

// gemm computes c = a·b for contiguous matrices.
func gemm(mul gemmFunc, ta, tb bool, m, n, k int, a, b, c []float64) {
	if m == 0 || n == 0 || k == 0 {
		return
	}
	lda, ldb := k, n
	if ta {
		lda = m
	}
	if tb {
		ldb = k
	}
	mul(ta, tb, m, n, k, a, lda, b, ldb, 0, c, n)
}

func opMatMul(c *call) []*Tensor {
	c.sameType(0, 1)
	return one(matmulWith(c.gemm(c.in[0].DataType), c.in[0], c.in[1]))
}

// matmul is matmulWith sums in float64.
func matmul(a, b *Tensor) *Tensor { return matmulWith(gemm64, a, b) }

// matmulWith is numpy.matmul: products of the last two dimensions with broadcasting of the others. A vector gets a
// dimension of 1, which the result drops.
func matmulWith(mul gemmFunc, a, b *Tensor) *Tensor {
	if a.Rank() == 0 || b.Rank() == 0 {
		fail("a scalar cannot be multiplied as a matrix: %s, %s", a, b)
	}
	as, bs := a.Shape, b.Shape
	if len(as) == 1 {
		as = []int{1, as[0]}
	}
	if len(bs) == 1 {
		bs = []int{bs[0], 1}
	}
	m, k, n := as[len(as)-2], as[len(as)-1], bs[len(bs)-1]
	if k != bs[len(bs)-2] {
		fail("matrices of %v and %v do not fit", a.Shape, b.Shape)
	}
	batch := broadcastShape(as[:len(as)-2], bs[:len(bs)-2])
	shape := slices.Clone(batch)
	if a.Rank() > 1 {
		shape = append(shape, m)
	}
	if b.Rank() > 1 {
		shape = append(shape, n)
	}
	check(checkShape(shape))
	// each calls product with the starts of the matrices of one product, and of its result
	each := func(product func(i, j, o int)) {
		sa, sb := broadcastStrides(as[:len(as)-2], batch), broadcastStrides(bs[:len(bs)-2], batch)
		walk2(batch, sa, sb, func(o, i, j, count, si, sj int) {
			for x := range count {
				product((i+x*si)*m*k, (j+x*sj)*k*n, (o+x)*m*n)
			}
		})
	}
	if !a.IsFloat() {
		r := newInts(a.DataType, shape)
		each(func(i, j, o int) { multiplyInts(n, k, a.I[i:i+m*k], b.I[j:j+k*n], r.I[o:o+m*n]) })
		return r
	}
	r := newFloats(a.DataType, shape)
	af, bf := a.F, b.Floats()
	switch {
	case a.lazy != nil || b.lazy != nil:
		check(matmulLazy(mul, a, b, as, bs, batch, m, k, n, r.F))
	case size(bs[:len(bs)-2]) == 1: // one right side: all rows in one product
		gemm(mul, false, false, size(batch)*m, n, k, af, bf, r.F)
	default:
		each(func(i, j, o int) {
			gemm(mul, false, false, m, n, k, af[i:i+m*k], bf[j:j+k*n], r.F[o:o+m*n])
		})
	}
	return r
}

// multiplyInts keeps all 64 bits, as int64 products require.
func multiplyInts(n, k int, a, b, c []int64) {
	for i, f := range a {
		for col := range n {
			c[i/k*n+col] += f * b[i%k*n+col]
		}
	}
}

// opGemm is alpha·A'·B' + beta·C, where A' and B' are A and B or transposed.
func opGemm(c *call) []*Tensor {
	a, b := c.in[0], c.in[1]
	c.sameType(0, 1, 2)
	if a.Rank() != 2 || b.Rank() != 2 {
		fail("inputs are %s and %s, expected matrices", a, b)
	}
	ta, tb := c.int("transA", 0) != 0, c.int("transB", 0) != 0
	m, k := a.Shape[0], a.Shape[1]
	if ta {
		m, k = k, m
	}
	k2, n := b.Shape[0], b.Shape[1]
	if tb {
		k2, n = n, k2
	}
	if k != k2 {
		fail("matrices of %v and %v do not fit", a.Shape, b.Shape)
	}
	alpha, beta := c.float("alpha", 1), c.float("beta", 1)
	shape := []int{m, n}
	out, mul := make([]float64, m*n), c.gemm(a.DataType)
	if a.lazy != nil || b.lazy != nil {
		if ta {
			a = a.swapLast()
		}
		if tb {
			b = b.swapLast()
		}
		check(matmulLazy(mul, a, b, a.Shape, b.Shape, nil, m, k, n, out))
	} else {
		gemm(mul, ta, tb, m, n, k, a.Floats(), b.Floats(), out)
	}
	if alpha != 1 {
		for i := range out {
			out[i] *= alpha
		}
	}
	if t := c.arg(2); t != nil {
		t := try(t.Dense())
		if !broadcastsTo(t.Shape, shape) {
			fail("a C of %v does not broadcast to %v", t.Shape, shape)
		}
		for i, v := range expand(t.Floats(), t.Shape, shape) {
			out[i] += beta * v
		}
	}
	return one(ofFloats(a.DataType, shape, out))
}

// opFusedMatMul is onnxruntime's alpha·A'·B', transposing the last two dimensions.
func opFusedMatMul(c *call) []*Tensor {
	a, b := c.floats(0), c.floats(1)
	if c.int("transBatchA", 0) != 0 || c.int("transBatchB", 0) != 0 {
		fail("transBatchA and transBatchB are not implemented")
	}
	if c.int("transA", 0) != 0 {
		a = a.swapLast()
	}
	if c.int("transB", 0) != 0 {
		b = b.swapLast()
	}
	r := matmulWith(c.gemm(a.DataType), a, b)
	alpha := c.float("alpha", 1)
	for i := range r.F {
		r.F[i] *= alpha
	}
	return one(r)
}

// swapLast transposes the last two dimensions.
func (t *Tensor) swapLast() *Tensor {
	perm := upTo(t.Rank())
	if n := len(perm); n >= 2 {
		perm[n-1], perm[n-2] = perm[n-2], perm[n-1]
	}
	return t.transpose(perm)
}
