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

// laws is a model of three inputs: x and y of 2 x 4, z of 4 x 4.
type laws struct {
	*onnxtest.Builder
	x, y, z *onnx.Value
}

// out makes values the outputs.
func (c *laws) out(list ...*onnx.Value) {
	for _, v := range list {
		c.Output(v)
	}
}

// lawCases build models. ways is the number of independent ways in which the values can grow.
var lawCases = []struct {
	name  string
	ways  int
	build func(c *laws)
}{
	{"Add", 1, func(c *laws) { c.out(c.Op("Add", c.x, c.y)) }},
	{"Add of a constant", 1, func(c *laws) { c.out(c.Op("Add", c.x, 3.0)) }},
	{"Mul", 2, func(c *laws) { c.out(c.Op("Mul", c.x, c.y)) }},
	{"square", 1, func(c *laws) { c.out(c.Op("Mul", c.x, c.x)) }},
	{"Div", 2, func(c *laws) { c.out(c.Op("Div", c.x, c.y)) }},
	{"MatMul", 2, func(c *laws) { c.out(c.Op("MatMul", c.x, c.z)) }},
	{"Gemm", 2, func(c *laws) {
		c.out(c.Op("Gemm", c.x, c.z, c.Floats([]int64{4}, 1, 2, 3, 4), onnx.FloatAttr("alpha", 0.5)))
	}},
	{"Einsum", 2, func(c *laws) { c.out(c.Op("Einsum", c.x, c.z, onnx.StringAttr("equation", "ij,jk->ik"))) }},
	{"powers", 1, func(c *laws) {
		c.out(c.Op("Pow", c.x, 3.0), c.Op("Pow", c.Op("Abs", c.x), 0.5), c.Op("Pow", c.x, -2.0),
			c.Op("Pow", c.Op("Abs", c.x), -0.5), c.Op("Sqrt", c.Op("Abs", c.x)), c.Op("Reciprocal", c.x))
	}},
	{"another power", 0, func(c *laws) { c.out(c.Op("Pow", c.Op("Abs", c.x), 1.3)) }},
	{"sums", 1, func(c *laws) {
		c.out(c.Op("ReduceMean", c.x, []int64{-1}), c.Op("ReduceSumSquare", c.x, []int64{-1}),
			c.Op("ReduceL2", c.x, []int64{-1}), c.Op("CumSum", c.x, 1), c.Op("ReduceMax", c.x, []int64{0}))
	}},
	{"RMSNorm", 2, func(c *laws) {
		mean := c.Op("ReduceMean", c.Op("Pow", c.x, 2.0), []int64{-1}, onnx.IntAttr("keepdims", 1))
		c.out(c.Op("Mul", c.Op("Div", c.x, c.Op("Sqrt", c.Op("Add", mean, 0.1))), c.y))
	}},
	{"RMSNormalization", 1, func(c *laws) {
		c.out(c.Op("RMSNormalization", c.x, c.Floats([]int64{4}, 1, 2, 3, 4), onnx.FloatAttr("epsilon", 0.1)))
	}},
	{"LayerNormalization", 1, func(c *laws) {
		c.out(c.Ops(3, "LayerNormalization", c.x, c.Floats([]int64{4}, 1, 2, 3, 4), c.Floats([]int64{4}, 1, 2, 3, 4),
			onnx.FloatAttr("epsilon", 0.1))...)
	}},
	{"InstanceNormalization", 1, func(c *laws) {
		wide := c.Op("Unsqueeze", c.x, []int64{0})
		c.out(c.Op("InstanceNormalization", wide, c.Floats([]int64{2}, 1, 2), c.Floats([]int64{2}, 1, 2),
			onnx.FloatAttr("epsilon", 0.125)))
	}},
	{"skip norm", 1, func(c *laws) {
		made := []*onnx.Value{c.Graph.NewValue("normed"), nil, nil, c.Graph.NewValue("sum")}
		n := c.Graph.AddNode("SkipSimplifiedLayerNormalization", []*onnx.Value{c.Op("Unsqueeze", c.x, []int64{0}),
			c.Op("Unsqueeze", c.y, []int64{0}), c.Floats([]int64{4}, 1, 2, 3, 4)}, made, onnx.FloatAttr("epsilon", 0.1))
		n.Domain = "com.microsoft"
		c.out(made[0], made[3])
	}},
	{"SiLU", 1, func(c *laws) { c.out(c.Op("Mul", c.Op("Mul", c.x, c.Op("Sigmoid", c.x)), c.y)) }},
	{"sigmoid of a multiple", 1, func(c *laws) { c.out(c.Op("Mul", c.x, c.Op("Sigmoid", c.Op("Mul", c.x, 1.702)))) }},
	{"soft cap", 1, func(c *laws) { c.out(c.Op("Mul", c.Op("Tanh", c.Op("Div", c.x, 30.0)), 30.0)) }},
	{"Relu and clamps", 1, func(c *laws) {
		c.out(c.Op("Relu", c.x), c.Op("Clip", c.x, -0.5, 0.25), c.Op("Max", c.x, 0.125), c.Op("Neg", c.x))
	}},
	{"moves", 1, func(c *laws) {
		c.out(c.Op("Transpose", c.x), c.Op("Concat", c.x, c.y, onnx.IntAttr("axis", 0)),
			c.Op("Reshape", c.x, []int64{-1}), c.Op("Pad", c.x, []int64{0, 1, 0, 1}, 2.0),
			c.Op("Where", c.Op("Greater", c.x, c.y), c.x, -1.0), c.Op("Gather", c.x, []int64{1}))
	}},
	{"scatter", 1, func(c *laws) {
		c.out(c.Op("ScatterND", c.x, c.Constant(onnx.NewInt64s("i", []int64{0})),
			c.Op("Gather", c.y, 1), onnx.StringAttr("reduction", "add")))
	}},
	{"choices", 1, func(c *laws) {
		c.out(c.Ops(2, "TopK", c.x, []int64{2})[0], c.Op("Sign", c.x), c.Op("ArgMax", c.x))
	}},
	{"PRelu", 1, func(c *laws) { c.out(c.Op("PRelu", c.x, c.y)) }},
	{"PRelu by itself", 0, func(c *laws) { c.out(c.Op("PRelu", c.x, c.x)) }},
	{"DequantizeLinear", 1, func(c *laws) {
		codes := c.Constant(onnx.NewInt64s("codes", []int64{1, 2, 3, 4}))
		codes = c.Op("Cast", codes, onnx.IntAttr("to", int64(onnx.Int32)))
		c.out(c.Op("Add", c.x, c.Op("DequantizeLinear", codes, 0.5)))
	}},
	{"MatMulNBits", 1, func(c *laws) {
		codes, err := onnx.NewTensor("codes", onnx.Uint8, []int64{4, 1, 8}, []byte("abcdefghijklmnopqrstuvwxyzABCDEF"))
		if err != nil {
			panic(err)
		}
		made := c.Op("com.microsoft:MatMulNBits", c.Op("Tile", c.x, []int64{1, 4}), c.Constant(codes),
			c.Floats([]int64{4, 1}, 1, 2, 3, 4), nil, nil, c.Floats([]int64{4}, 1, 2, 3, 4), onnx.IntAttr("N", 4),
			onnx.IntAttr("K", 16), onnx.IntAttr("bits", 4), onnx.IntAttr("block_size", 16))
		c.out(c.Op("Add", c.x, made))
	}},
	{"experts", 2, func(c *laws) { c.experts("MoE", "relu") }},
	{"gated experts", 2, func(c *laws) { c.experts("MoE", "silu") }},
	{"quantized experts", 2, func(c *laws) { c.experts("QMoE", "relu") }},
	{"gated quantized experts", 2, func(c *laws) { c.experts("QMoE", "swiglu") }},
	{"branches", 1, func(c *laws) {
		cond := c.Op("Cast", 1, onnx.IntAttr("to", int64(onnx.Bool)))
		c.out(c.Op("If", cond,
			body(c.Builder, "then_branch", func(b *onnxtest.Builder) { b.Output(b.Op("Add", c.x, c.y)) }),
			body(c.Builder, "else_branch", func(b *onnxtest.Builder) { b.Output(c.x) })))
	}},
	{"a branch with a constant", 0, func(c *laws) {
		cond := c.Op("Cast", 1, onnx.IntAttr("to", int64(onnx.Bool)))
		c.out(c.Op("If", cond, body(c.Builder, "then_branch", func(b *onnxtest.Builder) { b.Output(b.Op("Neg", c.x)) }),
			body(c.Builder, "else_branch", func(b *onnxtest.Builder) { b.Output(b.Floats([]int64{4}, 1, 2, 3, 4)) })))
	}},
	{"Loop", 1, func(c *laws) {
		c.out(c.Ops(2, "Loop", 2, nil, c.x, body(c.Builder, "body", func(b *onnxtest.Builder) {
			b.Input("i", onnx.Int64)
			b.Output(b.Op("Identity", b.Input("on", onnx.Bool)))
			next := b.Op("Add", b.Input("state", onnx.Float, 2, 4), c.y)
			b.Output(next)
			b.Output(b.Op("Mul", next, next))
		}))...)
	}},
	{"Scan", 2, func(c *laws) {
		c.out(c.Ops(2, "Scan", c.Op("Gather", c.x, 0), c.y, onnx.IntAttr("num_scan_inputs", 1),
			body(c.Builder, "body", func(b *onnxtest.Builder) {
				state, row := b.Input("state", onnx.Float, 4), b.Input("row", onnx.Float, 4)
				b.Output(b.Op("Neg", state))
				b.Output(b.Op("Mul", state, row))
			}))...)
	}},
	{"casts", 1, func(c *laws) {
		c.out(c.Op("CastLike", c.Op("Cast", c.x, onnx.IntAttr("to", int64(onnx.Double))), c.Floats(nil, 1)))
	}},
	{"Cast to integers", 0, func(c *laws) { c.out(c.Op("Cast", c.x, onnx.IntAttr("to", int64(onnx.Int32)))) }},
	{"scattered products", 0, func(c *laws) {
		c.out(c.Op("ScatterND", c.x, c.Constant(onnx.NewInt64s("i", []int64{0})),
			c.Op("Gather", c.y, 1), onnx.StringAttr("reduction", "mul")))
	}},
	{"LpNormalization", 1, func(c *laws) { c.out(c.Op("LpNormalization", c.x)) }},
	{"zeros", 1, func(c *laws) { c.out(c.Op("Add", c.x, c.Op("ConstantOfShape", []int64{2, 4}))) }},
	{"twos", 0, func(c *laws) {
		c.out(c.Op("Add", c.x, c.Op("ConstantOfShape", []int64{2, 4},
			onnx.TensorAttr("value", onnx.NewFloat32s("", []int64{1}, []float32{2})))))
	}},
	{"a power for each element", 0, func(c *laws) { c.out(c.Op("Pow", c.Op("Abs", c.x), c.y)) }},
	{"Conv", 2, func(c *laws) {
		c.out(c.Op("Conv", c.Op("Unsqueeze", c.x, []int64{0}), c.Op("Reshape", c.z, []int64{8, 2, 1})))
	}},
	{"SkipLayerNormalization", 1, func(c *laws) {
		made := []*onnx.Value{c.Graph.NewValue("normed"), nil, nil, c.Graph.NewValue("sum")}
		w := c.Floats([]int64{4}, 1, 2, 3, 4)
		c.Graph.AddNode("SkipLayerNormalization", []*onnx.Value{c.Op("Unsqueeze", c.x, []int64{0}),
			c.Op("Unsqueeze", c.y, []int64{0}), w, c.Floats([]int64{4}, 2, 1, 2, 1), c.Floats([]int64{4}, 1, 1, 3, 1)},
			made, onnx.FloatAttr("epsilon", 0.1)).Domain = "com.microsoft"
		c.out(made[0], made[3])
	}},
	{"onnxruntime's RotaryEmbedding", 1, func(c *laws) {
		c.out(c.Op("com.microsoft:RotaryEmbedding", c.Op("Unsqueeze", c.x, []int64{0}), []int64{0},
			c.Floats([]int64{2, 2}, 1, 1, 0.5, 0.25), c.Floats([]int64{2, 2}, 0, 0, 0.75, 0.5)))
	}},
	{"a branch with zeros", 1, func(c *laws) {
		cond := c.Op("Cast", 1, onnx.IntAttr("to", int64(onnx.Bool)))
		c.out(c.Op("If", cond, body(c.Builder, "then_branch", func(b *onnxtest.Builder) { b.Output(b.Op("Neg", c.x)) }),
			body(c.Builder, "else_branch", func(b *onnxtest.Builder) { b.Output(b.Floats([]int64{4}, 0, 0, 0, 0)) })))
	}},
	{"Softmax", 0, func(c *laws) { c.out(c.Op("Softmax", c.x)) }},
	{"Gelu", 0, func(c *laws) { c.out(c.Op("Gelu", c.x)) }},
}

