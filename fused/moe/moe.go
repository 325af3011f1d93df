// Package moe has MoE.
package moe

import (
	"slices"

	"github.com/mojo-patch/mojo-patch/fused/glu"
	"github.com/mojo-patch/mojo-patch/fused/op"
	"github.com/mojo-patch/mojo-patch/fused/router"
	"github.com/mojo-patch/mojo-patch/onnx"
)

// Ops lists the ops of the package in the order of the documentation.
var Ops = []*op.Op{Op}

// The values of MoE's string attributes.
const (
	PackHalves      = "halves"
	PackInterleaved = "interleaved"
	PackNone        = "none"
)

// Inputs are the inputs of MoE.
var Inputs = []op.Param{
	{Name: "X", Type: "T", Dims: "A... H", Role: op.RoleTokens, Doc: "the leading dimensions are the tokens"},
	{Name: "weights", Type: "W", Dims: "T... K", Role: op.RoleWeights, Doc: "as many tokens as X"},
	{Name: "ids", Type: "int64", Dims: "U... K", Role: op.RoleIDs,
		Doc: "as many tokens as X; numbers of experts, 0 to E-1, in any order, repeated or not; -1: no expert"},
	{Name: "gate_up", Type: "V", Dims: "gate_up_layout: E G H | E H G", Role: op.RoleMatrix},
	{Name: "down", Type: "V", Dims: "down_layout: E H I | E I H", Role: op.RoleMatrix},
	{Name: "gate_up_bias", Type: "V", Dims: "E G", Role: op.RoleBias, Optional: true},
	{Name: "down_bias", Type: "V", Dims: "E H", Role: op.RoleBias, Optional: true},
}

// GateRules are the rules of a gate that packing=none leaves out.
var GateRules = []op.Rule{glu.AlphaRule,
	{Attribute: "limit", Bounds: op.Only(0), With: "packing", Is: []string{PackNone}},
	{Attribute: "up_offset", Bounds: op.Only(0), With: "packing", Is: []string{PackNone}},
}

var moeActivations = []string{"silu", "gelu", "gelu_tanh", "relu", "relu2"}

// Op computes the experts of a mixture. Each token goes through the experts that the router chose.
var Op = &op.Op{
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
		"  y[j] = e = -1 ? 0 : weights[t, j] * (down[e] . a + down_bias[e])",
		"Y[t] = round_T(y[0] + ... + y[k-1])",
	},
	Inputs:  Inputs,
	Outputs: []op.Param{{Name: "Y", Type: "T", Dims: "A... H"}},
	Attributes: append(op.Within("gate", "GLU", glu.Attributes(moeActivations)), []op.AttributeSpec{
		{Name: "packing", Type: onnx.AttrString, Values: []string{PackHalves, PackInterleaved, PackNone},
			Doc: "the order of gate and up in the first product; none: without a gate, and the whole product is " +
				"activated"},
		{Name: "gate_up_layout", Type: onnx.AttrString, Values: []string{op.LayoutOutIn, op.LayoutInOut},
			Field: "gate_up_in_out", Doc: "how the matrices of gate_up are stored"},
		{Name: "down_layout", Type: onnx.AttrString, Values: []string{op.LayoutOutIn, op.LayoutInOut},
			Field: "down_in_out", Doc: "how the matrices of down are stored"},
	}...),
	Rules:     GateRules,
	Family:    router.Family,
	Devices:   op.Devices(),
	Types:     moeTypes(),
	Variables: []op.Variable{{Name: "W", Doc: "float32 or the type of X"}},
	Source: "Shazeer et al., Outrageously Large Neural Networks (2017); out_in is how torch.nn.Linear stores " +
		"weights, in_out and interleaved are gpt-oss",
	Let: map[string]op.Shape{"I": "packing: G/2 | G/2 | G"},
	Where: []op.Relation{
		{Text: "#T = #A", Doc: "as many weights as tokens"},
		{Text: "#U = #A", Doc: "as many ids as tokens"},
		{Text: "2 divides G unless packing=none", Doc: "gate and up of one width"},
	},
	Shapes:  moeExamples,
	Variant: moeOverload,
	Wide: func(form op.FormMaker) []op.Form {
		expert := func(hidden, inner int64) [][]int64 {
			return [][]int64{{3, hidden}, {3, 2}, {3, 2}, {4, 2 * inner, hidden}, {4, hidden, inner}}
		}
		return []op.Form{form(expert(op.WideHidden, 16)), form(expert(16, op.WideInner))}
	},
	Body: moeBody,
}

func moeTypes() []op.Combination {
	var list []op.Combination
	for _, c := range op.Independent("T", "W", "V") {
		if w := c.Types["W"]; w == op.F32 || w == c.Types["T"] {
			list = append(list, c)
		}
	}
	return list
}

// moeExamples covers each activation in each packing, with the four pairs of layouts in turn, with and without biases.
func moeExamples(s op.Site) [][][]int64 {
	attrs := op.Read[MoE](s.Attributes)
	const experts, hidden, inner = 4, 22, 10
	packing, layouts := attrs.Packing, []string{op.LayoutOutIn, op.LayoutInOut}
	up, down := attrs.GateUpLayout, attrs.DownLayout
	turn := slices.Index(moeActivations, attrs.Activation)
	if glu.Clamped(s) {
		turn = len(moeActivations)
	}
	first, second := layouts[turn%2], layouts[turn/2%2]
	if packing == PackInterleaved {
		first, second = second, first
	}
	if !glu.Tried(s) || up != first || down != second {
		return nil
	}
	packed := int64(2 * inner)
	if packing == PackNone {
		if glu.Clamped(s) {
			return nil
		}
		packed = inner
	}
	matrix := func(layout string, out, in int64) []int64 {
		if layout == op.LayoutInOut {
			out, in = in, out
		}
		return []int64{experts, out, in}
	}
	dims := [][]int64{{2, 3, hidden}, {6, 2}, {6, 2}, matrix(up, packed, hidden), matrix(down, hidden, inner)}
	return [][][]int64{dims, append(slices.Clip(dims), []int64{experts, packed}, []int64{experts, hidden})}
}

func moeOverload(s op.Site) string {
	attrs := op.Read[MoE](s.Attributes)
	name := glu.Overload(s) + "_" + attrs.Packing + "_" + attrs.GateUpLayout + "_" +
		attrs.DownLayout
	if s.Has(MoEGateUpBias) {
		name += "_gate_up_bias"
	}
	if s.Has(MoEDownBias) {
		name += "_down_bias"
	}
	if !moeScans(s) {
		name += "_gathered"
	}
	return name
}
