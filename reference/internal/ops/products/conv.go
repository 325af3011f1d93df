package products

import (
	"slices"

	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/reference/internal/op"
	"github.com/mojo-patch/mojo-patch/reference/internal/ops/elementwise"
	"github.com/mojo-patch/mojo-patch/reference/internal/tensor"
)

var convOps = map[string]op.Def{
	"Conv":                              op.Arith(2, opConv),
	"CausalConvWithState":               op.Arith(2, opCausalConv),
	"com.microsoft:CausalConvWithState": op.Arith(2, opMicrosoftCausalConv),
}

// opConv is a convolution over any number of spatial dimensions, with groups.
func opConv(c *op.Call) []*tensor.Tensor {
	x, w := c.Floats(0), c.Floats(1)
	n := x.Rank() - 2
	if n < 1 || w.Rank() != x.Rank() {
		tensor.Fail("an input of %v and weights of %v do not fit", x.Shape, w.Shape)
	}
	kernel := w.Shape[2:]
	stride, dilation := perAxis(c, "strides", n), perAxis(c, "dilations", n)
	before, _, spatial := convShape(c, x.Shape[2:], kernel, stride, dilation)
	group, chans := int(c.Int("group", 1)), w.Shape[1]
	m := w.Shape[0]
	if group < 1 || m%group != 0 || chans*group != x.Shape[1] || c.Arg(2) != nil && c.Floats(2).Len() != m {
		tensor.Fail("an input of %v, weights of %v and a bias of %s do not fit %d groups", x.Shape, w.Shape,
			c.Arg(2), group)
	}
	y := tensor.ZeroFloats(x.DataType, append([]int{x.Shape[0], m}, spatial...))
	in, taps, points := tensor.Size(x.Shape[2:]), tensor.Size(kernel), tensor.Size(spatial)
	from, out := onnx.RowMajor(x.Shape[2:]), onnx.RowMajor(spatial)
	step := onnx.RowMajor(kernel)
	for p := range points {
		for t := range taps {
			at, inside := 0, true // the input's element under this tap
			for d := range n {
				i := p/out[d]%spatial[d]*stride[d] - before[d] + t/step[d]%kernel[d]*dilation[d]
				inside = inside && i >= 0 && i < x.Shape[2+d]
				at += i * from[d]
			}
			if !inside {
				continue
			}
			for b := range x.Shape[0] {
				for o := range m {
					sum := 0.0
					for k := range chans {
						sum += x.F[(b*x.Shape[1]+o/(m/group)*chans+k)*in+at] * w.F[(o*chans+k)*taps+t]
					}
					y.F[(b*m+o)*points+p] += sum
				}
			}
		}
	}
	if bias := c.Arg(2); bias != nil {
		for i := range y.F {
			y.F[i] += bias.F[i/points%m]
		}
	}
	return op.One(y)
}

// perAxis reads an attribute of one positive number per spatial dimension, ones if absent.
func perAxis(c *op.Call, name string, n int) []int {
	v, ok := c.Ints(name)
	if !ok {
		return slices.Repeat([]int{1}, n)
	}
	if len(v) != n || slices.Min(v) < 1 {
		tensor.Fail("attribute %s is %v, expected %d positive numbers", name, v, n)
	}
	return tensor.ToInts(v)
}

// convShape returns the padding before and after each spatial dimension and the output's size.
func convShape(c *op.Call, in, kernel, stride, dilation []int) (before, after, out []int) {
	n := len(in)
	pads, ok := c.Ints("pads")
	if !ok {
		pads = make([]int64, 2*n)
	}
	auto := c.Str("auto_pad", "NOTSET")
	if len(pads) != 2*n {
		tensor.Fail("pads %v do not fit %d dimensions", pads, n)
	}
	before, out = tensor.ToInts(pads[:n]), make([]int, n)
	after = tensor.ToInts(pads[n:])
	for d := range n {
		reach := (kernel[d]-1)*dilation[d] + 1
		switch auto {
		case "NOTSET":
		case "VALID":
			before[d], after[d] = 0, 0
		case "SAME_UPPER", "SAME_LOWER":
			all := max(((in[d]+stride[d]-1)/stride[d]-1)*stride[d]+reach-in[d], 0)
			before[d] = all / 2
			if auto == "SAME_LOWER" {
				before[d] = (all + 1) / 2
			}
			after[d] = all - before[d]
		default:
			tensor.Fail("unknown auto_pad %q", auto)
		}
		room := in[d] + before[d] + after[d] - reach
		if room < 0 || kernel[d] < 1 {
			tensor.Fail("a kernel of %v, dilated by %v, does not fit %v", kernel, dilation, in)
		}
		out[d] = room/stride[d] + 1
		if c.Int("ceil_mode", 0) != 0 && auto == "NOTSET" && room%stride[d] != 0 && out[d]*stride[d] < in[d]+before[d] {
			out[d]++
		}
	}
	return before, after, out
}

