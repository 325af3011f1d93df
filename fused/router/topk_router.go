// Package router has TopKRouter.
package router

import (
	"math"

	"github.com/mojo-patch/mojo-patch/fused/op"
	"github.com/mojo-patch/mojo-patch/onnx"
)

// Ops lists the ops of the package in the order of the documentation.
var Ops = []*op.Op{Op}

// The values of TopKRouter's string attributes.
const (
	ScoreSoftmax  = "softmax"
	ScoreSigmoid  = "sigmoid"
	ScoreSqrtSoft = "sqrtsoftplus"
	scoreFirst    = "score_first"
	TopKFirst     = "top_k_first"
	groupMax      = "max"
	GroupTop2Sum  = "top2_sum"
	correctionArg = 1 // the input correction_bias
)

// Op chooses the experts of a token.
var Op = &op.Op{
	Name:    TopKRouterName,
	Summary: "Router of a mixture of experts: chooses k of the E experts for each token, and their weights.",
	Formula: []string{
		"score(z): softmax over the last axis, sigmoid, or sqrtsoftplus: sqrt(log(1 + exp(z)));  choice = " +
			"correction_bias is given ? v + correction_bias : v;  all in float32",
		"order=score_first: s0 = score(logits), v = s0",
		"  groups > 1: choice as [..., groups, E/groups]; a group's score is its maximum (max) or the sum of its two " +
			"greatest (top2_sum);",
		"              outside of the group_top_k groups with the best scores, choice becomes excluded_score",
		"  ids = the k greatest of choice, in descending order, equal ones by ascending id;  w = s0[ids]",
		"order=top_k_first: v = logits, ids as above;  w = score(logits[ids])",
		"renormalize=1: w = w / (sum(w) + epsilon)",
		"weights = w * scale",
	},
	Inputs: []op.Param{
		{Name: "logits", Type: "T", Dims: "A... E", Role: op.RoleLogits},
		{Name: "correction_bias", Type: "B", Dims: "E", Role: op.RoleCorrection, Doc: "only affects the choice",
			Optional: true},
	},
	Outputs: []op.Param{
		{Name: "weights", Type: "float32", Dims: "A... top_k"},
		{Name: "ids", Type: "int64", Dims: "A... top_k", Doc: "numbers of experts, 0 to E-1"},
	},
	Attributes: []op.AttributeSpec{
		{Name: "top_k", Type: onnx.AttrInt, Bounds: op.AtLeast(1), Grid: []any{3},
			Doc: "number of experts for each token (k)"},
		{Name: "score", Type: onnx.AttrString, Values: []string{ScoreSoftmax, ScoreSigmoid, ScoreSqrtSoft},
			Doc: "function from logits to scores"},
		{Name: "order", Type: onnx.AttrString, Values: []string{scoreFirst, TopKFirst}, Field: "top_k_first",
			Doc: "score_first: score all logits, then choose; top_k_first: choose, then score the chosen logits"},
		{Name: "groups", Type: onnx.AttrInt, Bounds: op.Bounds{Least: 1, Most: math.MaxInt64, Note: "1 for no groups"},
			Grid: []any{1, 4},
			Doc:  "number of groups of experts; 1: no groups"},
		{Name: "group_top_k", Type: onnx.AttrInt, Bounds: op.AtLeast(1), Grid: []any{1, 2},
			Doc: "number of groups to choose from; 1 if groups=1"},
		{Name: "group_score", Type: onnx.AttrString, Values: []string{groupMax, GroupTop2Sum}, Field: "top2_sum",
			Doc: "the score of a group"},
		{Name: "excluded_score", Type: onnx.AttrFloat, Bounds: op.Only(0, math.Inf(-1)),
			Grid: []any{0.0, math.Inf(-1)},
			Doc:  "replaces the scores of the other groups before experts are chosen: 0 or minus infinity"},
		{Name: "renormalize", Type: onnx.AttrInt, Bounds: op.Flag, Grid: []any{0, 1},
			Doc: "1: the weights of a token are divided by their sum"},
		{Name: "epsilon", Type: onnx.AttrFloat, Bounds: op.NotNegative, Grid: []any{1e-20},
			Doc: "added to that sum"},
		{Name: "scale", Type: onnx.AttrFloat, Bounds: op.Finite, Grid: []any{2.5}, Doc: "factor of the weights"},
	},
	Rules: []op.Rule{
		{Attribute: "groups", Bounds: op.Only(1), With: "order", Is: []string{TopKFirst}},
		{Attribute: "group_top_k", AtMost: "groups"},
	},
	Family:  Family,
	Devices: op.Devices(),
	Types:   op.Independent("T", "B"),
	Source: "Shazeer et al., Outrageously Large Neural Networks (2017); order=top_k_first is gpt-oss, score_first " +
		"Mixtral and Qwen; groups are DeepSeek-V2's (max) and DeepSeek-V3's (top2_sum, with correction_bias and " +
		"sigmoid), sqrtsoftplus is DeepSeek-V4's",
	Where: []op.Relation{
		{Text: "groups divides E", Doc: "a number of groups that divides the experts"},
		{Text: "2*groups-1 <= E if group_score=top2_sum", Doc: "two experts or more in each group with top2_sum"},
		{Text: "top_k <= group_top_k*(E/groups)", Doc: "a top_k of at most the number of experts to choose from"},
	},
	Shapes:  routerExamples,
	Variant: routerOverload,
	Wide: func(form op.FormMaker) []op.Form {
		return []op.Form{form([][]int64{{3, op.WideExperts}}, onnx.IntAttr("top_k", 8)),
			form([][]int64{{3, op.WideExperts}, {op.WideExperts}}, onnx.IntAttr("top_k", 8),
				onnx.StringAttr("score", ScoreSigmoid), onnx.IntAttr("groups", 8), onnx.IntAttr("group_top_k", 4),
				onnx.StringAttr("group_score", GroupTop2Sum), onnx.IntAttr("renormalize", 1))}
	},
	Body: routerBody,
}

