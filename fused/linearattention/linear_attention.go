// Package linearattention has LinearAttention and the short convolutions before it.
package linearattention

import (
	"fmt"

	"github.com/mojo-patch/mojo-patch/fused/op"
	"github.com/mojo-patch/mojo-patch/onnx"
)

// Ops lists the ops of the package in the order of the documentation.
var Ops = []*op.Op{Op, causalConv}

var linearAttentionInputs = []op.Param{
	{Name: "q", Type: "T", Dims: "B N Q", Doc: "Q = q_heads * Dk: the heads of a token are adjacent"},
	{Name: "k", Type: "T", Dims: "B N K", Doc: "K = k_heads * Dk"},
	{Name: "v", Type: "T", Dims: "B N V", Doc: "V = v_heads * Dv"},
	{Name: "past", Type: "float32", Optional: true, Dims: "B v_heads Dk Dv", Doc: "the state before the first token"},
	{Name: "decay", Type: "float32", Optional: true, Dims: "B N v_heads | B N v_heads*Dk",
		Doc: "logarithm of the factor of the state, for each head or for each channel of its keys"},
	{Name: "beta", Type: "float32", Optional: true, Dims: "B N ~v_heads",
		Doc: "share of the value at a key that the new value replaces"},
}

var linearFamilyOfStates = &op.Family{Name: "linear_attention",
	Summary: "linear attention and state-space layers with their states, and the short convolutions before them"}

// Op is attention whose past is one matrix for each head. Its inputs have the layout of the standard's
// LinearAttention, so that either op can replace the other without a copy.
var Op = &op.Op{
	Name: "LinearAttention",
	Summary: "Linear attention: the past of each head is a matrix that decays, absorbs each token's key and value, " +
		"and is read by its query. Gated delta nets, Mamba and lightning attention are special cases.",
	Formula: []string{
		"q, k, v, decay and beta are split into heads; the state S has v_heads of [Dk, Dv] and begins as past or 0",
		"head h of S takes the keys of head floor(h * k_heads / v_heads); Y has H = max(q_heads, v_heads) " +
			"heads, and its head h takes the queries of head floor(h * q_heads / H) and the state of head " +
			"floor(h * v_heads / H)",
		"l2_norm=1: q = q / sqrt(sum(q^2) + epsilon) and k likewise, over the channels of each head",
		"for each token t in turn:  D = decay is given ? exp(decay[t]) * S, row by row if it has Dk channels : S",
		"  u = beta is given ? beta[t] * (v[t] - D^T k[t]) : v[t]",
		"  S = D + k[t] u^T;  Y[t] = round_T(scale * S^T q[t])",
		"present = S after the last token; all of this is computed in float32, but CUDA may round the factors of " +
			"products to T when there are 80 tokens or more",
	},
	Family:  linearFamilyOfStates,
	Devices: []op.Device{op.CPU, op.CUDA},
	Inputs:  linearAttentionInputs,
	Outputs: []op.Param{
		{Name: "Y", Type: "T", Dims: "B N max(q_heads,v_heads)*Dv"},
		{Name: "present", Type: "float32", Optional: true, Dims: "B v_heads Dk Dv",
			Doc: "past of the next call; generate, genai and Triton begin a sequence with zeros"},
	},
	Attributes: []op.AttributeSpec{
		{Name: "q_heads", Type: onnx.AttrInt, Bounds: op.AtLeast(1), Grid: []any{2, 4}, Doc: "heads of q"},
		{Name: "k_heads", Type: onnx.AttrInt, Bounds: op.AtLeast(1), Grid: []any{1, 2}, Doc: "heads of k"},
		{Name: "v_heads", Type: onnx.AttrInt, Bounds: op.AtLeast(1), Grid: []any{2, 4},
			Doc: "heads of v and of the state"},
		{Name: "scale", Type: onnx.AttrFloat, Bounds: op.Finite, Grid: []any{0.25}, Doc: "factor of the result"},
		{Name: "l2_norm", Type: onnx.AttrInt, Bounds: op.Flag, Grid: []any{1, 0},
			Doc: "1: queries and keys are divided by their lengths"},
		{Name: "epsilon", Type: onnx.AttrFloat, Bounds: op.NotNegative, Grid: []any{1e-6},
			Doc: "added to the square of a length; ignored with l2_norm=0"},
	},
	Types: op.Independent("T"),
	Source: "LinearAttention of opset 27. Without decay and beta its rule is linear, with decay gated, with beta " +
		"delta, with both gated_delta: Katharopoulos et al. (2020), Yang et al., Gated Delta Networks (2024). " +
		"Mamba-2 (Dao and Gu, 2024): q is C and k is B, of as many heads as there are groups, v is dt * x, decay is " +
		"dt * A, scale is 1; D * x is added after the op. Mamba-1 (Gu and Dao, 2023) has a head of one value for " +
		"each channel, with q_heads = k_heads = 1 and a decay for each number of its state",
	Let: map[string]op.Shape{"Dk": "Q/q_heads", "Dv": "V/v_heads"},
	Where: []op.Relation{
		{Text: "q_heads divides Q", Doc: "a width of q divisible by q_heads"},
		{Text: "v_heads divides V", Doc: "a width of v divisible by v_heads"},
		{Text: "k_heads*Dk = K", Doc: "heads of k as wide as heads of q"},
		{Text: "k_heads divides v_heads", Doc: "a k_heads that divides v_heads"},
	},
	Check: func(s op.Site) error {
		attrs := op.Read[LinearAttention](s.Attributes)
		if q, v := attrs.QHeads, attrs.VHeads; q%v != 0 && v%q != 0 {
			return fmt.Errorf("mojo.LinearAttention needs one of q_heads and v_heads to divide the other: "+
				"q_heads is %d, v_heads is %d", q, v)
		}
		return nil
	},
	Shapes: linearAttentionExamples,
	Variant: func(s op.Site) string {
		name := "linear"
		for i := LinearAttentionPast; i <= LinearAttentionBeta; i++ {
			name += op.IfGiven(s, i, "_"+linearAttentionInputs[i].Name)
		}
		if op.Read[LinearAttention](s.Attributes).L2Norm {
			name += "_l2_norm"
		}
		return name
	},
	Wide: func(form op.FormMaker) []op.Form {
		return []op.Form{form([][]int64{{1, 2, 2 * 256}, {1, 2, 256}, {1, 2, 2 * 256}, {1, 2, 256, 256}, {1, 2, 2},
			{1, 2, 2}})}
	},
	Body: linearAttentionBody,
}

