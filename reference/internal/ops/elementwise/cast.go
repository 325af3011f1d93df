package elementwise

import (
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/reference/internal/elements"
	"github.com/mojo-patch/mojo-patch/reference/internal/op"
	"github.com/mojo-patch/mojo-patch/reference/internal/tensor"
)

var castOps = map[string]op.Def{
	"Cast":     op.Plain(1, opCast),
	"CastLike": op.Plain(2, opCastLike),
	"BitCast":  op.Plain(1, opBitCast),
}

func opCast(c *op.Call) []*tensor.Tensor {
	a := c.Attr("to")
	if a == nil {
		tensor.Fail("no attribute \"to\"")
	}
	to := onnx.DataType(a.Int)
	if a.Type == onnx.AttrString { // opset 1
		var ok bool
		if to, ok = typeNames[a.String]; !ok {
			tensor.Fail("attribute to is %q, which names no type", a.String)
		}
	}
	return castTo(c, to)
}

var typeNames = map[string]onnx.DataType{
	"FLOAT": onnx.Float, "DOUBLE": onnx.Double, "FLOAT16": onnx.Float16, "INT64": onnx.Int64, "INT32": onnx.Int32,
	"INT16": onnx.Int16, "INT8": onnx.Int8, "UINT64": onnx.Uint64, "UINT32": onnx.Uint32, "UINT16": onnx.Uint16,
	"UINT8": onnx.Uint8, "BOOL": onnx.Bool, "STRING": onnx.String,
}

func opCastLike(c *op.Call) []*tensor.Tensor { return castTo(c, c.In[1].DataType) }

func castTo(c *op.Call, to onnx.DataType) []*tensor.Tensor {
	saturate := c.Int("saturate", 1) != 0
	mode := c.Str("round_mode", "up")
	return op.One(Cast(c.In[0], to, saturate, mode, c.Exact))
}

// Cast converts elements. Floats round to nearest even; floats to integers truncate; integers wrap modulo the width;
// bool compares with zero. Exact keeps floats unchanged.
func Cast(x *tensor.Tensor, to onnx.DataType, saturate bool, mode string, exact bool) *tensor.Tensor {
	from := x.DataType
	if from == to {
		return x
	}
	if x.IsLazy() && (!tensor.IsFloatType(to) || mode != "up" || elements.FormatOf(to) != nil) {
		x = tensor.Try(x.Dense())
	}
	r := &tensor.Tensor{DataType: to, Shape: x.Shape}
	switch {
	case from == onnx.String:
		return parseStrings(x, to)
	case x.IsLazy():
		return tensor.CastLazy(x, to, !exact && !widens(from, to))
	case x.IsFloat() && tensor.IsFloatType(to) && (exact || widens(from, to)):
		return tensor.WithType(x, to)
	case x.IsFloat() && tensor.IsFloatType(to):
		r.F = roundedCopy(x.F, to, saturate, mode)
	case x.IsFloat() && to == onnx.Bool:
		r.I = tensor.MapSlice(x.F, func(v float64) int64 { return tensor.BoolInt(v != 0) })
	case x.IsFloat() && tensor.IsIntType(to):
		r.I = tensor.MapSlice(x.F, func(v float64) int64 { return floatToInt(v, to) })
	case tensor.IsIntType(from) && tensor.IsFloatType(to) && exact:
		r.F = slices.Clone(x.Floats())
	case tensor.IsIntType(from) && tensor.IsFloatType(to):
		r.F = roundedCopy(x.Floats(), to, saturate, mode)
	case tensor.IsIntType(from) && to == onnx.Bool:
		r.I = tensor.MapSlice(x.I, func(v int64) int64 { return tensor.BoolInt(v != 0) })
	case tensor.IsIntType(from) && tensor.IsIntType(to):
		r.I = tensor.MapSlice(x.I, func(v int64) int64 { return elements.Wrap(v, to) })
	case to == onnx.String:
		r.S = formatStrings(x)
	default:
		tensor.Fail("no cast from %s to %s", from, to)
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
	return tensor.MapSlice(v, func(x float64) float64 {
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
	return elements.Wrap(tensor.Truncate(x), to)
}

func parseStrings(x *tensor.Tensor, to onnx.DataType) *tensor.Tensor {
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
			tensor.Fail("the string %q is not a number", s)
		}
		ints[i] = tensor.Truncate(v[i])
	}
	if tensor.IsFloatType(to) {
		elements.RoundAll(to, v)
		return tensor.NewFloats(to, x.Shape, v)
	}
	if !tensor.IsIntType(to) {
		tensor.Fail("no cast from string to %s", to)
	}
	for i := range ints {
		if to == onnx.Bool {
			ints[i] = tensor.BoolInt(ints[i] != 0)
		}
		ints[i] = elements.Wrap(ints[i], to)
	}
	return tensor.NewInts(to, x.Shape, ints)
}

func formatStrings(x *tensor.Tensor) []string {
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
			s[i] = tensor.Pick(x.F[i] > 0, "INF", "-INF")
		case x.DataType == onnx.Double:
			s[i] = strconv.FormatFloat(x.F[i], 'g', -1, 64)
		default:
			s[i] = strconv.FormatFloat(x.F[i], 'g', -1, 32)
		}
	}
	return s
}

// opBitCast reads the same bits as another type of the same width.
func opBitCast(c *op.Call) []*tensor.Tensor {
	x, to := c.In[0], onnx.DataType(c.Int("to", 0))
	if x.DataType.Bits() != to.Bits() || to.Bits() == 0 {
		tensor.Fail("cannot read %s as %s: their widths differ", x.DataType, to)
	}
	p := tensor.Try(x.ToONNX(""))
	return op.One(tensor.Try(tensor.FromONNX(tensor.Try(onnx.NewTensor("", to, p.Dims, tensor.Try(p.Bytes()))))))
}
