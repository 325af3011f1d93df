package reference

import (
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/reference/internal/elements"
)

var castOps = map[string]opDef{
	"Cast":     plain(1, opCast),
	"CastLike": plain(2, opCastLike),
	"BitCast":  plain(1, opBitCast),
}

func opCast(c *call) []*Tensor {
	a := c.attr("to")
	if a == nil {
		fail("no attribute \"to\"")
	}
	to := onnx.DataType(a.Int)
	if a.Type == onnx.AttrString { // opset 1
		var ok bool
		if to, ok = typeNames[a.String]; !ok {
			fail("attribute to is %q, which names no type", a.String)
		}
	}
	return castTo(c, to)
}

var typeNames = map[string]onnx.DataType{
	"FLOAT": onnx.Float, "DOUBLE": onnx.Double, "FLOAT16": onnx.Float16, "INT64": onnx.Int64, "INT32": onnx.Int32,
	"INT16": onnx.Int16, "INT8": onnx.Int8, "UINT64": onnx.Uint64, "UINT32": onnx.Uint32, "UINT16": onnx.Uint16,
	"UINT8": onnx.Uint8, "BOOL": onnx.Bool, "STRING": onnx.String,
}

func opCastLike(c *call) []*Tensor { return castTo(c, c.in[1].DataType) }

func castTo(c *call, to onnx.DataType) []*Tensor {
	saturate := c.int("saturate", 1) != 0
	mode := c.str("round_mode", "up")
	return one(cast(c.in[0], to, saturate, mode, c.exact()))
}

// cast converts elements. Floats round to nearest even; floats to integers truncate; integers wrap modulo the width;
// bool compares with zero. Exact keeps floats unchanged.
func cast(x *Tensor, to onnx.DataType, saturate bool, mode string, exact bool) *Tensor {
	from := x.DataType
	if from == to {
		return x
	}
	if x.lazy != nil && (!isFloat(to) || mode != "up" || elements.FormatOf(to) != nil) {
		x = try(x.Dense())
	}
	r := &Tensor{DataType: to, Shape: x.Shape}
	switch {
	case from == onnx.String:
		return parseStrings(x, to)
	case x.lazy != nil:
		return castLazy(x, to, !exact && !widens(from, to))
	case x.IsFloat() && isFloat(to) && (exact || widens(from, to)):
		return x.withType(to)
	case x.IsFloat() && isFloat(to):
		r.F = roundedCopy(x.F, to, saturate, mode)
	case x.IsFloat() && to == onnx.Bool:
		r.I = mapSlice(x.F, func(v float64) int64 { return boolInt(v != 0) })
	case x.IsFloat() && isInt(to):
		r.I = mapSlice(x.F, func(v float64) int64 { return floatToInt(v, to) })
	case isInt(from) && isFloat(to) && exact:
		r.F = slices.Clone(x.Floats())
	case isInt(from) && isFloat(to):
		r.F = roundedCopy(x.Floats(), to, saturate, mode)
	case isInt(from) && to == onnx.Bool:
		r.I = mapSlice(x.I, func(v int64) int64 { return boolInt(v != 0) })
	case isInt(from) && isInt(to):
		r.I = mapSlice(x.I, func(v int64) int64 { return elements.Wrap(v, to) })
	case to == onnx.String:
		r.S = formatStrings(x)
	default:
		fail("no cast from %s to %s", from, to)
	}
	return r
}

// widens reports whether every value of one type is a value of the other.
func widens(from, to onnx.DataType) bool {
	return to == onnx.Double || to == onnx.Float && from != onnx.Double
}

func roundedCopy(v []float64, to onnx.DataType, saturate bool, mode string) []float64 {
	f := elements.FormatOf(to)
	if f == nil {
		r := slices.Clone(v)
		elements.RoundAll(to, r)
		return r
	}
	return mapSlice(v, func(x float64) float64 {
		if f.Unsigned {
			return f.RoundE8M0(x, mode, saturate)
		}
		return f.Round(x, saturate)
	})
}

// floatToInt truncates. The standard leaves results out of range open: like numpy on most machines, the value is
// converted to 64 bits and then wraps.
func floatToInt(x float64, to onnx.DataType) int64 {
	if to == onnx.Uint64 && x >= 1<<63 {
		if x >= 1<<64 {
			return -1
		}
		return int64(uint64(x))
	}
	return elements.Wrap(truncate(x), to)
}

// truncate converts to an integer as C does for values in range; others saturate, and NaN returns the smallest.
func truncate(x float64) int64 {
	switch {
	case x != x, x <= math.MinInt64:
		return math.MinInt64
	case x >= math.MaxInt64:
		return math.MaxInt64
	}
	return int64(x)
}

func parseStrings(x *Tensor, to onnx.DataType) *Tensor {
	v := make([]float64, len(x.S))
	ints := make([]int64, len(x.S))
	for i, s := range x.S {
		s = strings.TrimSpace(s)
		n, err := strconv.ParseInt(s, 10, 64)
		if err == nil {
			ints[i], v[i] = n, float64(n)
			continue
		}
		if v[i], err = strconv.ParseFloat(s, 64); err != nil {
			fail("the string %q is not a number", s)
		}
		ints[i] = truncate(v[i])
	}
	if isFloat(to) {
		elements.RoundAll(to, v)
		return NewFloats(to, x.Shape, v)
	}
	if !isInt(to) {
		fail("no cast from string to %s", to)
	}
	for i := range ints {
		if to == onnx.Bool {
			ints[i] = boolInt(ints[i] != 0)
		}
		ints[i] = elements.Wrap(ints[i], to)
	}
	return NewInts(to, x.Shape, ints)
}

func formatStrings(x *Tensor) []string {
	s := make([]string, x.Len())
	for i := range s {
		switch {
		case x.DataType == onnx.Uint64:
			s[i] = strconv.FormatUint(uint64(x.I[i]), 10)
		case x.I != nil:
			s[i] = strconv.FormatInt(x.I[i], 10)
		case math.IsNaN(x.F[i]):
			s[i] = "NaN"
		case math.IsInf(x.F[i], 0):
			s[i] = pick(x.F[i] > 0, "INF", "-INF")
		case x.DataType == onnx.Double:
			s[i] = strconv.FormatFloat(x.F[i], 'g', -1, 64)
		default:
			s[i] = strconv.FormatFloat(x.F[i], 'g', -1, 32)
		}
	}
	return s
}

// opBitCast reads the same bits as another type of the same width.
func opBitCast(c *call) []*Tensor {
	x, to := c.in[0], onnx.DataType(c.int("to", 0))
	if x.DataType.Bits() != to.Bits() || to.Bits() == 0 {
		fail("cannot read %s as %s: their widths differ", x.DataType, to)
	}
	p := try(x.ToONNX(""))
	return one(try(FromONNX(try(onnx.NewTensor("", to, p.Dims, try(p.Bytes()))))))
}
