package main

import (
	"math"
	"slices"
	"strings"

	"github.com/mojo-patch/mojo-patch/fused"
	"github.com/mojo-patch/mojo-patch/onnx"
)

// form is one way to use an op: its attributes and the shapes of its inputs, nil for one that is left out.
type form struct {
	attrs []*onnx.Attribute
	dims  [][]int64
}

// typeCombinations returns the types that the inputs of an op may have, left out ones as well: the floating-point ones for each
// variable of its signature, in all combinations. Which of them there are kernels for, Supports says.
func typeCombinations(op *fused.Op) [][]onnx.DataType {
	floats := []onnx.DataType{onnx.Float, onnx.Float16, onnx.BFloat16}
	combinations := []map[string]onnx.DataType{{"int64": onnx.Int64}}
	for _, p := range op.Inputs {
		if _, known := combinations[0][p.Type]; known {
			continue
		}
		var more []map[string]onnx.DataType
		for _, c := range combinations {
			for _, t := range floats {
				next := map[string]onnx.DataType{p.Type: t}
				for k, v := range c {
					next[k] = v
				}
				more = append(more, next)
			}
		}
		combinations = more
	}
	var list [][]onnx.DataType
	for _, c := range combinations {
		var types []onnx.DataType
		for _, p := range op.Inputs {
			types = append(types, c[p.Type])
		}
		list = append(list, types)
	}
	return list
}

// probeSites returns the sites with these types on which a kernel is tried.
func probeSites(op *fused.Op, types []onnx.DataType) []fused.Site {
	var sites []fused.Site
	for _, f := range forms(op.Name) {
		s := fused.Site{Attributes: f.attrs, Types: slices.Clone(types), Dims: f.dims, Opset: probeOpset}
		for i := range s.Types {
			if i >= len(f.dims) || f.dims[i] == nil {
				s.Types[i] = onnx.Undefined
			}
		}
		if op.Supports(s) == nil {
			sites = append(sites, s)
		}
	}
	return sites
}

// forms returns what an op's kernel is tried in. No vector width divides the rows.
func forms(op string) []form {
	x := []int64{2, 3, 22}
	switch op {
	case "RMSNorm":
		return normForms(x, x[2:])
	case "AddRMSNorm":
		return normForms(x, x, x[2:])
	case "GLU":
		var list []form
		for _, a := range gateAttributes("silu", "gelu", "gelu_tanh") {
			list = append(list, form{a, [][]int64{x, x}})
		}
		return list
	case "RotaryEmbedding":
		return rotaryForms(x)
	case "NormRotary":
		return normRotaryForms(x)
	case "TopKRouter":
		return routerForms()
	case "MoE":
		return moeForms()
	}
	return nil
}

func normForms(dims ...[]int64) []form {
	var list []form
	for _, after := range []int64{0, 1} {
		list = append(list, form{[]*onnx.Attribute{onnx.IntAttr("axis", -1), onnx.FloatAttr("epsilon", 1e-6), onnx.IntAttr("scale_after_cast", after)}, dims})
	}
	return list
}

// gateAttributes returns the attributes that GLU and MoE have in common: plain ones, and clamped as in gpt-oss.
func gateAttributes(activations ...string) [][]*onnx.Attribute {
	var list [][]*onnx.Attribute
	add := func(activation string, alpha, limit, offset float32) {
		list = append(list, []*onnx.Attribute{onnx.StringAttr("activation", activation), onnx.FloatAttr("alpha", alpha),
			onnx.FloatAttr("limit", limit), onnx.FloatAttr("up_offset", offset)})
	}
	for _, a := range activations {
		add(a, 1, 0, 0)
	}
	add("silu", 1.702, 0.5, 1)
	return list
}

func rotaryForms(x []int64) []form {
	var list []form
	for _, interleaved := range []int64{0, 1} {
		for _, layout := range []string{"halves", "interleaved"} {
			for _, side := range []string{"first", "last"} {
				for _, r := range []int64{x[2], 10} {
					for _, table := range []int64{r, r / 2} {
						if r == x[2] && side == "last" {
							continue // all channels: there are no sides
						}
						list = append(list, form{[]*onnx.Attribute{onnx.IntAttr("interleaved", interleaved), onnx.IntAttr("rotary_dim", r),
							onnx.StringAttr("rotated_side", side), onnx.StringAttr("output_layout", layout)}, [][]int64{x, {3, table}, {2, 1, table}}})
					}
				}
			}
		}
	}
	return list
}

// normRotaryForms has every rotation, behind either norm.
func normRotaryForms(x []int64) []form {
	var list []form
	for _, after := range []int64{0, 1} {
		for _, f := range rotaryForms(x) {
			attrs := append([]*onnx.Attribute{onnx.FloatAttr("epsilon", 1e-6), onnx.IntAttr("scale_after_cast", after)}, f.attrs...)
			list = append(list, form{attrs, [][]int64{x, x[2:], f.dims[1], f.dims[2]}})
		}
	}
	return list
}

func routerForms() []form {
	var list []form
	add := func(score, order string, groups, kept int64, groupScore string, excluded float64, renormalize int64) {
		attrs := []*onnx.Attribute{onnx.IntAttr("top_k", 3), onnx.StringAttr("score", score), onnx.StringAttr("order", order),
			onnx.IntAttr("groups", groups), onnx.IntAttr("group_top_k", kept), onnx.StringAttr("group_score", groupScore),
			onnx.FloatAttr("excluded_score", float32(excluded)), onnx.IntAttr("renormalize", renormalize), onnx.FloatAttr("epsilon", 1e-20), onnx.FloatAttr("scale", 2.5)}
		list = append(list, form{attrs, [][]int64{{2, 3, 20}}}, form{attrs, [][]int64{{5, 20}, {20}}})
	}
	for _, score := range []string{"softmax", "sigmoid", "sqrtsoftplus"} {
		for _, renormalize := range []int64{0, 1} {
			add(score, "score_first", 1, 1, "max", 0, renormalize)
			add(score, "top_k_first", 1, 1, "max", 0, renormalize)
		}
		add(score, "score_first", 4, 2, "max", 0, 0)
		add(score, "score_first", 4, 2, "top2_sum", math.Inf(-1), 1)
	}
	return list
}

// moeForms has each packing in all layouts, and each activation, with and without biases.
func moeForms() []form {
	const experts, hidden, inner = 4, 22, 10
	var list []form
	add := func(gate []*onnx.Attribute, packing, up, down string) {
		packed := int64(2 * inner)
		if packing == "none" {
			packed = inner
		}
		matrix := func(layout string, out, in int64) []int64 {
			if strings.HasPrefix(layout, "in") {
				out, in = in, out
			}
			return []int64{experts, out, in}
		}
		attrs := append(slices.Clone(gate), onnx.StringAttr("packing", packing), onnx.StringAttr("gate_up_layout", up), onnx.StringAttr("down_layout", down))
		dims := [][]int64{{2, 3, hidden}, {6, 2}, {6, 2}, matrix(up, packed, hidden), matrix(down, hidden, inner)}
		list = append(list, form{attrs, dims}, form{attrs, append(slices.Clone(dims), []int64{experts, packed}, []int64{experts, hidden})})
	}
	for i, gate := range gateAttributes("silu", "gelu", "gelu_tanh", "relu", "relu2") {
		up, down := []string{"out_in", "in_out"}[i%2], []string{"out_in", "in_out"}[i/2%2]
		add(gate, "halves", up, down)
		add(gate, "interleaved", down, up)
		if gate[2].Float == 0 {
			add(gate, "none", up, down)
		}
	}
	return list
}
