package rewrite

import (
	"testing"

	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/reference"
)

// ontoBase is a model whose experts are added, one after the other, to the tokens or to what a shared expert gives. The factors are spoiled for
// the tokens of which the base is greater than most in some channel.
func ontoBase(t *testing.T, typ onnx.DataType, shared bool, most float64) *onnx.Model {
	const experts, hidden, inner = 5, 16, 6
	b := newBuilder(t, 18, typ)
	x := b.input("x", "tokens", hidden)
	values, ids := b.g.NewValue("values"), b.g.NewValue("ids")
	logits := b.op("MatMul", x, b.weight("router", hidden, experts))
	b.g.AddNode("TopK", []*onnx.Value{b.op("Softmax", logits, onnx.IntAttr("axis", -1)), b.ints(2)}, []*onnx.Value{values, ids})
	expert := func(x *onnx.Value) *onnx.Value {
		gate := b.op("MatMul", x, b.weight("gate", hidden, inner))
		act := b.op("Mul", b.op("Mul", gate, b.op("Sigmoid", gate)), b.op("MatMul", x, b.weight("up", hidden, inner)))
		return b.op("MatMul", act, b.weight("down", inner, hidden))
	}
	y, factors := x, values
	if shared {
		y = expert(x)
	}
	if most > 0 {
		great := b.op("ReduceMax", b.op("Cast", b.op("Greater", y, b.scalar(typ, most)), onnx.IntAttr("to", int64(typ))), b.ints(-1))
		factors = b.op("Mul", values, b.op("Add", great, b.scalar(typ, 1)))
	}
	for e := range experts {
		hit := b.op("Equal", ids, b.constant(reference.NewInts(onnx.Int64, []int{}, []int64{int64(e)}), "e"))
		at := b.op("Transpose", b.op("NonZero", hit)) // of the token, and its place there
		token := b.op("Slice", at, b.ints(0), b.ints(1), b.ints(1))
		out := b.op("Mul", expert(b.op("GatherND", x, token)), b.op("Unsqueeze", b.op("GatherND", factors, at), b.ints(1)))
		y = b.op("ScatterND", y, token, out, onnx.StringAttr("reduction", "add"))
	}
	b.output(y, "tokens", hidden)
	return b.m
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
			r, err := ApplyDefaultKernels(ontoBase(t, test.typ, test.shared, test.most), Auto, AssumeAvailable())
			if err != nil {
				t.Fatal(err)
			}
			fused := false
			for _, s := range r.Sites {
				if s.Pattern != "MoE" {
					continue
				}
				if s.Status == Fused {
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
