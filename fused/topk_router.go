package fused

import (
	"math"

	"github.com/mojo-patch/mojo-patch/onnx"
)

// The values of TopKRouter's string attributes.
const (
	scoreSoftmax  = "softmax"
	scoreSigmoid  = "sigmoid"
	scoreSqrtSoft = "sqrtsoftplus"
	scoreFirst    = "score_first"
	topKFirst     = "top_k_first"
	groupMax      = "max"
	groupTop2Sum  = "top2_sum"
	correctionArg = 1 // the input correction_bias
)

var topKRouter = &Op{
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
	Inputs: []Param{
		{Name: "logits", Type: "T", Dims: "A... E", Role: RoleLogits},
		{Name: "correction_bias", Type: "B", Dims: "E", Role: RoleCorrection, Doc: "only affects the choice",
			Optional: true},
	},
	Outputs: []Param{
		{Name: "weights", Type: "float32", Dims: "A... top_k"},
		{Name: "ids", Type: "int64", Dims: "A... top_k", Doc: "numbers of experts, 0 to E-1"},
	},
	Attributes: []AttributeSpec{
		{Name: "top_k", Type: onnx.AttrInt, Bounds: atLeast(1), Grid: []any{3},
			Doc: "number of experts for each token (k)"},
		{Name: "score", Type: onnx.AttrString, Values: []string{scoreSoftmax, scoreSigmoid, scoreSqrtSoft},
			Doc: "function from logits to scores"},
		{Name: "order", Type: onnx.AttrString, Values: []string{scoreFirst, topKFirst}, Field: "top_k_first",
			Doc: "score_first: score all logits, then choose; top_k_first: choose, then score the chosen logits"},
		{Name: "groups", Type: onnx.AttrInt, Bounds: Bounds{Least: 1, Most: math.MaxInt64, Note: "1 for no groups"},
			Grid: []any{1, 4},
			Doc:  "number of groups of experts; 1: no groups"},
		{Name: "group_top_k", Type: onnx.AttrInt, Bounds: atLeast(1), Grid: []any{1, 2},
			Doc: "number of groups to choose from; 1 if groups=1"},
		{Name: "group_score", Type: onnx.AttrString, Values: []string{groupMax, groupTop2Sum}, Field: "top2_sum",
			Doc: "the score of a group"},
		{Name: "excluded_score", Type: onnx.AttrFloat, Bounds: only(0, math.Inf(-1)),
			Grid: []any{0.0, math.Inf(-1)},
			Doc:  "replaces the scores of the other groups before experts are chosen: 0 or minus infinity"},
		{Name: "renormalize", Type: onnx.AttrInt, Bounds: flag, Grid: []any{0, 1},
			Doc: "1: the weights of a token are divided by their sum"},
		{Name: "epsilon", Type: onnx.AttrFloat, Bounds: notNegative, Grid: []any{1e-20},
			Doc: "added to that sum"},
		{Name: "scale", Type: onnx.AttrFloat, Bounds: finite, Grid: []any{2.5}, Doc: "factor of the weights"},
	},
	Rules: []Rule{
		{Attribute: "groups", Bounds: only(1), With: "order", Is: []string{topKFirst}},
		{Attribute: "group_top_k", AtMost: "groups"},
	},
	Family:  mixtureFamily,
	Devices: Devices(),
	Types:   independent("T", "B"),
	Source: "Shazeer et al., Outrageously Large Neural Networks (2017); order=top_k_first is gpt-oss, score_first " +
		"Mixtral and Qwen; groups are DeepSeek-V2's (max) and DeepSeek-V3's (top2_sum, with correction_bias and " +
		"sigmoid), sqrtsoftplus is DeepSeek-V4's",
	Where: []Relation{
		{"groups divides E", "a number of groups that divides the experts"},
		{"2*groups-1 <= E if group_score=top2_sum", "two experts or more in each group with top2_sum"},
		{"top_k <= group_top_k*(E/groups)", "a top_k of at most the number of experts to choose from"},
	},
	examples: routerExamples,
	overload: routerOverload,
	define:   routerBody,
}

var mixtureFamily = &Family{Name: "moe", Summary: "mixtures of experts: the router, and the experts as one op"}

