package router_test

import (
	"math"
	"slices"
	"testing"

	"github.com/mojo-patch/mojo-patch/fused/internal/optest"
	"github.com/mojo-patch/mojo-patch/fused/op"
	"github.com/mojo-patch/mojo-patch/fused/router"
	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/reference"
)

func TestSupports(t *testing.T) {
	type form = optest.RouterForm
	const f32, f16, i64 = onnx.Float, onnx.Float16, onnx.Int64
	optest.RunSupports(t, []optest.SupportsCase{
		{"router", router.Op, form{K: 2}.Attrs(), []onnx.DataType{f16}, [][]int64{{3, 8}}, ""},
		{"router, bias", router.Op, form{K: 2}.Attrs(), []onnx.DataType{f16, f32}, [][]int64{{3, 8}, {8}}, ""},
		{"router, broadcast bias", router.Op, form{K: 2}.Attrs(), []onnx.DataType{f16, f32},
			[][]int64{{3, 8}, {1, 8}}, "correction_bias"},
		{"router of integers", router.Op, form{K: 2}.Attrs(), []onnx.DataType{i64}, nil, "not int64"},
		{"router, k of more than there are", router.Op, form{K: 9}.Attrs(), []onnx.DataType{f32},
			[][]int64{{3, 8}},
			"experts to choose from: top_k <= group_top_k*(E/groups), here 9 and 8"},
		{"router, k of more than in the groups", router.Op, form{K: 3, Groups: 4, Kept: 1}.Attrs(),
			[]onnx.DataType{f32}, [][]int64{{3, 8}}, "here 3 and 2"},
		{"router, groups that do not divide", router.Op, form{K: 1, Groups: 3, Kept: 1}.Attrs(),
			[]onnx.DataType{f32},
			[][]int64{{3, 8}}, "divide"},
		{"router, groups of one", router.Op, form{K: 1, Groups: 8, Kept: 2, GroupScore: "top2_sum"}.Attrs(),
			[]onnx.DataType{f32}, [][]int64{{3, 8}}, "two experts or more"},
		{"router, groups after the choice", router.Op, form{K: 1, Groups: 2, Order: "top_k_first"}.Attrs(),
			[]onnx.DataType{f32}, nil, "groups is 2"},
		{"router, too many groups kept", router.Op, form{K: 1, Groups: 2, Kept: 3}.Attrs(), []onnx.DataType{f32},
			nil,
			"group_top_k"},
		{"router, another excluded score", router.Op, form{K: 1, Excluded: 1}.Attrs(), []onnx.DataType{f32}, nil,
			"excluded_score"},
		{"router, negative epsilon", router.Op, form{K: 1, Epsilon: -1}.Attrs(), []onnx.DataType{f32}, nil,
			"epsilon"},
		{"router of a scalar", router.Op, form{K: 1}.Attrs(), []onnx.DataType{f32}, [][]int64{{}},
			"logits of shape [A..., E]"},
	})
}

func TestBodies(t *testing.T) { optest.RunBodies(t, optest.AddRouterBodies, naiveRouter) }

// naiveRouter returns the results of TopKRouter, token by token.
func naiveRouter(s op.Site, in []*reference.Tensor) [][]float64 {
	score, first := s.Attr("score").String, s.Attr("order").String == router.TopKFirst
	groups, experts := int(s.Attr("groups").Int), in[0].Shape[in[0].Rank()-1]
	var weights, ids []float64
	for row := 0; row < in[0].Len(); row += experts {
		v := in[0].F[row : row+experts]
		if !first {
			v = naiveScore(score, v)
		}
		choice := slices.Clone(v)
		if len(in) > 1 {
			for i := range choice {
				choice[i] += in[1].F[i]
			}
		}
		if groups > 1 {
			size := experts / groups
			scores := make([]float64, groups)
			for g := range scores {
				sorted := slices.Sorted(slices.Values(choice[g*size : (g+1)*size]))
				if scores[g] = sorted[size-1]; s.Attr("group_score").String == router.GroupTop2Sum {
					scores[g] += sorted[size-2]
				}
			}
			kept := greatest(scores, s.Attr("group_top_k").Int)
			for i := range choice {
				if !slices.Contains(kept, i/size) {
					choice[i] = float64(s.Attr("excluded_score").Float)
				}
			}
		}
		var w []float64
		sum := 0.0
		for _, id := range greatest(choice, s.Attr("top_k").Int) {
			ids, w = append(ids, float64(id)), append(w, v[id])
		}
		if first {
			w = naiveScore(score, w)
		}
		for _, x := range w {
			sum += x
		}
		for _, x := range w {
			if s.Attr("renormalize").Int == 1 {
				x /= sum + float64(s.Attr("epsilon").Float)
			}
			weights = append(weights, x*float64(s.Attr("scale").Float))
		}
	}
	return [][]float64{weights, ids}
}

func naiveScore(score string, v []float64) []float64 {
	out, sum := make([]float64, len(v)), 0.0
	for i, x := range v {
		switch score {
		case router.ScoreSigmoid:
			out[i] = 1 / (1 + math.Exp(-x))
			continue
		case router.ScoreSqrtSoft:
			out[i] = math.Sqrt(math.Log1p(math.Exp(x)))
			continue
		}
		out[i] = math.Exp(x - slices.Max(v))
		sum += out[i]
	}
	for i := range out {
		if score == router.ScoreSoftmax {
			out[i] /= sum
		}
	}
	return out
}

// greatest returns the places of the k greatest elements, the first of equals first.
func greatest(v []float64, k int64) []int {
	at := make([]int, len(v))
	for i := range at {
		at[i] = i
	}
	slices.SortStableFunc(at, func(a, b int) int {
		switch {
		case v[a] > v[b]:
			return -1
		case v[a] < v[b]:
			return 1
		}
		return 0
	})
	return at[:k]
}
