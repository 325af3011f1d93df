package tensor

import (
	"slices"

	"gonum.org/v1/gonum/blas"
	"gonum.org/v1/gonum/blas/gonum"
)

// BLAS is the implementation of products in float64.
var BLAS gonum.Implementation

// GemmFunc computes c = a·b + beta·c for row-major a of m×k and b of k×n, each possibly stored transposed. lda, ldb and
// ldc are the lengths of stored rows.
type GemmFunc func(ta, tb bool, m, n, k int, a []float64, lda int, b []float64, ldb int, beta float64, c []float64,
	ldc int)

// Gemm64 sums in float64.
func Gemm64(ta, tb bool, m, n, k int, a []float64, lda int, b []float64, ldb int, beta float64, c []float64,
	ldc int) {
	BLAS.Dgemm(transposed[ta], transposed[tb], m, n, k, 1, a, lda, b, ldb, beta, c, ldc)
}

var transposed = map[bool]blas.Transpose{false: blas.NoTrans, true: blas.Trans}

// Gemm computes c = a·b for contiguous matrices.
func Gemm(mul GemmFunc, ta, tb bool, m, n, k int, a, b, c []float64) {
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

// MatMul is MatMulWith sums in float64.
func MatMul(a, b *Tensor) *Tensor { return MatMulWith(Gemm64, a, b) }

// MatMulWith is numpy.matmul: products of the last two dimensions with broadcasting of the others. A vector gets a
// dimension of 1, which the result drops.
func MatMulWith(mul GemmFunc, a, b *Tensor) *Tensor {
	if a.Rank() == 0 || b.Rank() == 0 {
		Fail("a scalar cannot be multiplied as a matrix: %s, %s", a, b)
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
		Fail("matrices of %v and %v do not fit", a.Shape, b.Shape)
	}
	batch := BroadcastShape(as[:len(as)-2], bs[:len(bs)-2])
	shape := slices.Clone(batch)
	if a.Rank() > 1 {
		shape = append(shape, m)
	}
	if b.Rank() > 1 {
		shape = append(shape, n)
	}
	Check(CheckShape(shape))
	// each calls product with the starts of the matrices of one product, and of its result
	each := func(product func(i, j, o int)) {
		sa, sb := broadcastStrides(as[:len(as)-2], batch), broadcastStrides(bs[:len(bs)-2], batch)
		Walk2(batch, sa, sb, func(o, i, j, count, si, sj int) {
			for x := range count {
				product((i+x*si)*m*k, (j+x*sj)*k*n, (o+x)*m*n)
			}
		})
	}
	if !a.IsFloat() {
		r := ZeroInts(a.DataType, shape)
		each(func(i, j, o int) { multiplyInts(n, k, a.I[i:i+m*k], b.I[j:j+k*n], r.I[o:o+m*n]) })
		return r
	}
	r := ZeroFloats(a.DataType, shape)
	af, bf := a.F, b.Floats()
	switch {
	case a.lazy != nil || b.lazy != nil:
		Check(MatMulLazy(mul, a, b, as, bs, batch, m, k, n, r.F))
	case Size(bs[:len(bs)-2]) == 1: // one right side: all rows in one product
		Gemm(mul, false, false, Size(batch)*m, n, k, af, bf, r.F)
	default:
		each(func(i, j, o int) {
			Gemm(mul, false, false, m, n, k, af[i:i+m*k], bf[j:j+k*n], r.F[o:o+m*n])
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
