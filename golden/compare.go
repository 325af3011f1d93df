package golden

import (
	"bytes"
	"fmt"
	"math"
	"slices"

	"github.com/mojo-patch/mojo-patch/onnx"
)

// MismatchError means that two tensors cannot be compared element by element.
type MismatchError struct {
	Name                string
	GotType, WantType   onnx.DataType
	GotShape, WantShape []int64
}

// Error names both types and shapes.
func (e *MismatchError) Error() string {
	return fmt.Sprintf("tensor %q is %s%v, expected %s%v", e.Name, e.GotType, e.GotShape, e.WantType, e.WantShape)
}

// Compare measures got against want. Both must have the same shape and the same type, or two float types; otherwise the
// error is a *MismatchError. A failed comparison is not an error: see Stats.Passed. Elements are converted one at a
// time, so that memory does not grow with the tensors.
//
// Tensors of two float types (an export in float16 whose graph ends in float32) are compared by value, and an ulp is
// the less precise type's.
//
// NaN equals NaN and an infinity equals the infinity of its sign, position by position; any other pair with such a
// value is out of tolerance. Pairs with a NaN or an infinity do not count in the error statistics.
func Compare(got, want *onnx.Tensor, tol Tolerance) (Stats, error) {
	name := want.Name
	if name == "" {
		name = got.Name
	}
	if !comparable(got.DataType, want.DataType) || !slices.Equal(got.Dims, want.Dims) {
		return Stats{}, &MismatchError{name, got.DataType, want.DataType, got.Dims, want.Dims}
	}
	c := comparison{dataType: coarser(got.DataType, want.DataType), width: int64(want.DataType.Bits() / 8),
		n: want.Len(), tol: tol, worst: -1}
	var err error
	if c.readGot, c.got, err = elementReader(got); err != nil {
		return Stats{}, err
	}
	if c.readWant, c.want, err = elementReader(want); err != nil {
		return Stats{}, err
	}
	c.run()
	return c.stats(name, got, want), nil
}

func comparable(a, b onnx.DataType) bool { return a == b || a.IsFloat() && b.IsFloat() }

// coarser returns the less precise of two comparable types; bfloat16 has fewer digits than float16.
func coarser(a, b onnx.DataType) onnx.DataType {
	for _, t := range []onnx.DataType{onnx.BFloat16, onnx.Float16, onnx.Float} {
		if a == t || b == t {
			return t
		}
	}
	return a
}

// comparison holds the running sums of Compare.
type comparison struct {
	dataType          onnx.DataType
	width             int64
	got, want         []byte
	readGot, readWant reader
	n                 int64
	tol               Tolerance

	maxWant                float64 // largest finite magnitude of want
	gotNonFinite           NonFinite
	wantNonFinite          NonFinite
	within                 int64
	finite, relative       int64 // pairs in the mean absolute and relative error
	maxAbs, sumAbs         float64
	maxRel, sumRel         float64
	dot, gotSq, wantSq, sq float64
	worst                  int64 // element with the largest error, or -1
	worstNonFinite         bool
}

func (c *comparison) run() {
	for i := range c.n {
		if m := math.Abs(c.readWant(i)); m > c.maxWant && !math.IsInf(m, 0) {
			c.maxWant = m
		}
	}
	base := c.tol.Abs + c.tol.ULP*ulp(c.dataType, c.maxWant)
	for i := range c.n {
		g, w := c.readGot(i), c.readWant(i)
		c.gotNonFinite.add(g)
		c.wantNonFinite.add(w)
		if notFinite(g) || notFinite(w) {
			if g == w || g != g && w != w {
				c.within++
			} else if !c.worstNonFinite {
				c.worst, c.worstNonFinite = i, true
			}
			continue
		}
		c.add(i, g, w, base)
	}
}

// add counts a pair of finite elements.
func (c *comparison) add(i int64, g, w, base float64) {
	diff := math.Abs(g - w)
	equal := diff == 0
	if equal && c.width == 8 && !c.dataType.IsFloat() { // float64 cannot represent all 64-bit integers
		equal = bytes.Equal(c.got[8*i:8*i+8], c.want[8*i:8*i+8])
	}
	if equal || diff <= base+c.tol.Rel*math.Abs(w) && base+c.tol.Rel > 0 {
		c.within++
	}
	c.finite++
	c.sumAbs += diff
	if !c.worstNonFinite && (diff > c.maxAbs || !equal && c.worst < 0) {
		c.worst = i
	}
	c.maxAbs = max(c.maxAbs, diff)
	if w != 0 {
		rel := diff / math.Abs(w)
		c.relative++
		c.sumRel += rel
		c.maxRel = max(c.maxRel, rel)
	}
	// Scaled, so that the squares of large float64 values do not overflow.
	if s := c.maxWant; s > 0 {
		g, w, diff = g/s, w/s, diff/s
	}
	c.dot += g * w
	c.gotSq += g * g
	c.wantSq += w * w
	c.sq += diff * diff
}

func notFinite(x float64) bool { return math.IsNaN(x) || math.IsInf(x, 0) }

func (c *comparison) stats(name string, got, want *onnx.Tensor) Stats {
	s := Stats{
		Name: name, DataType: c.dataType.String(), Shape: want.Dims, Elements: c.n,
		MaxAbs: Number(c.maxAbs), MaxRel: Number(c.maxRel), MaxWant: Number(c.maxWant),
		Cosine: 1, Share: 1, Tolerance: c.tol,
		Got: c.gotNonFinite, Want: c.wantNonFinite, Within: c.within,
	}
	if got.DataType != want.DataType {
		s.GotType, s.DataType = got.DataType.String(), want.DataType.String()
	}
	if u := ulp(c.dataType, c.maxWant); u > 0 {
		s.MaxULP = Number(c.maxAbs / u)
	}
	if c.finite > 0 {
		s.MeanAbs = Number(c.sumAbs / float64(c.finite))
	}
	if c.relative > 0 {
		s.MeanRel = Number(c.sumRel / float64(c.relative))
	}
	switch {
	case c.gotSq > 0 && c.wantSq > 0:
		s.Cosine = Number(min(1, c.dot/math.Sqrt(c.gotSq)/math.Sqrt(c.wantSq)))
	case c.gotSq > 0 || c.wantSq > 0:
		s.Cosine = 0
	}
	if c.wantSq > 0 {
		s.RelativeL2 = Number(math.Sqrt(c.sq / c.wantSq))
	}
	if c.n > 0 {
		s.Share = float64(c.within) / float64(c.n)
	}
	if c.worst >= 0 {
		s.Worst = &Element{Index: unravel(c.worst, want.Dims), Got: Number(c.readGot(c.worst)),
			Want: Number(c.readWant(c.worst))}
	}
	needed := c.tol.Share
	if needed <= 0 {
		needed = 1
	}
	s.Passed = c.within == c.n || s.Share >= needed
	return s
}

// unravel turns the position of an element in C order into its index.
func unravel(i int64, dims []int64) []int64 {
	index := make([]int64, len(dims))
	for k := len(dims) - 1; k >= 0; k-- {
		index[k] = i % dims[k]
		i /= dims[k]
	}
	return index
}
