package streams_test

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/onnx/onnxtest"
	"github.com/mojo-patch/mojo-patch/reference"
	"github.com/mojo-patch/mojo-patch/rewrite/streams"
)

// lawCases build models. ways is the number of independent ways in which the values can grow.
var lawCases = []struct {
	name  string
	ways  int
	build func(b *onnxtest.Builder, x, y, z *onnx.Value) []*onnx.Value
}{
	{"Add", 1, func(b *onnxtest.Builder, x, y, _ *onnx.Value) []*onnx.Value { return one(b.Op("Add", x, y)) }},
	{"Add of a constant", 1, func(b *onnxtest.Builder, x, _, _ *onnx.Value) []*onnx.Value {
		return one(b.Op("Add", x, 3.0))
	}},
	{"Mul", 2, func(b *onnxtest.Builder, x, y, _ *onnx.Value) []*onnx.Value { return one(b.Op("Mul", x, y)) }},
	{"square", 1, func(b *onnxtest.Builder, x, _, _ *onnx.Value) []*onnx.Value { return one(b.Op("Mul", x, x)) }},
	{"Div", 2, func(b *onnxtest.Builder, x, y, _ *onnx.Value) []*onnx.Value { return one(b.Op("Div", x, y)) }},
	{"MatMul", 2, func(b *onnxtest.Builder, x, _, z *onnx.Value) []*onnx.Value { return one(b.Op("MatMul", x, z)) }},
	{"Gemm", 2, func(b *onnxtest.Builder, x, _, z *onnx.Value) []*onnx.Value {
		return one(b.Op("Gemm", x, z, b.Floats([]int64{4}, 1, 2, 3, 4), onnx.FloatAttr("alpha", 0.5)))
	}},
	{"Einsum", 2, func(b *onnxtest.Builder, x, _, z *onnx.Value) []*onnx.Value {
		return one(b.Op("Einsum", x, z, onnx.StringAttr("equation", "ij,jk->ik")))
	}},
	{"powers", 1, func(b *onnxtest.Builder, x, _, _ *onnx.Value) []*onnx.Value {
		return []*onnx.Value{b.Op("Pow", x, 3.0), b.Op("Pow", b.Op("Abs", x), 0.5), b.Op("Pow", x, -2.0),
			b.Op("Pow", b.Op("Abs", x), -0.5), b.Op("Sqrt", b.Op("Abs", x)), b.Op("Reciprocal", x)}
	}},
	{"another power", 0, func(b *onnxtest.Builder, x, _, _ *onnx.Value) []*onnx.Value {
		return one(b.Op("Pow", b.Op("Abs", x), 1.3))
	}},
	{"sums", 1, func(b *onnxtest.Builder, x, _, _ *onnx.Value) []*onnx.Value {
		return []*onnx.Value{b.Op("ReduceMean", x, []int64{-1}), b.Op("ReduceSumSquare", x, []int64{-1}),
			b.Op("ReduceL2", x, []int64{-1}), b.Op("CumSum", x, 1), b.Op("ReduceMax", x, []int64{0})}
	}},
	{"RMSNorm", 2, func(b *onnxtest.Builder, x, y, _ *onnx.Value) []*onnx.Value {
		mean := b.Op("ReduceMean", b.Op("Pow", x, 2.0), []int64{-1}, onnx.IntAttr("keepdims", 1))
		return one(b.Op("Mul", b.Op("Div", x, b.Op("Sqrt", b.Op("Add", mean, 0.1))), y))
	}},
	{"RMSNormalization", 1, func(b *onnxtest.Builder, x, _, _ *onnx.Value) []*onnx.Value {
		return one(b.Op("RMSNormalization", x, b.Floats([]int64{4}, 1, 2, 3, 4), onnx.FloatAttr("epsilon", 0.1)))
	}},
	{"LayerNormalization", 1, func(b *onnxtest.Builder, x, _, _ *onnx.Value) []*onnx.Value {
		return b.Ops(3, "LayerNormalization", x, b.Floats([]int64{4}, 1, 2, 3, 4), b.Floats([]int64{4}, 1, 2, 3, 4),
			onnx.FloatAttr("epsilon", 0.1))
	}},
	{"InstanceNormalization", 1, func(b *onnxtest.Builder, x, _, _ *onnx.Value) []*onnx.Value {
		wide := b.Op("Unsqueeze", x, []int64{0})
		return one(b.Op("InstanceNormalization", wide, b.Floats([]int64{2}, 1, 2), b.Floats([]int64{2}, 1, 2),
			onnx.FloatAttr("epsilon", 0.125)))
	}},
	{"skip norm", 1, func(b *onnxtest.Builder, x, y, _ *onnx.Value) []*onnx.Value {
		made := []*onnx.Value{b.Graph.NewValue("normed"), nil, nil, b.Graph.NewValue("sum")}
		n := b.Graph.AddNode("SkipSimplifiedLayerNormalization", []*onnx.Value{b.Op("Unsqueeze", x, []int64{0}),
			b.Op("Unsqueeze", y, []int64{0}), b.Floats([]int64{4}, 1, 2, 3, 4)}, made, onnx.FloatAttr("epsilon", 0.1))
		n.Domain = "com.microsoft"
		return []*onnx.Value{made[0], made[3]}
	}},
	{"SiLU", 1, func(b *onnxtest.Builder, x, y, _ *onnx.Value) []*onnx.Value {
		return one(b.Op("Mul", b.Op("Mul", x, b.Op("Sigmoid", x)), y))
	}},
	{"sigmoid of a multiple", 1, func(b *onnxtest.Builder, x, _, _ *onnx.Value) []*onnx.Value {
		return one(b.Op("Mul", x, b.Op("Sigmoid", b.Op("Mul", x, 1.702))))
	}},
	{"soft cap", 1, func(b *onnxtest.Builder, x, _, _ *onnx.Value) []*onnx.Value {
		return one(b.Op("Mul", b.Op("Tanh", b.Op("Div", x, 30.0)), 30.0))
	}},
	{"Relu and clamps", 1, func(b *onnxtest.Builder, x, _, _ *onnx.Value) []*onnx.Value {
		return []*onnx.Value{b.Op("Relu", x), b.Op("Clip", x, -0.5, 0.25), b.Op("Max", x, 0.125), b.Op("Neg", x)}
	}},
	{"moves", 1, func(b *onnxtest.Builder, x, y, _ *onnx.Value) []*onnx.Value {
		return []*onnx.Value{b.Op("Transpose", x), b.Op("Concat", x, y, onnx.IntAttr("axis", 0)),
			b.Op("Reshape", x, []int64{-1}), b.Op("Pad", x, []int64{0, 1, 0, 1}, 2.0),
			b.Op("Where", b.Op("Greater", x, y), x, -1.0), b.Op("Gather", x, []int64{1})}
	}},
	{"scatter", 1, func(b *onnxtest.Builder, x, y, _ *onnx.Value) []*onnx.Value {
		return one(b.Op("ScatterND", x, b.Constant(onnx.NewInt64s("i", []int64{0})),
			b.Op("Gather", y, 1), onnx.StringAttr("reduction", "add")))
	}},
	{"choices", 1, func(b *onnxtest.Builder, x, _, _ *onnx.Value) []*onnx.Value {
		return []*onnx.Value{b.Ops(2, "TopK", x, []int64{2})[0], b.Op("Sign", x), b.Op("ArgMax", x)}
	}},
	{"PRelu", 1, func(b *onnxtest.Builder, x, y, _ *onnx.Value) []*onnx.Value { return one(b.Op("PRelu", x, y)) }},
	{"PRelu by itself", 0, func(b *onnxtest.Builder, x, _, _ *onnx.Value) []*onnx.Value {
		return one(b.Op("PRelu", x, x))
	}},
	{"DequantizeLinear", 1, func(b *onnxtest.Builder, x, _, _ *onnx.Value) []*onnx.Value {
		codes := b.Constant(onnx.NewInt64s("codes", []int64{1, 2, 3, 4}))
		codes = b.Op("Cast", codes, onnx.IntAttr("to", int64(onnx.Int32)))
		return one(b.Op("Add", x, b.Op("DequantizeLinear", codes, 0.5)))
	}},
	{"MatMulNBits", 1, func(b *onnxtest.Builder, x, _, _ *onnx.Value) []*onnx.Value {
		codes, err := onnx.NewTensor("codes", onnx.Uint8, []int64{4, 1, 8}, []byte("abcdefghijklmnopqrstuvwxyzABCDEF"))
		if err != nil {
			panic(err)
		}
		made := b.Op("com.microsoft:MatMulNBits", b.Op("Tile", x, []int64{1, 4}), b.Constant(codes),
			b.Floats([]int64{4, 1}, 1, 2, 3, 4), nil, nil, b.Floats([]int64{4}, 1, 2, 3, 4), onnx.IntAttr("N", 4),
			onnx.IntAttr("K", 16), onnx.IntAttr("bits", 4), onnx.IntAttr("block_size", 16))
		return one(b.Op("Add", x, made))
	}},
	{"branches", 1, func(b *onnxtest.Builder, x, y, _ *onnx.Value) []*onnx.Value {
		cond := b.Op("Cast", 1, onnx.IntAttr("to", int64(onnx.Bool)))
		return one(b.Op("If", cond, body(b, "then_branch", func(b *onnxtest.Builder) { b.Output(b.Op("Add", x, y)) }),
			body(b, "else_branch", func(b *onnxtest.Builder) { b.Output(x) })))
	}},
	{"a branch with a constant", 0, func(b *onnxtest.Builder, x, _, _ *onnx.Value) []*onnx.Value {
		cond := b.Op("Cast", 1, onnx.IntAttr("to", int64(onnx.Bool)))
		return one(b.Op("If", cond, body(b, "then_branch", func(b *onnxtest.Builder) { b.Output(b.Op("Neg", x)) }),
			body(b, "else_branch", func(b *onnxtest.Builder) { b.Output(b.Floats([]int64{4}, 1, 2, 3, 4)) })))
	}},
	{"Loop", 1, func(b *onnxtest.Builder, x, y, _ *onnx.Value) []*onnx.Value {
		return b.Ops(2, "Loop", 2, nil, x, body(b, "body", func(b *onnxtest.Builder) {
			b.Input("i", onnx.Int64)
			b.Output(b.Op("Identity", b.Input("on", onnx.Bool)))
			next := b.Op("Add", b.Input("state", onnx.Float, 2, 4), y)
			b.Output(next)
			b.Output(b.Op("Mul", next, next))
		}))
	}},
	{"Scan", 2, func(b *onnxtest.Builder, x, y, _ *onnx.Value) []*onnx.Value {
		return b.Ops(2, "Scan", b.Op("Gather", x, 0), y, onnx.IntAttr("num_scan_inputs", 1),
			body(b, "body", func(b *onnxtest.Builder) {
				state, row := b.Input("state", onnx.Float, 4), b.Input("row", onnx.Float, 4)
				b.Output(b.Op("Neg", state))
				b.Output(b.Op("Mul", state, row))
			}))
	}},
	{"Softmax", 0, func(b *onnxtest.Builder, x, _, _ *onnx.Value) []*onnx.Value { return one(b.Op("Softmax", x)) }},
	{"Gelu", 0, func(b *onnxtest.Builder, x, _, _ *onnx.Value) []*onnx.Value { return one(b.Op("Gelu", x)) }},
}

