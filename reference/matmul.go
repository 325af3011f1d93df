package reference

import (
	"fmt"
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

// gemm is c = a·b for row-major a of m×k and b of k×n, either of them stored transposed.
func gemm(ta, tb bool, m, n, k int, a, b, c []float64) {
	if m == 0 || n == 0 || k == 0 {
		return
	}
	lda, ldb := k, n
	t := [2]blas.Transpose{blas.NoTrans, blas.NoTrans}
	if ta {
		t[0], lda = blas.Trans, m
	}
	if tb {
		t[1], ldb = blas.Trans, k
	}
	blas64.Dgemm(t[0], t[1], m, n, k, 1, a, lda, b, ldb, 0, c, n)
}

func opMatMul(c *call) ([]*Tensor, error) {
	if !c.sameType(0, 1) {
		return nil, c.err
	}
	r, err := matmul(c, c.in[0], c.in[1])
	if err != nil {
		return nil, err
	}
	return one(r)
}

// matmul is numpy.matmul: products of the last two dimensions, the others broadcast; a vector gets a dimension of 1
// that the result loses again.
func matmul(c *call, a, b *Tensor) (*Tensor, error) {
	if a.Rank() == 0 || b.Rank() == 0 {
		return nil, fmt.Errorf("a scalar cannot be multiplied as a matrix: %s, %s", a, b)
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
		return nil, fmt.Errorf("matrices of %v and %v do not fit", a.Shape, b.Shape)
	}
	batch, err := broadcastShape(as[:len(as)-2], bs[:len(bs)-2])
	if err != nil {
		return nil, err
	}
	shape := slices.Clone(batch)
	if a.Rank() > 1 {
		shape = append(shape, m)
	}
	if b.Rank() > 1 {
		shape = append(shape, n)
	}
	if err := checkShape(shape); err != nil {
		return nil, err
	}
	out := make([]float64, size(shape))
	if a.lazy != nil || b.lazy != nil {
		if err := matmulLazy(a, b, as, bs, batch, m, k, n, out); err != nil {
			return nil, err
		}
		return NewFloats(a.DataType, shape, out), nil
	}
	af, bf := a.toFloats(), b.toFloats()
	switch {
	case !a.IsFloat():
		return matmulInts(a, b, as, bs, batch, shape), nil
	case size(bs[:len(bs)-2]) == 1: // one right side: all rows in one product
		gemm(false, false, size(batch)*m, n, k, af, bf, out)
	default:
		sa, sb := broadcastStrides(as[:len(as)-2], batch), broadcastStrides(bs[:len(bs)-2], batch)
		walk2(batch, sa, sb, func(o, i, j, cnt, si, sj int) {
			for x := range cnt {
				p, q, r := (i+x*si)*m*k, (j+x*sj)*k*n, (o+x)*m*n
				gemm(false, false, m, n, k, af[p:p+m*k], bf[q:q+k*n], out[r:r+m*n])
			}
		})
	}
	return NewFloats(a.DataType, shape, out), nil
}

// matmulInts keeps all 64 bits, as int64 products must.
func matmulInts(a, b *Tensor, as, bs, batch, shape []int) *Tensor {
	m, k, n := as[len(as)-2], as[len(as)-1], bs[len(bs)-1]
	r := NewInts(a.DataType, shape, make([]int64, size(shape)))
	sa, sb := broadcastStrides(as[:len(as)-2], batch), broadcastStrides(bs[:len(bs)-2], batch)
	walk2(batch, sa, sb, func(o, i, j, cnt, si, sj int) {
		for x := range cnt {
			av, bv, rv := a.I[(i+x*si)*m*k:], b.I[(j+x*sj)*k*n:], r.I[(o+x)*m*n:]
			for row := range m {
				for l := range k {
					f := av[row*k+l]
					for col := range n {
						rv[row*n+col] += f * bv[l*n+col]
					}
				}
			}
		}
	})
	return r
}

// opGemm is alpha·A'·B' + beta·C, where A' and B' are A and B or transposed.
func opGemm(c *call) ([]*Tensor, error) {
	a, b := c.in[0], c.in[1]
	if !c.sameType(0, 1, 2) {
		return nil, c.err
	}
	if a.Rank() != 2 || b.Rank() != 2 {
		return nil, fmt.Errorf("inputs are %s and %s, expected matrices", a, b)
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
		return nil, fmt.Errorf("matrices of %v and %v do not fit", a.Shape, b.Shape)
	}
	alpha, beta := c.float("alpha", 1), c.float("beta", 1)
	shape := []int{m, n}
	out := make([]float64, m*n)
	if a.lazy != nil || b.lazy != nil {
		if ta {
			a = a.swapLast()
		}
		if tb {
			b = b.swapLast()
		}
		if err := matmulLazy(a, b, a.Shape, b.Shape, nil, m, k, n, out); err != nil {
			return nil, err
		}
	} else {
		gemm(ta, tb, m, n, k, a.toFloats(), b.toFloats(), out)
	}
	if alpha != 1 {
		for i := range out {
			out[i] *= alpha
		}
	}
	if t := c.arg(2); t != nil {
		t, err := t.Dense()
		if err != nil {
			return nil, err
		}
		if s, err := broadcastShape(t.Shape, shape); err != nil || !slices.Equal(s, shape) {
			return nil, fmt.Errorf("a C of %v does not broadcast to %v", t.Shape, shape)
		}
		for i, v := range expand(t.toFloats(), t.Shape, shape) {
			out[i] += beta * v
		}
	}
	if a.IsFloat() {
		return one(NewFloats(a.DataType, shape, out))
	}
	return one(NewInts(a.DataType, shape, mapSlice(out, truncate)))
}

// opFusedMatMul is onnxruntime's alpha·A'·B', transposing the last two dimensions.
func opFusedMatMul(c *call) ([]*Tensor, error) {
	a, b := c.floats(0), c.floats(1)
	if c.err != nil {
		return nil, c.err
	}
	if c.int("transBatchA", 0) != 0 || c.int("transBatchB", 0) != 0 {
		return nil, fmt.Errorf("transBatchA and transBatchB are not implemented")
	}
	if c.int("transA", 0) != 0 {
		a = a.swapLast()
	}
	if c.int("transB", 0) != 0 {
		b = b.swapLast()
	}
	r, err := matmul(c, a, b)
	if err != nil {
		return nil, err
	}
	alpha := c.float("alpha", 1)
	for i := range r.F {
		r.F[i] *= alpha
	}
	return one(r)
}

// swapLast transposes the last two dimensions.
func (t *Tensor) swapLast() *Tensor {
	perm := make([]int, t.Rank())
	for i := range perm {
		perm[i] = i
	}
	if n := len(perm); n >= 2 {
		perm[n-1], perm[n-2] = perm[n-2], perm[n-1]
	}
	return t.transpose(perm)
}