// linearAttentionForm is a way to use LinearAttention.
type linearAttentionForm struct {
	q, k, v                 int64 // heads
	norm                    bool
	batch, tokens, key, val int64 // sizes; key and val are per head
	past, perChannel        bool
	decay, beta             int64 // -1: not given; beta is its number of heads
}

// linearAttentionForms covers each rule, one token and several, heads that share keys or queries, columns that do not
// fill a vector, and one column. With beta and keys that are not normalized, the state grows with the tokens.
var linearAttentionForms = []linearAttentionForm{
	{q: 2, k: 2, v: 2, batch: 2, tokens: 5, key: 7, val: 9, decay: -1, beta: -1},
	{q: 2, k: 1, v: 4, batch: 2, tokens: 1, key: 16, val: 33, past: true, decay: 1, beta: -1},
	{q: 4, k: 2, v: 2, batch: 1, tokens: 70, key: 8, val: 20, past: true, perChannel: true, decay: 1, beta: -1},
	{q: 2, k: 2, v: 4, norm: true, batch: 2, tokens: 70, key: 16, val: 70, decay: 1, beta: 4},
	{q: 2, k: 2, v: 4, norm: true, batch: 1, tokens: 1, key: 32, val: 130, past: true, decay: 1, beta: 4},
	{q: 4, k: 2, v: 2, norm: true, batch: 2, tokens: 3, key: 12, val: 16, past: true, decay: -1, beta: 1},
	{q: 2, k: 2, v: 2, norm: true, batch: 2, tokens: 770, key: 24, val: 17, past: true, perChannel: true, decay: 1,
		beta: 2},
	{q: 4, k: 2, v: 4, norm: true, batch: 2, tokens: 0, key: 4, val: 5, past: true, decay: 1, beta: 4},
	{q: 2, k: 2, v: 2, batch: 1, tokens: 2, key: 5, val: 6, decay: -1, beta: 2},
	{q: 2, k: 1, v: 4, batch: 2, tokens: 1, key: 16, val: 1, past: true, perChannel: true, decay: 1, beta: -1},
	{q: 4, k: 1, v: 2, batch: 2, tokens: 9, key: 19, val: 1, decay: 1, beta: -1},
	{q: 2, k: 2, v: 2, norm: true, batch: 2, tokens: 6, key: 21, val: 1, past: true, perChannel: true, decay: 1,
		beta: 2},
}