func body(b *onnxtest.Builder, name string, build func(*onnxtest.Builder)) *onnx.Attribute {
	g := b.Graph.NewSubgraph(name)
	build(&onnxtest.Builder{Model: b.Model, Graph: g})
	return onnx.GraphAttr(name, g)
}

func one(v *onnx.Value) []*onnx.Value { return []*onnx.Value{v} }

// TestLaws evaluates every law without rounding. It must hold bit for bit.
func TestLaws(t *testing.T) {
	for _, c := range lawCases {
		t.Run(c.name, func(t *testing.T) {
			build := func() *onnx.Model {
				b := onnxtest.New(23)
				x, y := b.Input("x", onnx.Float, 2, 4), b.Input("y", onnx.Float, 2, 4)
				z := b.Input("z", onnx.Float, 4, 4)
				for _, v := range c.build(b, x, y, z) {
					b.Output(v)
				}
				return b.Model
			}
			r := rand.New(rand.NewPCG(1, 2))
			given := map[string]*reference.Tensor{}
			for _, v := range build().Graph.Inputs {
				typ, _ := v.Type()
				shape := []int{int(typ.Dims[0].Value), int(typ.Dims[1].Value)}
				numbers := make([]float64, shape[0]*shape[1])
				for i := range numbers {
					numbers[i] = float64(float32(r.NormFloat64()))
				}
				given[v.Name] = reference.NewFloats(onnx.Float, shape, numbers)
			}
			want := evaluate(t, build(), given)
			ways := 0
			for i := range streams.Laws(build(), -3) {
				m := build()
				law := streams.Laws(m, -3)[i]
				used, grown := false, map[string]*reference.Tensor{}
				for name, x := range given {
					e := law.Inputs[name]
					used = used || e != 0 && len(m.Graph.Value(name).Uses()) > 0
					grown[name] = times(x, e)
				}
				if err := law.Scale(); err != nil {
					t.Fatal(err)
				}
				if used {
					ways++
				}
				for j, got := range evaluate(t, m, grown) {
					name := m.Graph.Outputs[j].Name
					for k, y := range want[j].F {
						if w := math.Ldexp(y, law.Outputs[name]); got.F[k] != w {
							t.Fatalf("%+v: output %d has %g at %d, want %g", law, j, got.F[k], k, w)
						}
					}
				}
			}
			if ways != c.ways {
				t.Errorf("its inputs grow in %d ways, want %d", ways, c.ways)
			}
		})
	}
}

func times(x *reference.Tensor, exponent int) *reference.Tensor {
	made := make([]float64, len(x.F))
	for i, f := range x.F {
		made[i] = math.Ldexp(f, exponent)
	}
	return reference.NewFloats(x.DataType, x.Shape, made)
}

func evaluate(t *testing.T, m *onnx.Model, given map[string]*reference.Tensor) (list []*reference.Tensor) {
	t.Helper()
	e, err := reference.New(m, reference.Options{Exact: true})
	if err != nil {
		t.Fatal(err)
	}
	out, err := e.Run(given)
	if err != nil {
		t.Fatal(err)
	}
	for _, v := range m.Graph.Outputs {
		list = append(list, out[v.Name])
	}
	return list
}
