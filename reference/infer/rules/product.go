package rules

import (
	"slices"
	"strings"

	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/reference"
)

// productRules: matrix products.
var productRules = map[string]Rule{
	"MatMul":        shaped(firstOf(0), matmul(1)),
	"MatMulInteger": shaped(always(onnx.Int32), matmul(1)),
	"QLinearMatMul": shaped(like(7), matmul(3)),
	"Gemm":          shaped(firstOf(0), gemm),
	"Einsum":        shaped(firstOf(0), einsum),
	"Det":           shaped(like(0), det),
}

// det drops the last two dimensions.
func det(c *Call) []int64 {
	s := c.shape(0)
	if len(s) < 2 {
		return nil
	}
	return slices.Clip(s[:len(s)-2])
}

// matmul is the product of input 0 with another.
func matmul(right int) func(c *Call) []int64 {
	return func(c *Call) []int64 { return c.matmul(c.shape(0), c.shape(right)) }
}

// matmul returns the shape of numpy.matmul.
func (c *Call) matmul(a, b []int64) []int64 {
	if len(a) == 0 || len(b) == 0 {
		return nil
	}
	va, vb := len(a) == 1, len(b) == 1
	if va {
		a = []int64{1, a[0]}
	}
	if vb {
		b = []int64{b[0], 1}
	}
	m, n := a[len(a)-2], b[len(b)-1]
	c.must(a[len(a)-1], b[len(b)-2])
	lead := a[:len(a)-2]
	if len(b) > 2 {
		lead = c.broadcast(a[:len(a)-2:len(a)-2], b[:len(b)-2:len(b)-2])
	}
	out := make([]int64, 0, len(lead)+2)
	out = append(out, lead...)
	if !va {
		out = append(out, m)
	}
	if !vb {
		out = append(out, n)
	}
	return out
}

func gemm(c *Call) []int64 {
	m, ka := c.sides(0, "transA")
	kb, n := c.sides(1, "transB")
	c.must(ka, kb)
	return []int64{m, n}
}

// sides returns the rows and columns of a matrix input, or of its transpose if the attribute is set.
func (c *Call) sides(i int, transposed string) (rows, columns int64) {
	s := c.shape(i)
	switch {
	case len(s) != 2:
		return -1, -1
	case c.attrInt(transposed, 0) != 0:
		return s[1], s[0]
	}
	return s[0], s[1]
}

func einsum(c *Call) []int64 {
	eq := strings.ReplaceAll(c.attrString("equation", ""), " ", "")
	left, right, explicit := strings.Cut(eq, "->")
	terms := strings.Split(left, ",")
	if eq == "" || len(terms) != len(c.In) {
		return nil
	}
	dims := map[byte]int64{}
	var dots []int64 // the dimensions of the ellipsis
	for i, term := range terms {
		s := c.shape(i)
		before, after, wide := strings.Cut(term, "...")
		letters := before + after
		if s == nil || len(s) < len(letters) || !wide && len(s) != len(letters) {
			return nil
		}
		k := len(s) - len(after)
		if wide {
			if dots == nil {
				dots = []int64{}
			}
			dots = c.broadcast(dots, s[len(before):k:k])
		}
		for j := range letters {
			d := s[j]
			if j >= len(before) {
				d = s[k+j-len(before)]
			}
			if old, ok := dims[letters[j]]; ok {
				d = c.join(old, d)
			}
			dims[letters[j]] = d
		}
	}
	if !explicit {
		right = reference.EinsumOutput(left)
	}
	out := []int64{}
	before, after, wide := strings.Cut(right, "...")
	for i := range before {
		out = append(out, dims[before[i]])
	}
	if wide {
		out = append(out, dots...)
		for i := range after {
			out = append(out, dims[after[i]])
		}
	}
	return out
}
