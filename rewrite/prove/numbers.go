package prove

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"

	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/reference"
)

// A Kind is one kind of hard inputs.
type Kind struct {
	Name string
	// Fill sets the elements of a tensor of type t, whose last dimension is row.
	Fill func(r *rand.Rand, t onnx.DataType, v []float64, row int)
}

// The kinds of numbers. For Small numbers an epsilon of 1e-6 matters. The squares of Large ones are just finite in the
// type. The squares of Huge ones and higher powers of Large ones are not.
var (
	Normal = Kind{"normal", Scaled(func(onnx.DataType) float64 { return 1 })}
	Small  = Kind{"small", Scaled(func(onnx.DataType) float64 { return 1e-3 })}
	Large  = Kind{"large", Scaled(func(t onnx.DataType) float64 { return math.Sqrt(Greatest(t)) / 16 })}
	Huge   = Kind{"huge", func(r *rand.Rand, t onnx.DataType, v []float64, _ int) {
		for i := range v {
			v[i] = (2*r.Float64() - 1) * 0.9 * Greatest(t)
		}
	}}
	Tiny = Kind{"tiny", Scaled(func(t onnx.DataType) float64 { return math.Sqrt(leastNormal(t)) / 16 })}
	// The squares of Slight numbers are just normal. The squares of Tiny ones are not, and lose digits.
	Slight = Kind{"slight", Scaled(func(t onnx.DataType) float64 { return math.Sqrt(leastNormal(t)) * 16 })}
	Zeros  = Kind{"zeros", func(_ *rand.Rand, _ onnx.DataType, v []float64, _ int) { clear(v) }}
	OneHot = Kind{"one-hot", func(r *rand.Rand, _ onnx.DataType, v []float64, row int) {
		clear(v)
		for start := 0; row > 0 && start < len(v); start += row {
			v[start+(start/row)%row] = 1 + r.Float64()
		}
	}}
	Repeated = Kind{"repeated", func(r *rand.Rand, _ onnx.DataType, v []float64, row int) {
		for i := range v {
			if i < row {
				v[i] = r.NormFloat64()
			} else {
				v[i] = v[i-row]
			}
		}
	}}
)

// Kinds are tried at every site. FewKinds are tried if tensors are so large that all kinds would take too long.
var (
	Kinds    = []Kind{Normal, Small, Large, Huge, Tiny, Zeros, OneHot, Repeated}
	FewKinds = []Kind{Normal, Small, OneHot}
)

// Of returns the kind for one of the inputs with these shapes. A weight or table, which is smaller than others, is not
// tiny together with them, because the product of two such numbers loses its digits in one order of factors and not in
// another.
func (k Kind) Of(shapes [][]int64, i int) Kind {
	n := Elements(shapes[i : i+1])
	greater := func(s []int64) bool { return Elements([][]int64{s}) > n }
	if (k.Name == "tiny" || k.Name == "slight") && slices.ContainsFunc(shapes, greater) {
		return Normal
	}
	return k
}

// Scaled fills with normally distributed numbers, multiplied by a factor of the type.
func Scaled(factor func(onnx.DataType) float64) func(*rand.Rand, onnx.DataType, []float64, int) {
	return func(r *rand.Rand, t onnx.DataType, v []float64, _ int) {
		f := factor(t)
		for i := range v {
			v[i] = f * r.NormFloat64()
		}
	}
}

// FloatType describes the numbers of a type.
type FloatType struct {
	greatest, leastNormal float64
	Bits                  int // of the significand, including the hidden one
}

// FloatTypes are the types in which results are compared.
var FloatTypes = map[onnx.DataType]FloatType{
	onnx.Float16:  {65504, 0x1p-14, 11},
	onnx.BFloat16: {0x1.fep127, 0x1p-126, 8},
	onnx.Float:    {math.MaxFloat32, 0x1p-126, 24},
	onnx.Double:   {math.MaxFloat64, 0x1p-1022, 53},
}

// Greatest returns the greatest finite number of the type.
func Greatest(t onnx.DataType) float64 { return FloatTypes[t].greatest }

func leastNormal(t onnx.DataType) float64 { return FloatTypes[t].leastNormal }

// Spacing returns the distance of neighboring numbers of the type at a magnitude.
func Spacing(t onnx.DataType, magnitude float64) float64 {
	f := FloatTypes[t]
	return f.spacing(magnitude)
}

func (f *FloatType) spacing(magnitude float64) float64 {
	x := max(math.Abs(magnitude), f.leastNormal)
	// Clearing the significand of x leaves the power of two below it. For few x, the result is too small for this.
	if exponent := math.Float64bits(x) >> 52; exponent < 0x7ff && exponent > uint64(f.Bits) {
		return math.Float64frombits((exponent - uint64(f.Bits) + 1) << 52)
	}
	_, exp := math.Frexp(x)
	return math.Ldexp(1, exp-f.Bits)
}

// MakeInput returns input number of a site, of type t. The same arguments give the same elements.
func MakeInput(k Kind, number int, t onnx.DataType, shape []int64) (*reference.Tensor, error) {
	_, isFloat := FloatTypes[t]
	if !isFloat && !t.IsInteger() && t != onnx.Bool && t != onnx.Float8E4M3FN {
		return nil, fmt.Errorf("hard inputs do not support the type %s", t)
	}
	n, dims := 1, make([]int, len(shape))
	for i, d := range shape {
		dims[i] = int(d)
		n *= int(d)
	}
	if !isFloat { // 0 and 1 are indices of nearly any table, and numbers of any type
		r, v := rand.New(rand.NewPCG(uint64(number)+1, 0x6d6f6a6f)), make([]int64, n)
		for i := range v {
			v[i] = int64(r.IntN(2))
		}
		if t != onnx.Float8E4M3FN {
			return reference.NewInts(t, dims, v), nil
		}
		floats := make([]float64, n)
		for i, x := range v {
			floats[i] = float64(x)
		}
		return reference.NewFloats(t, dims, floats), nil
	}
	row := n
	if len(dims) > 0 {
		row = dims[len(dims)-1]
	}
	v := make([]float64, n)
	k.Fill(rand.New(rand.NewPCG(uint64(number)+1, 0x6d6f6a6f)), t, v, row)
	RoundAll(t, v)
	return reference.NewFloats(t, dims, v), nil
}

// RoundTo rounds x to the nearest number of the type, ties to even, staying finite.
func RoundTo(t onnx.DataType, x float64) float64 {
	switch {
	case t == onnx.Double || x == 0:
		return x
	case t == onnx.Float:
		return float64(float32(min(max(x, -math.MaxFloat32), math.MaxFloat32)))
	}
	f := FloatTypes[t]
	return f.round(x)
}

func (f *FloatType) round(x float64) float64 {
	s := f.spacing(x)
	return min(max(math.RoundToEven(x/s)*s, -f.greatest), f.greatest)
}

// RoundAll rounds all numbers like RoundTo.
func RoundAll(t onnx.DataType, v []float64) {
	f := FloatTypes[t]
	for i, x := range v {
		switch {
		case t == onnx.Double || x == 0:
		case t == onnx.Float:
			if v[i] = float64(float32(x)); v[i]-v[i] != 0 { // beyond the greatest number, or NaN
				v[i] = RoundTo(t, x)
			}
		default:
			v[i] = f.round(x)
		}
	}
}

// Elements counts the elements of tensors of these shapes.
func Elements(shapes [][]int64) int64 {
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