// routerExamples covers sites without and with a correction, and DeepSeek's two kinds of groups.
func routerExamples(s Site) [][][]int64 {
	attrs := Read[TopKRouter](s.Attributes)
	v2 := attrs.GroupScore == groupMax && attrs.ExcludedScore == 0
	v3 := attrs.GroupScore == groupTop2Sum && attrs.ExcludedScore != 0
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

func routerOverload(s Site) string {
	attrs := Read[TopKRouter](s.Attributes)
	name := attrs.Score
	if attrs.Order == topKFirst {
		name += "_" + topKFirst
	}
	if s.has(correctionArg) {
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

func routerBody(b *body, s Site) []*onnx.Value {
	attrs := Read[TopKRouter](s.Attributes)
	logits := b.float32("logits_32", b.in[0])
	scored := logits
	if attrs.Order == scoreFirst {
		scored = b.score(s, "scores", logits)
	}
	choice := scored
	if s.has(correctionArg) {
		choice = b.call("corrected", "Add", choice, b.float32("correction_bias_32", b.in[correctionArg]))
	}
	if attrs.Groups > 1 {
		choice = b.bestGroups(s, choice)
	}
	chosen, ids := b.topK("chosen", "ids", choice, b.intAttribute("top_k"))
	w := chosen
	if choice != scored {
		w = b.op("chosen_scores", "GatherElements", []*onnx.Value{scored, ids}, onnx.IntAttr("axis", -1))
	}
	if attrs.Order == topKFirst {
		w = b.score(s, "scores", w)
	}
	if attrs.Renormalize {
		sum := b.op("sum", "ReduceSum", []*onnx.Value{w, b.integers("last", -1)}, onnx.IntAttr("keepdims", 1))
		w = b.call("normalised", "Div", w, b.call("divisor", "Add", sum, b.attribute("epsilon")))
	}
	return []*onnx.Value{b.call("weights", "Mul", w, b.attribute("scale")), ids}
}

func (b *body) score(s Site, name string, logits *onnx.Value) *onnx.Value {
	switch Read[TopKRouter](s.Attributes).Score {
	case scoreSigmoid:
		return b.call(name, "Sigmoid", logits)
	case scoreSqrtSoft:
		return b.call(name, "Sqrt", b.call("softplus", "Softplus", logits))
	}
	return b.op(name, "Softmax", []*onnx.Value{logits}, onnx.IntAttr("axis", -1))
}

// topK returns the k greatest elements of v along the last axis and their indices; k is a vector of one.
func (b *body) topK(values, indices string, v, k *onnx.Value) (*onnx.Value, *onnx.Value) {
	a, i := b.g.NewValue(values), b.g.NewValue(indices)
	b.g.AddNode("TopK", []*onnx.Value{v, k}, []*onnx.Value{a, i}, onnx.IntAttr("axis", -1))
	return a, i
}

// bestGroups replaces all scores of choice outside the best groups with excluded_score.
func (b *body) bestGroups(s Site, choice *onnx.Value) *onnx.Value {
	shape, groups, last := b.call("shape", "Shape", choice), b.intAttribute("groups"), b.integers("last", -1)
	leading := b.call("leading", "Slice", shape, b.integers("first", 0), last)
	experts := b.op("experts", "Gather", []*onnx.Value{shape, last}, onnx.IntAttr("axis", 0))
	size := b.call("group_size", "Div", experts, groups) // computed, because -1 cannot be inferred without tokens
	grouped := b.call("grouped", "Reshape", choice,
		b.op("grouped_shape", "Concat", []*onnx.Value{leading, groups, size}, onnx.IntAttr("axis", 0)))
	var score *onnx.Value
	if Read[TopKRouter](s.Attributes).GroupScore == groupTop2Sum {
		greatest, _ := b.topK("greatest", "greatest_at", grouped, b.integers("two", 2))
		one := b.integers("one", 1)
		// Not ReduceSum: without tokens, onnxruntime 1.31 returns the shape of its input.
		score = b.call("group_scores", "Add", b.slice("greatest_first", greatest, nil, one, 1),
			b.slice("greatest_second", greatest, one, nil, 1))
	} else {
		score, _ = b.topK("group_scores", "greatest_at", grouped, b.integers("one", 1))
	}
	_, at := b.topK("best_groups", "best_at", b.call("group_scores_flat", "Squeeze", score, last),
		b.intAttribute("group_top_k"))
	none := b.op("no_group", "ConstantOfShape",
		[]*onnx.Value{b.op("groups_shape", "Concat", []*onnx.Value{leading, groups}, onnx.IntAttr("axis", 0))})
	ones := b.op("ones", "ConstantOfShape", []*onnx.Value{b.call("best_shape", "Shape", at)},
		onnx.TensorAttr("value", onnx.NewFloat32s("", []int64{1}, []float32{1})))
	kept := b.op("kept_groups", "ScatterElements", []*onnx.Value{none, at, ones}, onnx.IntAttr("axis", -1))
	mask := b.op("kept", "Cast", []*onnx.Value{b.call("kept_column", "Unsqueeze", kept, last)},
		onnx.IntAttr("to", int64(onnx.Bool)))
	return b.call("limited", "Reshape", b.call("limited_groups", "Where", mask, grouped, b.attribute("excluded_score")),
		shape)
}
