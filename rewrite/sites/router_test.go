package sites_test

import (
	"strings"
	"testing"

	"github.com/mojo-patch/mojo-patch/fused"
	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/onnx/onnxtest"
	"github.com/mojo-patch/mojo-patch/patterns"
	"github.com/mojo-patch/mojo-patch/rewrite/rewritetest"
)

func routerAttributes(k int64, score, order string, renormalize int64, scale float32) []*onnx.Attribute {
	return []*onnx.Attribute{onnx.IntAttr("top_k", k), onnx.StringAttr("score", score), onnx.StringAttr("order", order),
		onnx.IntAttr("groups", 1),
		onnx.IntAttr("group_top_k", 1), onnx.StringAttr("group_score", "max"), onnx.FloatAttr("excluded_score", 0),
		onnx.IntAttr("renormalize", renormalize), onnx.FloatAttr("epsilon", 0), onnx.FloatAttr("scale", scale)}
}

func TestRouterSites(t *testing.T) {
	axis := onnx.IntAttr("axis", -1)
	type build func(b *rewritetest.Builder, logits, bias value) (weights, ids value)
	mixtral := func(b *rewritetest.Builder, logits, _ value) (value, value) {
		w, ids := b.TopK(b.Op("Softmax", logits, axis), 3)
		return b.Share(w), ids
	}
	after := func(b *rewritetest.Builder, logits, _ value) (value, value) {
		w, ids := b.TopK(logits, 3)
		return b.Op("Softmax", w, axis), ids
	}
	biased := func(b *rewritetest.Builder, logits, bias value) (value, value) {
		s := b.Op("Sigmoid", logits)
		_, ids := b.TopK(b.Op("Add", s, bias), 3)
		return b.Share(b.Op("GatherElements", s, ids, axis)), ids
	}
	for _, c := range []struct {
		name   string
		build  build
		attrs  []*onnx.Attribute
		bias   bool
		reason string
	}{
		{"mixtral", mixtral, routerAttributes(3, "softmax", "score_first", 1, 1), false, ""},
		// except for ties
		{"the same in another order", mixtral, routerAttributes(3, "softmax", "top_k_first", 0, 1), false, ""},
		{"gpt-oss", after, routerAttributes(3, "softmax", "top_k_first", 0, 1), false, ""},
		{"gpt-oss as mixtral", after, routerAttributes(3, "softmax", "score_first", 1, 1), false, ""},
		{"not renormalized", mixtral, routerAttributes(3, "softmax", "score_first", 0, 1), false, "differs"},
		{"scaled", mixtral, routerAttributes(3, "softmax", "score_first", 1, 1.001), false, "differs"},
		{"sigmoid", mixtral, routerAttributes(3, "sigmoid", "score_first", 1, 1), false, "differs"},
		{"deepseek", biased, routerAttributes(3, "sigmoid", "score_first", 1, 1), true, ""},
		{"the bias in the weights", func(b *rewritetest.Builder, logits, bias value) (value, value) {
			w, ids := b.TopK(b.Op("Add", b.Op("Sigmoid", logits), bias), 3)
			return b.Share(w), ids
		}, routerAttributes(3, "sigmoid", "score_first", 1, 1), true, "differs"},
		{"the least", func(b *rewritetest.Builder, logits, _ value) (value, value) {
			s := b.Op("Softmax", logits, axis)
			_, ids := b.TopK(b.Op("Neg", s), 3)
			return b.Share(b.Op("GatherElements", s, ids, axis)), ids
		}, routerAttributes(3, "softmax", "score_first", 1, 1), false, "differs"},
		{"ids turned", func(b *rewritetest.Builder, logits, _ value) (value, value) {
			w, ids := b.TopK(b.Op("Softmax", logits, axis), 3)
			return b.Share(w), b.Op("Slice", ids, b.Ints(-1), b.Ints(-9), b.Ints(1), b.Ints(-1))
		}, routerAttributes(3, "softmax", "score_first", 1, 1), false, "differs"},
		{"weights over all experts", func(b *rewritetest.Builder, logits, _ value) (value, value) {
			s := b.Op("Sigmoid", logits)
			return b.TopK(b.Share(s), 3)
		}, routerAttributes(3, "sigmoid", "score_first", 1, 1), false, "differs"},
	} {
		for _, typ := range []onnx.DataType{onnx.Float, onnx.BFloat16} {
			t.Run(c.name+" "+typ.String(), func(t *testing.T) {
				b := rewritetest.New(t, 20, typ)
				logits, bias := b.In("logits", "tokens", 16), b.Weight("bias", 16)
				w, ids := c.build(b, logits, bias)
				in := []value{logits}
				if c.bias {
					in = append(in, bias)
				}
				w = b.Op("Cast", w, onnx.IntAttr("to", int64(onnx.Float)))
				b.Type = onnx.Float
				b.Out(w, "tokens", 3)
				b.Graph.AddOutput(ids)
				s := judge(t, b.Model, &patterns.Match{Pattern: "TopKRouter", Op: "TopKRouter", Inputs: in,
					Roles:   map[value]fused.Role{logits: fused.RoleLogits, bias: fused.RoleCorrection},
					Outputs: []value{w, ids}, Attributes: c.attrs})
				if s.fused != (c.reason == "") || !strings.Contains(s.reason, c.reason) {
					t.Errorf("%s, want a reason with %q", s, c.reason)
				}
			})
		}
	}
}