// opCausalConv (opset 27) convolves each channel of (batch, channels, length) with its own kernel over the current and
// past positions; the state is the last k-1 positions.
func opCausalConv(c *op.Call) []*tensor.Tensor {
	x, w := c.Floats(0), c.Floats(1)
	act := c.Str("activation", "none")
	if x.Rank() != 3 || w.Rank() != 3 || w.Shape[0] != x.Shape[1] || w.Shape[1] != 1 ||
		w.Shape[2] < 1 {
		tensor.Fail("an input of %v and weights of %v do not fit", x.Shape, w.Shape)
	}
	if act != "none" && act != "silu" && act != "swish" {
		tensor.Fail("unknown activation %q", act)
	}
	batch, ch, length, k := x.Shape[0], x.Shape[1], x.Shape[2], w.Shape[2]
	past := tensor.ZeroFloats(x.DataType, []int{batch, ch, k - 1})
	if p := c.Arg(3); p != nil {
		if !slices.Equal(p.Shape, past.Shape) || !p.IsFloat() {
			tensor.Fail("a past state of %s, expected %v", p, past.Shape)
		}
		past = p
	}
	bias := c.Arg(2)
	if bias != nil && (!bias.IsFloat() || bias.Len() != ch) {
		tensor.Fail("a bias of %s, expected %d elements", bias, ch)
	}
	y, state := tensor.ZeroFloats(x.DataType, x.Shape), tensor.ZeroFloats(x.DataType, past.Shape)
	for row := range batch * ch {
		line := slices.Concat(past.F[row*(k-1):(row+1)*(k-1)], x.F[row*length:(row+1)*length])
		for i := range length {
			sum := 0.0
			for t, f := range w.F[row%ch*k : (row%ch+1)*k] {
				sum += line[i+t] * f
			}
			if bias != nil {
				sum += bias.F[row%ch]
			}
			if act != "none" {
				sum *= elementwise.Sigmoid(sum)
			}
			y.F[row*length+i] = sum
		}
		copy(state.F[row*(k-1):], line[length:])
	}
	return []*tensor.Tensor{y, state}
}

// opMicrosoftCausalConv is the standard's op for nodes that use none of the extensions of onnxruntime's.
func opMicrosoftCausalConv(c *op.Call) []*tensor.Tensor {
	if name, v := ExtendedCausalConv(c.Int); name != "" {
		tensor.Fail("%w: %s of %d", op.ErrUnsupported, name, v)
	}
	return opCausalConv(c)
}

// causalConvExtensions are the attributes that only onnxruntime's CausalConvWithState has, and the values for which it
// computes the standard's op.
var causalConvExtensions = []struct {
	name  string
	plain int64
}{{"ndim", 1}, {"dilation", 1}, {"channels_last", 0}, {"state_window", 0}, {"state_length", 0},
	{"state_channels_last", -1}, {"state_update_capacity", 0}, {"input_channels", 0}, {"input_channel_offset", 0}}

// ExtendedCausalConv returns the first attribute by which a CausalConvWithState of onnxruntime computes something else
// than the standard's op, and its value. The name is empty if there is none. attribute reads an int of the node.
func ExtendedCausalConv(attribute func(name string, def int64) int64) (name string, value int64) {
	for _, e := range causalConvExtensions {
		if v := attribute(e.name, e.plain); v != e.plain {
			return e.name, v
		}
	}
	return "", 0
}