// experts adds onnxruntime's experts of x to y. The router reads y.
func (c *laws) experts(op, activation string) {
	d, wide := decoder{c.Builder, rand.New(rand.NewPCG(5, 6))}, []int64{1, width / 4}
	made := d.experts(op, activation, c.Op("Tile", c.x, wide), c.Op("MatMul", c.y, d.weight(1, 4, 4)), 1)
	c.out(c.Op("Add", c.Op("Tile", c.y, wide), made))
}

func body(b *onnxtest.Builder, name string, build func(*onnxtest.Builder)) *onnx.Attribute {
	g := b.Graph.NewSubgraph(name)
	build(&onnxtest.Builder{Model: b.Model, Graph: g})
	return onnx.GraphAttr(name, g)
}

// TestLaws evaluates every law without rounding. It must hold bit for bit.
func TestLaws(t *testing.T) {
	for _, c := range lawCases {
		t.Run(c.name, func(t *testing.T) {
			build := func() *onnx.Model {
				b := onnxtest.New(23)
				c.build(&laws{b, b.Input("x", onnx.Float, 2, 4), b.Input("y", onnx.Float, 2, 4),
					b.Input("z", onnx.Float, 4, 4)})
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
			if ways := hold(t, build, given); ways != c.ways {
				t.Errorf("its inputs grow in %d ways, want %d", ways, c.ways)
			}
		})
	}
}

// hold checks the laws of a model, and returns the number of independent ways in which its inputs grow.
func hold(t *testing.T, build func() *onnx.Model, given map[string]*reference.Tensor) (ways int) {
	t.Helper()
	want := evaluate(t, build(), given)
	for i := range streams.Laws(build(), -3) {
		m := build()
		law := streams.Laws(m, -3)[i]
		used, grown := false, map[string]*reference.Tensor{}
		for name, x := range given {
			grown[name] = x
			if e := law.Inputs[name]; e != 0 {
				used = used || len(m.Graph.Value(name).Uses()) > 0
				grown[name] = times(x, e)
			}
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
	return ways
}

func times(x *reference.Tensor, exponent int) *reference.Tensor {
	made := make([]float64, len(x.F))
	for i, f := range x.F {
		made[i] = math.Ldexp(f, exponent)
	}
	return reference.NewFloats(x.DataType, x.Shape, made)
}

func evaluate(t *testing.T, m *onnx.Model, given map[string]*reference.Tensor) []*reference.Tensor {
	t.Helper()
	list, err := evaluated(m, given)
	if err != nil {
		t.Fatal(err)
	}
	return list
}

// evaluated returns the outputs of a model without rounding.
func evaluated(m *onnx.Model, given map[string]*reference.Tensor) (list []*reference.Tensor, err error) {
	e, err := reference.New(m, reference.Options{Exact: true})
	if err != nil {
		return nil, err
	}
	out, err := e.Run(given)
	for _, v := range m.Graph.Outputs {
		list = append(list, out[v.Name])
	}
	return list, err
}