// Family is the family of the ops of mixtures.
var Family = &op.Family{Name: "moe", Summary: "mixtures of experts: the router, and the experts as one op"}

// routerExamples covers sites without and with a correction, and DeepSeek's two kinds of groups.
func routerExamples(s op.Site) [][][]int64 {
	attrs := op.Read[TopKRouter](s.Attributes)
	v2 := attrs.GroupScore == groupMax && attrs.ExcludedScore == 0
	v3 := attrs.GroupScore == GroupTop2Sum && attrs.ExcludedScore != 0
	renormalize, kept := attrs.Renormalize, attrs.GroupTopK
	if attrs.Groups == 1 {
		if kept != 1 || !v2 {
			return nil
		}
	} else if kept != 2 || attrs.Order != scoreFirst || !(v2 && !renormalize || v3 && renormalize) {
		return nil
	}
	return [][][]int64{{{2, 3, 20}}, {{5, 20}, {20}}}
}

func routerOverload(s op.Site) string {
	attrs := op.Read[TopKRouter](s.Attributes)
	name := attrs.Score
	if attrs.Order == TopKFirst {
		name += "_" + TopKFirst
	}
	if s.Has(correctionArg) {
		name += "_bias"
	}
	if attrs.Groups > 1 {
		name += "_groups_" + attrs.GroupScore
	}
	if attrs.Renormalize {
		name += "_renormalize"
	}
	return name
}

