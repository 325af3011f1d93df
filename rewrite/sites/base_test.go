package sites_test

import (
	"testing"

	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/reference"
	"github.com/mojo-patch/mojo-patch/rewrite"
	"github.com/mojo-patch/mojo-patch/rewrite/rewritetest"
)

// ontoBase is a model that adds experts one by one to the tokens or to the result of a shared expert. The factors are
// wrong for tokens whose base exceeds most in some channel.
func ontoBase(t *testing.T, typ onnx.DataType, shared bool, most float64) *onnx.Model {
	const experts, hidden, inner = 5, 16, 6
	b := rewritetest.New(t, 18, typ)
	x := b.In("x", "tokens", hidden)
	values, ids := b.Graph.NewValue("values"), b.Graph.NewValue("ids")
	logits := b.Op("MatMul", x, b.Weight("router", hidden, experts))
	b.Graph.AddNode("TopK", []value{b.Op("Softmax", logits, onnx.IntAttr("axis", -1)), b.Ints(2)},
		[]value{values, ids})
	expert := func(x value) value {
		gate := b.Op("MatMul", x, b.Weight("gate", hidden, inner))
		act := b.Op("Mul", b.Op("Mul", gate, b.Op("Sigmoid", gate)), b.Op("MatMul", x, b.Weight("up", hidden, inner)))
		return b.Op("MatMul", act, b.Weight("down", inner, hidden))
	}
	y, factors := x, values
	if shared {
		y = expert(x)
	}
	if most > 0 {
		great := b.Op("ReduceMax",
			b.Op("Cast", b.Op("Greater", y, b.Scalar(typ, most)), onnx.IntAttr("to", int64(typ))), b.Ints(-1))
		factors = b.Op("Mul", values, b.Op("Add", great, b.Scalar(typ, 1)))
	}
	for e := range experts {
		hit := b.Op("Equal", ids, b.Tensor(reference.NewInts(onnx.Int64, []int{}, []int64{int64(e)}), "e"))
		at := b.Op("Transpose", b.Op("NonZero", hit)) // the token, and its place
		token := b.Op("Slice", at, b.Ints(0), b.Ints(1), b.Ints(1))
		out := b.Op("Mul", expert(b.Op("GatherND", x, token)),
			b.Op("Unsqueeze", b.Op("GatherND", factors, at), b.Ints(1)))
		y = b.Op("ScatterND", y, token, out, onnx.StringAttr("reduction", "add"))
	}
	b.Out(y, "tokens", hidden)
	return b.Model
}

func TestExpertsOntoBase(t *testing.T) {
	for _, test := range []struct {
		name   string
		typ    onnx.DataType
		shared bool
		most   float64
		fused  bool
	}{
		{"tokens", onnx.Float, false, 0, true},
		{"shared expert", onnx.Float, true, 0, true},
		{"tokens, float16", onnx.Float16, false, 0, true},
		{"shared expert, float16", onnx.Float16, true, 0, true},
		{"shared expert, bfloat16", onnx.BFloat16, true, 0, true},
		{"tokens, others where they are great", onnx.Float, false, 2, false},
		{"shared expert, others where it is great", onnx.Float, true, 2, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			r, err := rewrite.Apply(ontoBase(t, test.typ, test.shared, test.most),
				rewrite.Request{AssumeAvailable: true})
			if err != nil {
				t.Fatal(err)
			}
			fused := false
			for _, s := range r.Sites {
				if s.Pattern != "MoE" {
					continue
				}
				if s.Status == rewrite.Fused {
					fused = true
					if s.Check == nil || s.Check.Cases < 30 || s.Check.Repairs != "" {
						t.Errorf("%+v", s.Check)
					}
				} else if test.fused {
					t.Error(s.Reason)
				}
			}
			if fused != test.fused {
				t.Errorf("fused: %v, expected %v", fused, test.fused)
			}
		})
	}
}