func linearAttentionExamples(s op.Site) [][][]int64 {
	attrs := op.Read[LinearAttention](s.Attributes)
	var list [][][]int64
	for _, f := range linearAttentionForms {
		if f.q != attrs.QHeads || f.k != attrs.KHeads || f.v != attrs.VHeads || f.norm != attrs.L2Norm {
			continue
		}
		dims := [][]int64{{f.batch, f.tokens, f.q * f.key}, {f.batch, f.tokens, f.k * f.key},
			{f.batch, f.tokens, f.v * f.val}, nil, nil, nil}
		if f.past {
			dims[LinearAttentionPast] = []int64{f.batch, f.v, f.key, f.val}
		}
		if f.decay > 0 {
			width := f.v
			if f.perChannel {
				width *= f.key
			}
			dims[LinearAttentionDecay] = []int64{f.batch, f.tokens, width}
		}
		if f.beta > 0 {
			dims[LinearAttentionBeta] = []int64{f.batch, f.tokens, f.beta}
		}
		list = append(list, dims)
	}
	return list
}

// linearAttentionBody scans the tokens. The state of the Scan is S.
func linearAttentionBody(b *op.Body, s op.Site) []*onnx.Value {
	q, k, v := b.In[LinearAttentionQ], b.In[LinearAttentionK], b.In[LinearAttentionV]
	one := b.Integers("one", 1)
	qHeads, kHeads, heads := b.IntAttribute("q_heads"), b.IntAttribute("k_heads"), b.IntAttribute("v_heads")
	outHeads := b.Call("y_heads", "Max", qHeads, heads)
	shared := b.Call("y_heads_of_state", "Div", outHeads, heads)
	batch, tokens := b.Size("batch", q, 0), b.Size("tokens", q, 1)
	key := b.Call("key_width", "Div", b.Size("q_width", q, 2), qHeads)
	value := b.Call("value_width", "Div", b.Size("v_width", v, 2), heads)
	// by reshapes v to [B, N, sizes...]. No size may be -1, because a -1 cannot be inferred for an empty tensor.
	by := func(name string, v *onnx.Value, sizes ...*onnx.Value) *onnx.Value {
		shape := b.Joined(name+"_shape", 0, append([]*onnx.Value{batch, tokens}, sizes...)...)
		return b.Call(name, "Reshape", v, shape)
	}
	// repeated repeats the vectors of each head for all heads that share them: [B, N, v_heads, each, Dk].
	repeated := func(name string, v, have, want, each *onnx.Value) *onnx.Value {
		rows := by(name+"_heads", b.Float32(name+"_32", v), have, one, key)
		if op.Read[LinearAttention](s.Attributes).L2Norm {
			rows = unit(b, name, rows)
		}
		times := b.Joined(name+"_times", 0, batch, tokens, have, b.Call(name+"_each", "Div", want, have), key)
		return by(name+"_of_states", b.Call(name+"_repeated", "Expand", rows, times), heads, each, key)
	}
	scanned := []*onnx.Value{repeated("q", q, qHeads, outHeads, shared), repeated("k", k, kHeads, heads, one),
		by("v_heads", b.Float32("v_32", v), heads, one, value)}
	names := []string{"q_now", "k_now", "v_now"}
	state := b.In[LinearAttentionPast]
	if !s.Has(LinearAttentionPast) {
		state = b.Op("zeros", "ConstantOfShape", []*onnx.Value{b.Joined("state_shape", 0, batch, heads, key, value)})
	}
	if decay := b.In[LinearAttentionDecay]; s.Has(LinearAttentionDecay) {
		channels := b.Call("decay_channels", "Div", b.Size("decay_width", decay, 2), heads)
		names, scanned = append(names, "decay_now"),
			append(scanned, by("decay_heads", decay, heads, channels, one))
	}
	if beta := b.In[LinearAttentionBeta]; s.Has(LinearAttentionBeta) {
		names, scanned = append(names, "beta_now"),
			append(scanned, by("beta_heads", beta, b.Size("beta_width", beta, 2), one, one))
	}
	step := b.Graph.NewSubgraph("token")
	next, y := linearStep(b.Within(step), s, names)
	step.AddOutput(next)
	step.AddOutput(y)
	// A Scan over no tokens crashes onnxruntime. It scans one token of zeros instead, which leaves the state unchanged.
	missing := b.Call("missing", "Sub", one, b.Call("at_most_one", "Min", tokens, one))
	pads := b.Joined("pads", 0, b.Integers("zero", 0), missing, b.Integers("zeros", 0, 0, 0, 0, 0, 0, 0, 0))
	axes := make([]int64, len(scanned))
	for i, v := range scanned {
		scanned[i], axes[i] = b.Call("scanned_"+names[i], "Pad", v, pads), 1
	}
	present, rows := b.Graph.NewValue("present_state"), b.Graph.NewValue("rows")
	b.Graph.AddNode("Scan", append([]*onnx.Value{state}, scanned...), []*onnx.Value{present, rows},
		onnx.GraphAttr("body", step), onnx.IntAttr("num_scan_inputs", int64(len(scanned))),
		onnx.IntsAttr("scan_input_axes", axes), onnx.IntsAttr("scan_output_axes", []int64{1}))
	given := b.Call("given_rows", "Slice", rows, missing, b.Call("end", "Add", missing, tokens), one)
	all := by("heads_joined", given, b.Call("y_width", "Mul", outHeads, value))
	scaled := b.Call("scaled", "Mul", all, b.Attribute("scale"))
	return []*onnx.Value{b.Round("Y", scaled, LinearAttentionQ), present}
}

