package products

import (
	"slices"
	"strings"

	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/reference/internal/op"
	"github.com/mojo-patch/mojo-patch/reference/internal/tensor"
)

var einsumOps = map[string]op.Def{"Einsum": op.Arith(1, opEinsum)}

// opEinsum sums products over named dimensions: "bij,bjk->bik". An ellipsis means broadcast dimensions.
func opEinsum(c *op.Call) []*tensor.Tensor {
	lhs, rhs, explicit := strings.Cut(strings.ReplaceAll(c.Str("equation", ""), " ", ""), "->")
	terms := strings.Split(lhs, ",")
	if len(terms) != len(c.In) || slices.Contains(c.In, nil) {
		tensor.Fail("equation %q has %d terms for %d inputs", c.Str("equation", ""), len(terms), len(c.In))
	}
	dims := map[rune]int{}
	labels := make([][]rune, len(terms))
	wide := 0 // dimensions of the widest ellipsis
	for i, term := range terms {
		if n := c.In[i].Rank() - len(strings.Replace(term, "...", "", 1)); strings.Contains(term, "...") {
			wide = max(wide, n)
		}
	}
	for i, term := range terms {
		labels[i] = ellipsis(term, c.In[i].Rank()-len(strings.Replace(term, "...", "", 1)))
		if len(labels[i]) != c.In[i].Rank() {
			tensor.Fail("term %q does not fit the shape %v", term, c.In[i].Shape)
		}
		for k, l := range labels[i] {
			d := c.In[i].Shape[k]
			if old, ok := dims[l]; ok && old != d && old != 1 && d != 1 {
				tensor.Fail("dimension %q is %d and %d", string(l), old, d)
			}
			dims[l] = max(d, dims[l])
		}
		c.SameType(0, i)
	}
	if !explicit {
		rhs = EinsumOutput(lhs)
	}
	out := ellipsis(rhs, wide)
	if len(terms) == 2 {
		if t := einsumPair(c.In[0], c.In[1], labels[0], labels[1], out); t != nil {
			return op.One(t)
		}
	}
	order := slices.Clone(out) // output dimensions first, then those summed over
	for l := range dims {
		if !slices.Contains(out, l) {
			order = append(order, l)
		}
	}
	slices.Sort(order[len(out):])
	all := make([]int, len(order))
	for k, l := range order {
		d, ok := dims[l]
		if !ok {
			tensor.Fail("output dimension %q is in no input", string(l))
		}
		all[k] = d
	}
	tensor.Check(tensor.CheckShape(all))
	prod := slices.Repeat([]float64{1}, tensor.Size(all))
	for i, x := range c.In {
		st := make([]int, len(order))
		for k, s := range onnx.RowMajor(x.Shape) {
			if x.Shape[k] != 1 { // a repeated label walks along the diagonal
				st[slices.Index(order, labels[i][k])] += s
			}
		}
		for k, v := range tensor.ReadStrided(x.Floats(), all, st, 0) {
			prod[k] *= v
		}
	}
	shape := all[:len(out):len(out)]
	n := tensor.Size(all[len(out):])
	sum := make([]float64, tensor.Size(shape))
	for i := range sum {
		for _, v := range prod[i*n : (i+1)*n] {
			sum[i] += v
		}
	}
	return op.One(tensor.OfFloats(c.In[0].DataType, shape, sum))
}

// einsumPair computes the sum of two operands as products of matrices, in the same order of terms. It returns nil if an
// operand repeats a label, has one that only it sums over, or broadcasts a dimension.
func einsumPair(a, b *tensor.Tensor, la, lb, out []rune) *tensor.Tensor {
	var batch, left, right, summed []rune
	sizes := map[rune]int{}
	for i, l := range la {
		both, kept := slices.Index(lb, l), slices.Contains(out, l)
		switch {
		case slices.Contains(la[:i], l) || both < 0 && !kept || both >= 0 && a.Shape[i] != b.Shape[both]:
			return nil
		case both < 0:
			left = append(left, l)
		case kept:
			batch = append(batch, l)
		default:
			summed = append(summed, l)
		}
		sizes[l] = a.Shape[i]
	}
	for i, l := range lb {
		if slices.Contains(lb[:i], l) || !slices.Contains(la, l) && !slices.Contains(out, l) {
			return nil
		}
		if !slices.Contains(la, l) {
			right = append(right, l)
		}
		sizes[l] = b.Shape[i]
	}
	if len(out) != len(batch)+len(left)+len(right) {
		return nil // an unknown dimension
	}
	slices.Sort(summed)
	shaped := func(order []rune) (shape []int) {
		for _, l := range order {
			shape = append(shape, sizes[l])
		}
		return shape
	}
	arranged := func(list []float64, have, want []rune) []float64 {
		strides, st := onnx.RowMajor(shaped(have)), make([]int, len(want))
		for k, l := range want {
			st[k] = strides[slices.Index(have, l)]
		}
		return tensor.ReadStrided(list, shaped(want), st, 0)
	}
	m, n, k := tensor.Size(shaped(left)), tensor.Size(shaped(right)), tensor.Size(shaped(summed))
	tensor.Check(tensor.CheckShape(shaped(out)))
	x := arranged(a.Floats(), la, slices.Concat(batch, left, summed))
	y := arranged(b.Floats(), lb, slices.Concat(batch, summed, right))
	sum := make([]float64, tensor.Size(shaped(out)))
	for i := range tensor.Size(shaped(batch)) {
		tensor.Gemm(tensor.Gemm64, false, false, m, n, k, x[i*m*k:(i+1)*m*k], y[i*k*n:(i+1)*k*n], sum[i*m*n:(i+1)*m*n])
	}
	return tensor.OfFloats(a.DataType, shaped(out), arranged(sum, slices.Concat(batch, left, right), out))
}

// ellipsis returns the labels of a term with "..." replaced by n reserved labels, counted from the right so that they
// line up as in broadcasting.
func ellipsis(term string, n int) []rune {
	before, after, found := strings.Cut(term, "...")
	r := []rune(before)
	for k := range n {
		if found {
			r = append(r, rune(0x100+n-1-k))
		}
	}
	return append(r, []rune(after)...)
}

// EinsumOutput returns the right side of an Einsum equation that lacks one: the labels that occur once, in alphabetical
// order, after the broadcast dimensions.
func EinsumOutput(lhs string) string {
	var once []rune
	for _, l := range lhs {
		if l != ',' && l != '.' && strings.Count(lhs, string(l)) == 1 {
			once = append(once, l)
		}
	}
	slices.Sort(once)
	if strings.Contains(lhs, "...") {
		return "..." + string(once)
	}
	return string(once)
}
