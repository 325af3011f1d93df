package fused

import (
	"slices"

	"github.com/mojo-patch/mojo-patch/onnx"
)

// The values of MoE's string attributes.
const (
	packHalves      = "halves"
	packInterleaved = "interleaved"
	packNone        = "none"
	layoutOutIn     = "out_in"
	layoutInOut     = "in_out"
)

var moeInputs = []Param{
	{Name: "X", Type: "T", Dims: "A... H", Role: RoleTokens, Doc: "the leading dimensions are the tokens"},
	{Name: "weights", Type: "W", Dims: "T... K", Role: RoleWeights, Doc: "as many tokens as X"},
	{Name: "ids", Type: "int64", Dims: "U... K", Role: RoleIDs,
		Doc: "as many tokens as X; numbers of experts, 0 to E-1, in any order, repeated or not"},
	{Name: "gate_up", Type: "V", Dims: "gate_up_layout: E G H | E H G", Role: RoleMatrix},
	{Name: "down", Type: "V", Dims: "down_layout: E H I | E I H", Role: RoleMatrix},
	{Name: "gate_up_bias", Type: "V", Dims: "E G", Role: RoleBias, Optional: true},
	{Name: "down_bias", Type: "V", Dims: "E H", Role: RoleBias, Optional: true},
}

// gateRules are the rules of a gate that packing=none leaves out.
var gateRules = []Rule{alphaRule,
	{Attribute: "limit", Bounds: only(0), With: "packing", Is: []string{packNone}},
	{Attribute: "up_offset", Bounds: only(0), With: "packing", Is: []string{packNone}},
}

var moeActivations = []string{"silu", "gelu", "gelu_tanh", "relu", "relu2"}

// moe computes the experts of a mixture. Each token goes through the experts that the router chose.
var moe = &Op{
	Name: MoEName,
	Summary: "The experts of a mixture: every token goes through the k experts chosen for it, and the weighted " +
		"results are summed.",
	Formula: []string{
		"for a token t and an expert e = ids[t, j]; all in float32",
		"  h = gate_up[e] . X[t] + gate_up_bias[e];  gate_up[e] as a matrix [2I, H], in either layout",
		"  packing=halves:      gate = h[:I], up = h[I:]",
		"  packing=interleaved: gate = h[0::2], up = h[1::2]",
		"  packing=none:        a = activation(h)",
		"  g = limit > 0 ? min(gate, limit) : gate;  u = limit > 0 ? clamp(up, -limit, limit) : up;  a = " +
			"activation(g) * (u + up_offset)",
		"  activation: silu, gelu and gelu_tanh as in GLU; relu: max(g, 0); relu2: max(g, 0)^2",
		"  y[j] = weights[t, j] * (down[e] . a + down_bias[e])",
		"Y[t] = round_T(y[0] + ... + y[k-1])",
	},
	Inputs:  moeInputs,
	Outputs: []Param{{Name: "Y", Type: "T", Dims: "A... H"}},
	Attributes: append(within("gate", "GLU", gateAttributes(moeActivations)), []AttributeSpec{
		{Name: "packing", Type: onnx.AttrString, Values: []string{packHalves, packInterleaved, packNone},
			Doc: "where gate and up are in the first product; none: there is no gate, and the whole product is " +
				"activated"},
		{Name: "gate_up_layout", Type: onnx.AttrString, Values: []string{layoutOutIn, layoutInOut},
			Field: "gate_up_in_out", Doc: "how the matrices of gate_up are stored"},
		{Name: "down_layout", Type: onnx.AttrString, Values: []string{layoutOutIn, layoutInOut},
			Field: "down_in_out", Doc: "how the matrices of down are stored"},
	}...),
	Rules:     gateRules,
	Family:    mixtureFamily,
	Devices:   Devices(),
	Types:     moeTypes(),
	Variables: []Variable{{Name: "W", Doc: "float32 or the type of X"}},
	Source: "Shazeer et al., Outrageously Large Neural Networks (2017); out_in is how torch.nn.Linear stores " +
		"weights, in_out and interleaved are gpt-oss",
	Let: map[string]Shape{"I": "packing: G/2 | G/2 | G"},
	Where: []Relation{
		{"#T = #A", "as many weights as tokens"},
		{"#U = #A", "as many ids as tokens"},
		{"2 divides G unless packing=none", "gate and up of one width"},
	},
	examples: moeExamples,
	overload: moeOverload,
	define:   moeBody,
}

func moeTypes() []Combination {
	var list []Combination
	for _, c := range independent("T", "W", "V") {
		if w := c.Types["W"]; w == f32 || w == c.Types["T"] {
			list = append(list, c)
		}
	}
	return list
}

// moeExamples covers each activation in each packing, with the four pairs of layouts in turn, with and without biases.
func moeExamples(s Site) [][][]int64 {
	attrs := Read[MoE](s.Attributes)
	const experts, hidden, inner = 4, 22, 10
	packing, layouts := attrs.Packing, []string{layoutOutIn, layoutInOut}
	up, down := attrs.GateUpLayout, attrs.DownLayout
	turn := slices.Index(moeActivations, attrs.Activation)
	if gateClamped(s) {
		turn = len(moeActivations)
	}
	first, second := layouts[turn%2], layouts[turn/2%2]
	if packing == packInterleaved {
		first, second = second, first
	}
	if !gateTried(s) || up != first || down != second {
		return nil
	}
	packed := int64(2 * inner)
	if packing == packNone {
		if gateClamped(s) {
			return nil
		}
		packed = inner
	}
	matrix := func(layout string, out, in int64) []int64 {
		if layout == layoutInOut {
			out, in = in, out
		}
		return []int64{experts, out, in}
	}
	dims := [][]int64{{2, 3, hidden}, {6, 2}, {6, 2}, matrix(up, packed, hidden), matrix(down, hidden, inner)}
	return [][][]int64{dims, append(slices.Clip(dims), []int64{experts, packed}, []int64{experts, hidden})}
}

func moeOverload(s Site) string {
	attrs := Read[MoE](s.Attributes)
	name := gateOverload(s) + "_" + attrs.Packing + "_" + attrs.GateUpLayout + "_" +
		attrs.DownLayout
	if s.has(MoEGateUpBias) {
		name += "_gate_up_bias"
	}
	if s.has(MoEDownBias) {
		name += "_down_bias"
	}
	if !moeScans(s) {
		name += "_gathered"
	}
	return name
}

// tokens returns the product of all dimensions except the last, or -1 if one is unknown.
func tokens(dims []int64) int64 {
	if len(dims) == 0 {
		return -1
	}
	n := int64(1)
	for _, d := range dims[:len(dims)-1] {
		if d < 0 {
			return -1
		}
		n *= d
	}
	return n
}

// ExpertLayout returns the name of MoE's attribute for the layout of an input's matrices, or "" if the input has none.
func ExpertLayout(input int) string {
	return map[int]string{MoEGateUp: AttrGateUpLayout, MoEDown: AttrDownLayout}[input]
}
