package reference

import (
	"slices"
	"strings"

	"github.com/mojo-patch/mojo-patch/onnx"
)

// opEinsum sums products over named dimensions: "bij,bjk->bik". An ellipsis means broadcast dimensions.
func opEinsum(c *call) []*Tensor {
	lhs, rhs, explicit := strings.Cut(strings.ReplaceAll(c.str("equation", ""), " ", ""), "->")
	terms := strings.Split(lhs, ",")
	if len(terms) != len(c.in) || slices.Contains(c.in, nil) {
		fail("equation %q has %d terms for %d inputs", c.str("equation", ""), len(terms), len(c.in))
	}
	dims := map[rune]int{}
	labels := make([][]rune, len(terms))
	wide := 0 // dimensions of the widest ellipsis
	for i, term := range terms {
		if n := c.in[i].Rank() - len(strings.Replace(term, "...", "", 1)); strings.Contains(term, "...") {
			wide = max(wide, n)
		}
	}
	for i, term := range terms {
		labels[i] = ellipsis(term, c.in[i].Rank()-len(strings.Replace(term, "...", "", 1)))
		if len(labels[i]) != c.in[i].Rank() {
			fail("term %q does not fit the shape %v", term, c.in[i].Shape)
		}
		for k, l := range labels[i] {
			d := c.in[i].Shape[k]
			if old, ok := dims[l]; ok && old != d && old != 1 && d != 1 {
				fail("dimension %q is %d and %d", string(l), old, d)
			}
			dims[l] = max(d, dims[l])
		}
		c.sameType(0, i)
	}
	if !explicit {
		rhs = EinsumOutput(lhs)
	}
	out := ellipsis(rhs, wide)
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
			fail("output dimension %q is in no input", string(l))
		}
		all[k] = d
	}
	check(checkShape(all))
	prod := slices.Repeat([]float64{1}, size(all))
	for i, x := range c.in {
		st := make([]int, len(order))
		for k, s := range onnx.RowMajor(x.Shape) {
			if x.Shape[k] != 1 { // a repeated label walks along the diagonal
				st[slices.Index(order, labels[i][k])] += s
			}
		}
		for k, v := range readStrided(x.Floats(), all, st, 0) {
			prod[k] *= v
		}
	}
	shape := all[:len(out):len(out)]
	n := size(all[len(out):])
	sum := make([]float64, size(shape))
	for i := range sum {
		for _, v := range prod[i*n : (i+1)*n] {
			sum[i] += v
		}
	}
	return one(ofFloats(c.in[0].DataType, shape, sum))
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
