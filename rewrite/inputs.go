package rewrite

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"

	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/patterns/reason"
	"github.com/mojo-patch/mojo-patch/reference"
)

// kind is one kind of hard inputs.
type kind struct {
	name string
	fill func(r *rand.Rand, t onnx.DataType, v []float64, row int)
}

// The kinds of numbers. Small ones stand where an epsilon of 1e-6 decides; the squares of large ones are just finite in
// the type, those of huge ones and the powers of large ones are not.
var (
	normal = kind{"normal", scaled(func(onnx.DataType) float64 { return 1 })}
	small  = kind{"small", scaled(func(onnx.DataType) float64 { return 1e-3 })}
	large  = kind{"large", scaled(func(t onnx.DataType) float64 { return math.Sqrt(greatest(t)) / 16 })}
	huge   = kind{"huge", func(r *rand.Rand, t onnx.DataType, v []float64, _ int) {
		for i := range v {
			v[i] = (2*r.Float64() - 1) * 0.9 * greatest(t)
		}
	}}
	tiny   = kind{"tiny", scaled(func(t onnx.DataType) float64 { return math.Sqrt(leastNormal(t)) / 16 })}
	zeros  = kind{"zeros", func(_ *rand.Rand, _ onnx.DataType, v []float64, _ int) { clear(v) }}
	oneHot = kind{"one-hot", func(r *rand.Rand, _ onnx.DataType, v []float64, row int) {
		clear(v)
		for start := 0; row > 0 && start < len(v); start += row {
			v[start+(start/row)%row] = 1 + r.Float64()
		}
	}}
	repeated = kind{"repeated", func(r *rand.Rand, _ onnx.DataType, v []float64, row int) {
		for i := range v {
			if i < row {
				v[i] = r.NormFloat64()
			} else {
				v[i] = v[i-row]
			}
		}
	}}
)

// kinds are the inputs every site is tried on, fewKinds those of sites with tensors so large that all take too long.
var (
	kinds    = []kind{normal, small, large, huge, tiny, zeros, oneHot, repeated}
	fewKinds = []kind{normal, small, oneHot}
)

// of is the kind of one of the inputs of these shapes: a weight or table, which is smaller than others, is not made
// tiny together with them, because the digits of a product of two such numbers are lost in one order of factors and not
// in another.
func (k kind) of(shapes [][]int64, i int) kind {
	n := elements(shapes[i : i+1])
	if k.name == "tiny" && slices.ContainsFunc(shapes, func(s []int64) bool { return elements([][]int64{s}) > n }) {
		return normal
	}
	return k
}

func scaled(factor func(onnx.DataType) float64) func(*rand.Rand, onnx.DataType, []float64, int) {
	return func(r *rand.Rand, t onnx.DataType, v []float64, _ int) {
		f := factor(t)
		for i := range v {
			v[i] = f * r.NormFloat64()
		}
	}
}

type floatType struct {
	greatest, leastNormal float64
	bits                  int // of the significand, the hidden one included
}

var floatTypes = map[onnx.DataType]floatType{
	onnx.Float16:  {65504, 0x1p-14, 11},
	onnx.BFloat16: {0x1.fep127, 0x1p-126, 8},
	onnx.Float:    {math.MaxFloat32, 0x1p-126, 24},
	onnx.Double:   {math.MaxFloat64, 0x1p-1022, 53},
}

func greatest(t onnx.DataType) float64    { return floatTypes[t].greatest }
func leastNormal(t onnx.DataType) float64 { return floatTypes[t].leastNormal }

// spacing is the distance of neighbouring numbers of the type at a magnitude.
func spacing(t onnx.DataType, magnitude float64) float64 {
	f := floatTypes[t]
	_, exp := math.Frexp(max(math.Abs(magnitude), f.leastNormal))
	return math.Ldexp(1, exp-f.bits)
}