func routerBody(b *op.Body, s op.Site) []*onnx.Value {
	attrs := op.Read[TopKRouter](s.Attributes)
	logits := b.Float32("logits_32", b.In[0])
	scored := logits
	if attrs.Order == scoreFirst {
		scored = score(b, s, "scores", logits)
	}
	choice := scored
	if s.Has(correctionArg) {
		choice = b.Call("corrected", "Add", choice, b.Float32("correction_bias_32", b.In[correctionArg]))
	}
	if attrs.Groups > 1 {
		choice = bestGroups(b, s, choice)
	}
	chosen, ids := b.TopK("chosen", "ids", choice, b.IntAttribute("top_k"))
	w := chosen
	if choice != scored {
		w = b.Op("chosen_scores", "GatherElements", []*onnx.Value{scored, ids}, onnx.IntAttr("axis", -1))
	}
	if attrs.Order == TopKFirst {
		w = score(b, s, "scores", w)
	}
	if attrs.Renormalize {
		sum := b.Op("sum", "ReduceSum", []*onnx.Value{w, b.Integers("last", -1)}, onnx.IntAttr("keepdims", 1))
		w = b.Call("normalised", "Div", w, b.Call("divisor", "Add", sum, b.Attribute("epsilon")))
	}
	return []*onnx.Value{b.Call("weights", "Mul", w, b.Attribute("scale")), ids}
}

func score(b *op.Body, s op.Site, name string, logits *onnx.Value) *onnx.Value {
	switch op.Read[TopKRouter](s.Attributes).Score {
	case ScoreSigmoid:
		return b.Call(name, "Sigmoid", logits)
	case ScoreSqrtSoft:
		return b.Call(name, "Sqrt", b.Call("softplus", "Softplus", logits))
	}
	return b.Op(name, "Softmax", []*onnx.Value{logits}, onnx.IntAttr("axis", -1))
}

// bestGroups replaces all scores of choice outside the best groups with excluded_score.
func bestGroups(b *op.Body, s op.Site, choice *onnx.Value) *onnx.Value {
	shape, groups, last := b.Call("shape", "Shape", choice), b.IntAttribute("groups"), b.Integers("last", -1)
	leading := b.Call("leading", "Slice", shape, b.Integers("first", 0), last)
	experts := b.Op("experts", "Gather", []*onnx.Value{shape, last}, onnx.IntAttr("axis", 0))
	size := b.Call("group_size", "Div", experts, groups) // computed, because -1 cannot be inferred without tokens
	grouped := b.Call("grouped", "Reshape", choice,
		b.Op("grouped_shape", "Concat", []*onnx.Value{leading, groups, size}, onnx.IntAttr("axis", 0)))
	var score *onnx.Value
	if op.Read[TopKRouter](s.Attributes).GroupScore == GroupTop2Sum {
		greatest, _ := b.TopK("greatest", "greatest_at", grouped, b.Integers("two", 2))
		one := b.Integers("one", 1)
		// Not ReduceSum: without tokens, onnxruntime 1.31 returns the shape of its input.
		score = b.Call("group_scores", "Add", b.Slice("greatest_first", greatest, nil, one, 1),
			b.Slice("greatest_second", greatest, one, nil, 1))
	} else {
		score, _ = b.TopK("group_scores", "greatest_at", grouped, b.Integers("one", 1))
	}
	_, at := b.TopK("best_groups", "best_at", b.Call("group_scores_flat", "Squeeze", score, last),
		b.IntAttribute("group_top_k"))
	none := b.Op("no_group", "ConstantOfShape",
		[]*onnx.Value{b.Op("groups_shape", "Concat", []*onnx.Value{leading, groups}, onnx.IntAttr("axis", 0))})
	ones := b.Op("ones", "ConstantOfShape", []*onnx.Value{b.Call("best_shape", "Shape", at)},
		onnx.TensorAttr("value", onnx.NewFloat32s("", []int64{1}, []float32{1})))
	kept := b.Op("kept_groups", "ScatterElements", []*onnx.Value{none, at, ones}, onnx.IntAttr("axis", -1))
	mask := b.Op("kept", "Cast", []*onnx.Value{b.Call("kept_column", "Unsqueeze", kept, last)},
		onnx.IntAttr("to", int64(onnx.Bool)))
	return b.Call("limited", "Reshape", b.Call("limited_groups", "Where", mask, grouped, b.Attribute("excluded_score")),
		shape)
}