// unit divides the vectors along the last axis of v by their lengths.
func unit(b *op.Body, name string, v *onnx.Value) *onnx.Value {
	squares := b.Call(name+"_squares", "Mul", v, v)
	sum := b.Op(name+"_square", "ReduceSum", []*onnx.Value{squares, b.Integers("last", -1)},
		onnx.IntAttr("keepdims", 1))
	return b.Call(name+"_unit", "Div", v, b.Call(name+"_length", "Sqrt", b.Call(name+"_plus", "Add", sum,
		b.Attribute("epsilon"))))
}

// linearStep computes one token: the next state [B, v_heads, Dk, Dv] and rows [B, v_heads, each, Dv].
func linearStep(b *op.Body, s op.Site, names []string) (next, y *onnx.Value) {
	// The types are declared because onnxruntime rejects a Scan if it cannot infer the rank of its results.
	declared := onnx.Type{DataType: onnx.Float, HasShape: true, Dims: []onnx.Dim{{Value: -1}, {Value: -1}, {Value: -1},
		{Value: -1}}}
	now := map[string]*onnx.Value{}
	state := b.Graph.AddInput("state", declared)
	for _, name := range names {
		now[name] = b.Graph.AddInput(name, declared)
	}
	if s.Has(LinearAttentionDecay) {
		state = b.Call("decayed", "Mul", state, b.Call("factor", "Exp", now["decay_now"]))
	}
	u := now["v_now"]
	if s.Has(LinearAttentionBeta) {
		u = b.Call("replaced", "Sub", u, b.Call("value_at_key", "MatMul", now["k_now"], state))
		u = b.Call("update", "Mul", now["beta_now"], u)
	}
	column := b.Op("key_column", "Transpose", []*onnx.Value{now["k_now"]}, onnx.IntsAttr("perm", []int64{0, 1, 3, 2}))
	next = b.Call("state_after", "Add", state, b.Call("outer", "Mul", column, u))
	y = b.Call("row", "MatMul", now["q_now"], next)
	next.SetType(declared)
	y.SetType(declared)
	return next, y
}