// TestGroupsByOtherScores: groups of experts are ordered by other scores than their best or two best experts, which
// random scores seldom show.
func TestGroupsByOtherScores(t *testing.T) {
	for _, c := range []struct{ by, claimed, reason string }{
		{"ReduceMax", "max", ""}, {"ReduceMean", "max", "differs"}, {"ReduceMin", "max", "differs"},
		{"ReduceMax", "top2_sum", "differs"},
		{"ReduceSum", "top2_sum", ""}, // of two
	} {
		b := rewritetest.New(t, 20, onnx.Float)
		logits := b.In("logits", "tokens", 8)
		scores := b.Op("Softmax", logits, onnx.IntAttr("axis", -1))
		of := b.Op(c.by, b.Op("Reshape", scores, b.Ints(-1, 4, 2)), b.Ints(2), onnx.IntAttr("keepdims", 0))
		_, kept := b.TopK(of, 3)
		mask := b.Op("ReduceSum", b.Op("OneHot", kept, b.Ints(4), b.Floats([]int64{2}, 0, 1)), b.Ints(1),
			onnx.IntAttr("keepdims", 0))
		wide := b.Op("Reshape", b.Op("Tile", b.Op("Unsqueeze", mask, b.Ints(2)), b.Ints(1, 1, 2)), b.Ints(-1, 8))
		w, ids := b.TopK(b.Op("Mul", scores, wide), 3)
		attrs := routerAttributes(3, "softmax", "score_first", 0, 1)
		for i, a := range attrs {
			switch a.Name {
			case "groups":
				attrs[i] = onnx.IntAttr("groups", 4)
			case "group_top_k":
				attrs[i] = onnx.IntAttr("group_top_k", 3)
			case "group_score":
				attrs[i] = onnx.StringAttr("group_score", c.claimed)
			case "excluded_score":
				attrs[i] = onnx.FloatAttr("excluded_score", 0)
			}
		}
		b.Out(w, "tokens", 3)
		ids.SetType(onnxtest.Type(onnx.Int64, "tokens", 3))
		b.Graph.AddOutput(ids)
		s := judge(t, b.Model,
			&patterns.Match{Pattern: "TopKRouter", Op: "TopKRouter", Inputs: []value{logits},
				Roles: map[value]fused.Role{logits: fused.RoleLogits}, Outputs: []value{w, ids},
				Attributes: attrs})
		if s.fused != (c.reason == "") || !strings.Contains(s.reason, c.reason) {
			t.Errorf("%s as %s: %s", c.by, c.claimed, s)
		}
	}
}
