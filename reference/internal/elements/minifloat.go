package elements

import (
	"math"

	"github.com/mojo-patch/mojo-patch/onnx"
)

// Minifloat describes a float of at most 8 bits, by the tables of the standard
// (docs/docsgen/source/technical/float8.md).
type Minifloat struct {
	exp, man int // bits
	bias     int
	max      float64
	inf      bool // E5M2: has infinities
	uz       bool // FNUZ: the code of -0 is the only NaN
	nan      bool
	Unsigned bool // E8M0
}

var miniFormats = map[onnx.DataType]*Minifloat{
	onnx.Float8E4M3FN:   {exp: 4, man: 3, bias: 7, max: 448, nan: true},
	onnx.Float8E4M3FNUZ: {exp: 4, man: 3, bias: 8, max: 240, nan: true, uz: true},
	onnx.Float8E5M2:     {exp: 5, man: 2, bias: 15, max: 57344, nan: true, inf: true},
	onnx.Float8E5M2FNUZ: {exp: 5, man: 2, bias: 16, max: 57344, nan: true, uz: true},
	onnx.Float4E2M1:     {exp: 2, man: 1, bias: 1, max: 6},
	onnx.Float8E8M0:     {exp: 8, man: 0, bias: 127, max: 0x1p127, nan: true, Unsigned: true},
}

// FormatOf returns the format of a type of floats of at most 8 bits, nil for other types.
func FormatOf(t onnx.DataType) *Minifloat {
	if t < onnx.Float8E4M3FN {
		return nil
	}
	return miniFormats[t]
}

// Round returns the nearest value of the format, ties to even. A value that is too large becomes the greatest value if
// saturating, else an infinity or NaN.
func (f *Minifloat) Round(x float64, saturate bool) float64 {
	if x != x {
		if !f.nan { // E2M1 has no NaN; the standard's cast returns -0
			return math.Copysign(0, -1)
		}
		return x
	}
	if f.Unsigned {
		return f.RoundE8M0(x, "nearest", saturate)
	}
	if !math.IsInf(x, 0) {
		_, e := math.Frexp(x) // |x| in [2^(e-1), 2^e)
		q := max(e-1, 1-f.bias) - f.man
		y := math.Ldexp(math.RoundToEven(math.Ldexp(x, -q)), q)
		if math.Abs(y) <= f.max {
			if y == 0 && f.uz {
				return 0
			}
			return y
		}
	}
	switch {
	case saturate || !f.nan:
		return math.Copysign(f.max, x)
	case f.inf:
		return math.Copysign(math.Inf(1), x)
	}
	return math.NaN()
}

// RoundE8M0 rounds to a power of two, "up", "down" or to the "nearest" one (ties up).
func (f *Minifloat) RoundE8M0(x float64, mode string, saturate bool) float64 {
	x = math.Abs(x)
	switch {
	case x != x:
		return x
	case x < 0x1p-127:
		if mode == "nearest" || saturate || x == 0 {
			return 0x1p-127
		}
	}
	fr, e := math.Frexp(x)
	y := math.Ldexp(0.5, e) // the power of two at or below x
	switch mode {
	case "up":
		if fr > 0.5 {
			y *= 2
		}
	case "nearest":
		if fr >= 0.75 {
			y *= 2
		}
	}
	if y > f.max || math.IsInf(x, 0) {
		if saturate {
			return f.max
		}
		return math.NaN()
	}
	return max(y, 0x1p-127)
}

// encode encodes a value that the format can hold; see round.
func (f *Minifloat) encode(x float64) byte {
	if f.Unsigned {
		if x != x {
			return 0xff
		}
		_, e := math.Frexp(x)
		return byte(e - 1 + f.bias)
	}
	top := f.exp + f.man
	sign := byte(0)
	if math.Signbit(x) {
		sign = 1 << top
	}
	switch {
	case x != x && f.uz:
		return 1 << top
	case x != x:
		return sign | byte(1<<top-1)
	case math.IsInf(x, 0):
		return sign | byte((1<<f.exp-1)<<f.man)
	case x == 0:
		return sign
	}
	a := math.Abs(x)
	_, e := math.Frexp(a)
	e--
	if e < 1-f.bias {
		return sign | byte(math.Ldexp(a, f.bias+f.man-1))
	}
	m := int(math.Ldexp(a, f.man-e)) - 1<<f.man
	return sign | byte((e+f.bias)<<f.man|m)
}
