package infer

import (
	"slices"
	"strings"

	"github.com/mojo-patch/mojo-patch/onnx"
)

// productRules: products of matrices.
var productRules = map[string]rule{
	"MatMul":        func(c *call) { c.set(0, c.firstType(0), c.matmul(c.shape(0), c.shape(1))) },
	"MatMulInteger": func(c *call) { c.set(0, onnx.Int32, c.matmul(c.shape(0), c.shape(1))) },
	"QLinearMatMul": func(c *call) { c.set(0, c.dtype(7), c.matmul(c.shape(0), c.shape(3))) },
	"Gemm":          gemm,
	"Einsum":        einsum,
	"Det":           func(c *call) { c.set(0, c.dtype(0), head(c.shape(0), 2)) },
}

// head returns s without its last n dimensions.
func head(s []int64, n int) []int64 {
	if s == nil || len(s) < n {
		return nil
	}
	return slices.Clip(s[:len(s)-n])
}

// matmul returns the shape of numpy.matmul.
func (c *call) matmul(a, b []int64) []int64 {
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

func gemm(c *call) {
	a, b := c.shape(0), c.shape(1)
	out := []int64{-1, -1}
	ka, kb := int64(-1), int64(-1)
	if len(a) == 2 {
		out[0], ka = a[0], a[1]
		if c.attrInt("transA", 0) != 0 {
			out[0], ka = a[1], a[0]
		}
	}
	if len(b) == 2 {
		kb, out[1] = b[0], b[1]
		if c.attrInt("transB", 0) != 0 {
			kb, out[1] = b[1], b[0]
		}
	}
	c.must(ka, kb)
	c.set(0, c.firstType(0), out)
}

func einsum(c *call) {
	t := c.firstType(0)
	eq := strings.ReplaceAll(c.attrString("equation", ""), " ", "")
	left, right, explicit := strings.Cut(eq, "->")
	terms := strings.Split(left, ",")
	if eq == "" || len(terms) != len(c.in) {
		c.set(0, t, nil)
		return
	}
	dims := map[byte]int64{}
	count := map[byte]int{}
	var dots []int64 // the dimensions of the ellipsis
	for i, term := range terms {
		s := c.shape(i)
		before, after, wide := strings.Cut(term, "...")
		letters := before + after
		if s == nil || len(s) < len(letters) || !wide && len(s) != len(letters) {
			c.set(0, t, nil)
			return
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
			count[letters[j]]++
		}
	}
	if !explicit {
		right = implicitOutput(count, dots != nil)
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
	c.set(0, t, out)
}

// implicitOutput is the right side of an equation without arrow: the ellipsis, then the letters that occur once.
func implicitOutput(count map[byte]int, dots bool) string {
	var letters []byte
	for l, n := range count {
		if n == 1 {
			letters = append(letters, l)
		}
	}
	slices.Sort(letters)
	if dots {
		return "..." + string(letters)
	}
	return string(letters)
}
