package linearattention

import (
	"github.com/mojo-patch/mojo-patch/fused/op"
	"github.com/mojo-patch/mojo-patch/onnx"
)

const activationNone = "none"

// causalConv is the short convolution before linear attention and state-space layers.
var causalConv = &op.Op{
	Name: "CausalConv",
	Summary: "Depthwise convolution along time over the current and earlier tokens, with an optional SiLU; it " +
		"returns the tokens that the next call needs.",
	Formula: []string{
		"x[c] = the P numbers of past[b,c], then X[b,c];  if past is not given: P = W - 1 zeros",
		"z[t] = sum over j < W of weight[c,0,j] * x[c, P - (W - 1) + t + j] + bias[c], in float32",
		"Y[b,c,t] = round_T(activation=silu: z * sigmoid(z), none: z);  present[b,c] = the last P numbers of x[c]",
	},
	Family:  linearFamilyOfStates,
	Devices: []op.Device{op.CPU, op.CUDA},
	Inputs: []op.Param{
		{Name: "X", Type: "T", Dims: "B C N"},
		{Name: "weight", Type: "T", Dims: "C 1 W"},
		{Name: "bias", Type: "T", Optional: true, Dims: "C"},
		{Name: "past", Type: "T", Optional: true, Dims: "B C P",
			Doc: "the tokens before X, W - 1 or more; only the last W - 1 affect Y"},
	},
	Outputs: []op.Param{
		{Name: "Y", Type: "T", Dims: "B C N"},
		{Name: "present", Type: "T", Optional: true, Dims: "B C L",
			Doc: "past of the next call, as LinearAttention's"},
	},
	Attributes: []op.AttributeSpec{{Name: "activation", Type: onnx.AttrString, Values: []string{activationNone, "silu"},
		Field: "silu", Doc: "activation of the sums"}},
	Types: op.Independent("T"),
	Source: "CausalConvWithState of opset 27, whose past has W - 1 numbers; decoders of transformers keep W. " +
		"Mamba (2023), and the layers before Qwen3-Next's delta nets; with activation=none in LFM2",
	Let: map[string]op.Shape{"L": "past?: W-1 | P"},
	Where: []op.Relation{{Text: "1 <= W", Doc: "a weight of at least one number"},
		{Text: "W-1 <= L", Doc: "a past of at least W - 1 tokens"}},
	Shapes: func(op.Site) [][][]int64 {
		var list [][][]int64
		// One token, fewer and more tokens than the convolution reads, more than a vector, and no token.
		for _, x := range [][]int64{{2, 19, 1}, {1, 5, 2}, {2, 3, 5}, {2, 7, 70}, {1, 2, 0}} {
			b, c := x[0], x[1]
			list = append(list, [][]int64{x, {c, 1, 4}, {c}}, [][]int64{x, {c, 1, 4}, {c}, {b, c, 3}},
				[][]int64{x, {c, 1, 3}, nil, {b, c, 5}}, [][]int64{x, {c, 1, 1}})
		}
		return list
	},
	Variant: func(s op.Site) string {
		return op.Read[CausalConv](s.Attributes).Activation + op.IfGiven(s, CausalConvBias, "_bias") +
			op.IfGiven(s, CausalConvPast, "_past")
	},
	Wide: func(form op.FormMaker) []op.Form {
		return []op.Form{form([][]int64{{1, op.WideInner, 1}, {op.WideInner, 1, 4}, {op.WideInner},
			{1, op.WideInner, 3}})}
	},
	Body: causalConvBody,
}

// causalConvBody multiplies windows of tokens by the weights. The standard's Conv needs its number of groups as an
// attribute, which a definition for any number of channels does not know.
func causalConvBody(b *op.Body, s op.Site) []*onnx.Value {
	x, past := b.In[CausalConvX], b.In[CausalConvPast]
	width := b.Size("width", b.In[CausalConvWeight], 2)
	one := b.Integers("one", 1)
	before := b.Call("before", "Sub", width, one)
	kept := before
	if s.Has(CausalConvPast) {
		kept = b.Size("kept", past, 2)
	} else {
		shape := b.Joined("past_shape", 0, b.Size("batch", x, 0), b.Size("channels", x, 1), before)
		past = b.Round("no_past", b.Op("zeros", "ConstantOfShape", []*onnx.Value{shape}), CausalConvX)
	}
	all := b.Joined("all", 2, past, x)
	length := b.Call("length", "Add", kept, b.Size("tokens", x, 2))
	first := b.Call("first", "Sub", kept, before)
	// places[t][j] is the index of the token that weight j multiplies for output t.
	starts := counted(b, "starts", first, b.Call("last", "Sub", length, before))
	places := b.Call("places", "Add", b.Call("starts_column", "Unsqueeze", starts, one),
		counted(b, "offsets", b.Integers("zero", 0), width))
	windows := b.Op("windows", "Gather", []*onnx.Value{b.Float32("all_32", all), places}, onnx.IntAttr("axis", 2))
	columns := b.Op("weight_columns", "Transpose", []*onnx.Value{b.Float32("weight_32", b.In[CausalConvWeight])},
		onnx.IntsAttr("perm", []int64{0, 2, 1}))
	z := b.Call("sums", "Squeeze", b.Call("products", "MatMul", windows, columns), b.Integers("last_axis", -1))
	if s.Has(CausalConvBias) {
		bias := b.Float32("bias_32", b.In[CausalConvBias])
		z = b.Call("biased", "Add", z, b.Call("bias_column", "Unsqueeze", bias, one))
	}
	if op.Read[CausalConv](s.Attributes).Activation == "silu" {
		z = b.Call("activated", "Mul", z, b.Call("sigmoid", "Sigmoid", z))
	}
	present := b.Call("present_state", "Slice", all, b.Call("new", "Sub", length, kept), length, b.Integers("time", 2))
	return []*onnx.Value{b.Round("Y", z, CausalConvX), present}
}

// counted returns begin, ..., end-1; both are vectors of one.
func counted(b *op.Body, name string, begin, end *onnx.Value) *onnx.Value {
	scalar := func(v *onnx.Value) *onnx.Value { return b.Call(v.Name+"_scalar", "Squeeze", v) }
	return b.Call(name, "Range", scalar(begin), scalar(end), b.Constant("one", onnx.IntAttr("value_int", 1)))
}
