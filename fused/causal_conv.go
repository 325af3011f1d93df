package fused

import "github.com/mojo-patch/mojo-patch/onnx"

const activationNone = "none"

// causalConv is the short convolution before linear attention and state-space layers.
var causalConv = &Op{
	Name: "CausalConv",
	Summary: "Depthwise convolution along time over the current and earlier tokens, with an optional SiLU; it " +
		"returns the tokens that the next call needs.",
	Formula: []string{
		"x[c] = the P numbers of past[b,c], then X[b,c];  if past is not given: P = W - 1 zeros",
		"z[t] = sum over j < W of weight[c,0,j] * x[c, P - (W - 1) + t + j] + bias[c], in float32",
		"Y[b,c,t] = round_T(activation=silu: z * sigmoid(z), none: z);  present[b,c] = the last P numbers of x[c]",
	},
	Family:  linearFamilyOfStates,
	Devices: []Device{CPU, CUDA},
	Inputs: []Param{
		{Name: "X", Type: "T", Dims: "B C N"},
		{Name: "weight", Type: "T", Dims: "C 1 W"},
		{Name: "bias", Type: "T", Optional: true, Dims: "C"},
		{Name: "past", Type: "T", Optional: true, Dims: "B C P",
			Doc: "the tokens before X, W - 1 or more; only the last W - 1 affect Y"},
	},
	Outputs: []Param{
		{Name: "Y", Type: "T", Dims: "B C N"},
		{Name: "present", Type: "T", Optional: true, Dims: "B C L"},
	},
	Attributes: []AttributeSpec{{Name: "activation", Type: onnx.AttrString, Values: []string{activationNone, "silu"},
		Field: "silu", Doc: "activation of the sums"}},
	Types: independent("T"),
	Source: "CausalConvWithState of opset 27, whose past has W - 1 numbers; decoders of transformers keep W. " +
		"Mamba (2023), and the layers before Qwen3-Next's delta nets; with activation=none in LFM2",
	Let:   map[string]Shape{"L": "past?: W-1 | P"},
	Where: []Relation{{"1 <= W", "a weight of at least one number"}, {"W-1 <= L", "a past of at least W - 1 tokens"}},
	examples: func(Site) [][][]int64 {
		var list [][][]int64
		// One token, fewer and more tokens than the convolution reads, more than a vector, and no token.
		for _, x := range [][]int64{{2, 19, 1}, {1, 5, 2}, {2, 3, 5}, {2, 7, 70}, {1, 2, 0}} {
			b, c := x[0], x[1]
			list = append(list, [][]int64{x, {c, 1, 4}, {c}}, [][]int64{x, {c, 1, 4}, {c}, {b, c, 3}},
				[][]int64{x, {c, 1, 3}, nil, {b, c, 5}}, [][]int64{x, {c, 1, 1}})
		}
		return list
	},
	overload: func(s Site) string {
		return Read[CausalConv](s.Attributes).Activation + named(s, CausalConvBias, "_bias") +
			named(s, CausalConvPast, "_past")
	},
	define: causalConvBody,
}

// causalConvBody multiplies windows of tokens by the weights. The standard's Conv needs its number of groups as an
// attribute, which a definition for any number of channels does not know.
func causalConvBody(b *body, s Site) []*onnx.Value {
	x, past := b.in[CausalConvX], b.in[CausalConvPast]
	width := b.size("width", b.in[CausalConvWeight], 2)
	one := b.integers("one", 1)
	before := b.call("before", "Sub", width, one)
	kept := before
	if s.has(CausalConvPast) {
		kept = b.size("kept", past, 2)
	} else {
		shape := b.joined("past_shape", 0, b.size("batch", x, 0), b.size("channels", x, 1), before)
		past = b.round("no_past", b.op("zeros", "ConstantOfShape", []*onnx.Value{shape}), CausalConvX)
	}
	all := b.joined("all", 2, past, x)
	length := b.call("length", "Add", kept, b.size("tokens", x, 2))
	first := b.call("first", "Sub", kept, before)
	// places[t][j] is the index of the token that weight j multiplies for output t.
	starts := b.counted("starts", first, b.call("last", "Sub", length, before))
	places := b.call("places", "Add", b.call("starts_column", "Unsqueeze", starts, one),
		b.counted("offsets", b.integers("zero", 0), width))
	windows := b.op("windows", "Gather", []*onnx.Value{b.float32("all_32", all), places}, onnx.IntAttr("axis", 2))
	columns := b.op("weight_columns", "Transpose", []*onnx.Value{b.float32("weight_32", b.in[CausalConvWeight])},
		onnx.IntsAttr("perm", []int64{0, 2, 1}))
	z := b.call("sums", "Squeeze", b.call("products", "MatMul", windows, columns), b.integers("last_axis", -1))
	if s.has(CausalConvBias) {
		bias := b.float32("bias_32", b.in[CausalConvBias])
		z = b.call("biased", "Add", z, b.call("bias_column", "Unsqueeze", bias, one))
	}
	if Read[CausalConv](s.Attributes).Activation == "silu" {
		z = b.call("activated", "Mul", z, b.call("sigmoid", "Sigmoid", z))
	}
	present := b.call("present_state", "Slice", all, b.call("new", "Sub", length, kept), length, b.integers("time", 2))
	return []*onnx.Value{b.round("Y", z, CausalConvX), present}
}

// counted returns begin, ..., end-1; both are vectors of one.
func (b *body) counted(name string, begin, end *onnx.Value) *onnx.Value {
	scalar := func(v *onnx.Value) *onnx.Value { return b.call(v.Name+"_scalar", "Squeeze", v) }
	return b.call(name, "Range", scalar(begin), scalar(end), b.constant("one", onnx.IntAttr("value_int", 1)))
}