// makeInput makes input number of a site, of type t. The same arguments give the same elements.
func makeInput(k kind, number int, t onnx.DataType, shape []int64) (*reference.Tensor, error) {
	_, isFloat := floatTypes[t]
	if !isFloat && !t.IsInteger() && t != onnx.Bool {
		return nil, fmt.Errorf("there are no hard inputs of type %s", t)
	}
	n, dims := 1, make([]int, len(shape))
	for i, d := range shape {
		dims[i] = int(d)
		n *= int(d)
	}
	if !isFloat { // 0 and 1 are indices of nearly any table
		r, v := rand.New(rand.NewPCG(uint64(number)+1, 0x6d6f6a6f)), make([]int64, n)
		for i := range v {
			v[i] = int64(r.IntN(2))
		}
		return reference.NewInts(t, dims, v), nil
	}
	row := n
	if len(dims) > 0 {
		row = dims[len(dims)-1]
	}
	v := make([]float64, n)
	k.fill(rand.New(rand.NewPCG(uint64(number)+1, 0x6d6f6a6f)), t, v, row)
	for i := range v {
		v[i] = roundTo(t, v[i])
	}
	return reference.NewFloats(t, dims, v), nil
}

// roundTo rounds x to the nearest number of the type, ties to even, staying finite.
func roundTo(t onnx.DataType, x float64) float64 {
	switch {
	case t == onnx.Double || x == 0:
		return x
	case t == onnx.Float:
		return float64(float32(min(max(x, -math.MaxFloat32), math.MaxFloat32)))
	}
	f := floatTypes[t]
	s := spacing(t, x)
	return min(max(math.RoundToEven(x/s)*s, -f.greatest), f.greatest)
}

const (
	// shrinkElements is the number of elements from which a check is tried with smaller leading dimensions first,
	// manyElements from which only few kinds of inputs are tried, maxElements from which a site is not checked.
	shrinkElements = 1 << 17
	manyElements   = 1 << 20
	maxElements    = 1 << 24
)

// smallDims stand in for dimensions that are unknown, or too great to be tried.
var smallDims = []int64{2, 3, 5, 7, 11, 13}

// shapes returns the shapes of a candidate's inputs in a world. Where only the rank is known, small numbers are put in:
// equal ranks get equal shapes, so that elementwise ops fit, and known dimensions stay.
func (k *checker) shapes(c *candidate, w world) ([][]int64, error) {
	shapes := make([][]int64, len(c.match.Inputs))
	for i, v := range c.match.Inputs {
		if s, ok := w.facts.Shape(v, w.n); ok {
			shapes[i] = s
			continue
		}
		rank, ok := w.facts.Rank(v)
		if !ok {
			return nil, reason.New(reason.Unknown, v.Producer, "cannot be checked: the shape of %q is unknown", v.Name)
		}
		shapes[i] = make([]int64, rank)
		for axis := range rank {
			d, ok := w.facts.Dim(v, axis)
			if !ok {
				d = smallDims[axis%len(smallDims)]
			}
			shapes[i][axis] = d
		}
	}
	return shapes, nil
}

// shrink returns smaller shapes of the same kind: equal dimensions stay equal, and the last ones stay as they are,
// because norms reduce them and halves split them.
func shrink(shapes [][]int64) [][]int64 {
	last := map[int64]bool{1: true}
	for _, s := range shapes {
		if len(s) > 0 {
			last[s[len(s)-1]] = true
		}
	}
	replaced := map[int64]int64{}
	out := make([][]int64, len(shapes))
	for i, s := range shapes {
		out[i] = append([]int64(nil), s...)
		for axis, d := range s[:max(0, len(s)-1)] {
			if last[d] || d <= smallDims[len(replaced)%len(smallDims)] {
				continue
			}
			if _, ok := replaced[d]; !ok {
				replaced[d] = smallDims[len(replaced)%len(smallDims)]
			}
			out[i][axis] = replaced[d]
		}
	}
	return out
}

func elements(shapes [][]int64) int64 {
	total := int64(0)
	for _, s := range shapes {
		n := int64(1)
		for _, d := range s {
			n *= max(d, 0)
		}
		total += n
	}
	return total
}
