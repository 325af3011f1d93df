package convert

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/onnx/onnxtest"
	"github.com/mojo-patch/mojo-patch/reference"
	"github.com/mojo-patch/mojo-patch/reference/infer"
)

// computedIn lists the nodes of a converted model with the type that they compute in: 16 or 32 bits. Casts are listed
// by the type that they return, and integers are left out.
func computedIn(m *onnx.Model) string {
	facts, list := infer.Analyze(m), []string{}
	m.Graph.Walk(func(g *onnx.Graph) {
		for _, n := range g.Nodes {
			if n.Is("Constant") || n.Is("If") || n.Is("Loop") {
				continue
			}
			values := slices.Concat(n.Inputs, n.Outputs)
			if n.Is("Cast") {
				values = n.Outputs
			}
			at := slices.IndexFunc(values, func(v *onnx.Value) bool { return v != nil && facts.DataType(v).IsFloat() })
			if at >= 0 {
				list = append(list, fmt.Sprint(n.OpType, facts.DataType(values[at]).Bits()))
			}
		}
	})
	return strings.Join(list, " ")
}

type (
	builder = *onnxtest.Builder
	value   = *onnx.Value
)

// normed writes a norm without its weight.
func normed(b builder, x value) value {
	mean := b.Op("ReduceMean", b.Op("Pow", x, b.Floats(nil, 2)), b.Ints(-1))
	return b.Op("Mul", x, b.Op("Reciprocal", b.Op("Sqrt", b.Op("Add", mean, b.Floats(nil, 1e-5)))))
}

// weight returns a constant vector of numbers from 1 on.
func weight(b builder, n int) value {
	w := make([]float32, n)
	for i := range w {
		w[i] = 1 + float32(i)/16
	}
	return b.Floats([]int64{int64(n)}, w...)
}

// TestPrecisionOfNodes: each kind of node computes in the type that the documentation of Precision says.
func TestPrecisionOfNodes(t *testing.T) {
	axis := onnx.IntAttr("axis", -1)
	to := func(d onnx.DataType) *onnx.Attribute { return onnx.IntAttr("to", int64(d)) }
	matrix := func(b builder, n, k int) value {
		return b.Op("Reshape", weight(b, n*k), b.Ints(int64(n), int64(k)))
	}
	const norm = "Cast32 Pow32 ReduceMean32 Add32 Sqrt32 Reciprocal32 Mul32"
	positions := func(b builder) value { // as floats
		return b.Op("Cast", b.Input("ids", onnx.Int64, "n"), to(onnx.Float))
	}
	for name, c := range map[string]struct {
		build func(b builder, x value) value
		want  string
	}{
		"products, sums and gates": {func(b builder, x value) value {
			h := b.Op("MatMul", x, matrix(b, 4, 4))
			return b.Op("Add", x, b.Op("Mul", b.Op("Sigmoid", h), b.Op("Erf", h)))
		}, "Reshape16 MatMul16 Sigmoid16 Erf16 Mul16 Add16"},
		"a norm with the weight first": {func(b builder, x value) value {
			return b.Op("Mul", weight(b, 4), normed(b, x))
		}, norm + " Cast16 Mul16"},
		"a norm with the weight last": {func(b builder, x value) value {
			return b.Op("Mul", normed(b, x), weight(b, 4))
		}, norm + " Mul32 Cast16"},
		"a norm whose row is cast": {func(b builder, x value) value {
			return b.Op("Mul", b.Op("Cast", normed(b, x), to(onnx.Float)), weight(b, 4))
		}, norm + " Cast16 Mul16"},
		"a norm whose result is cast": {func(b builder, x value) value {
			return b.Op("Cast", b.Op("Mul", weight(b, 4), normed(b, x)), to(onnx.Float))
		}, norm + " Mul32 Cast16"},
		"a norm times a number": {func(b builder, x value) value {
			return b.Op("Mul", normed(b, x), b.Floats(nil, 2))
		}, norm + " Mul32 Cast16"},
		"a layer norm with a bias": {func(b builder, x value) value {
			d := b.Op("Sub", x, b.Op("ReduceMean", x, b.Ints(-1)))
			root := b.Op("Sqrt", b.Op("ReduceMean", b.Op("Mul", d, d), b.Ints(-1)))
			return b.Op("Add", b.Op("Mul", b.Op("Div", d, root), weight(b, 4)), weight(b, 4))
		}, "Cast32 ReduceMean32 Sub32 Mul32 ReduceMean32 Sqrt32 Div32 Mul32 Add32 Cast16"},
		"a norm of a gated value": {func(b builder, x value) value {
			h := b.Op("Mul", x, b.Op("Mul", x, b.Op("Sigmoid", x)))
			return b.Op("Mul", weight(b, 4), normed(b, h))
		}, "Cast32 Sigmoid32 Mul32 Mul32 Pow32 ReduceMean32 Add32 Sqrt32 Reciprocal32 Mul32 Cast16 Mul16"},
		"softmax of scores": {func(b builder, x value) value {
			return b.Op("MatMul", b.Op("Softmax", b.Op("Mul", x, b.Floats(nil, 0.5)), axis), matrix(b, 4, 4))
		}, "Mul16 Cast32 Softmax32 Cast16 Reshape16 MatMul16"},
		"a softmax written out": {func(b builder, x value) value {
			e := b.Op("Exp", b.Op("Sub", x, b.Op("ReduceMax", x, b.Ints(-1))))
			return b.Op("MatMul", b.Op("Div", e, b.Op("ReduceSum", e, b.Ints(-1))), matrix(b, 4, 4))
		}, "Cast32 ReduceMax32 Sub32 Exp32 ReduceSum32 Div32 Cast16 Reshape16 MatMul16"},
		"other sums": {func(b builder, x value) value {
			return b.Op("Add", b.Op("ReduceSum", x, b.Ints(0)), x)
		}, "Cast32 ReduceSum32 Cast16 Add16"},
		"a rotary table": {func(b builder, x value) value {
			angles := b.Op("Mul", b.Op("Unsqueeze", positions(b), b.Ints(1)), weight(b, 4))
			return b.Op("Mul", x, b.Op("Mul", b.Op("Cos", angles), b.Floats(nil, 1.1)))
		}, "Cast32 Unsqueeze32 Mul32 Cos32 Mul32 Cast16 Mul16"},
		"frequencies by a product": {func(b builder, x value) value {
			angles := b.Op("MatMul", b.Op("Unsqueeze", positions(b), b.Ints(1)), matrix(b, 1, 4))
			return b.Op("Mul", x, b.Op("Sin", angles))
		}, "Cast32 Unsqueeze32 Reshape32 MatMul32 Sin32 Cast16 Mul16"},
		"a mask by arithmetic": {func(b builder, x value) value {
			mask := b.Op("Mul", b.Op("Sub", b.Floats(nil, 1), positions(b)), b.Floats(nil, -1e4))
			return b.Op("Add", x, b.Op("Unsqueeze", mask, b.Ints(1)))
		}, "Cast32 Sub32 Mul32 Cast16 Unsqueeze16 Add16"},
		"a mask by a choice": {func(b builder, x value) value {
			seen := b.Op("Cast", b.Input("ids", onnx.Int64, "n", 1), to(onnx.Bool))
			return b.Op("Add", x, b.Op("Where", seen, b.Floats(nil, 0), b.Floats(nil, -1e4)))
		}, "Where16 Add16"},
		"a router and its experts": {func(b builder, x value) value {
			logits := b.Op("MatMul", x, matrix(b, 4, 4))
			top := b.Graph.AddNode("TopK", []value{b.Op("Softmax", logits, axis), b.Ints(1)},
				[]value{b.Graph.NewValue("weights"), b.Graph.NewValue("chosen")}, axis)
			b.Output(top.Outputs[1])
			return b.Op("Mul", b.Op("MatMul", x, matrix(b, 4, 4)), top.Outputs[0])
		}, "Reshape16 MatMul16 Cast32 Softmax32 TopK32 Reshape16 MatMul16 Cast32 Mul32 Cast16"},
		"scores below a choice": {func(b builder, x value) value {
			scores := b.Op("Add", b.Op("Sigmoid", x), weight(b, 4))
			return b.Op("ArgMax", scores, axis)
		}, "Cast32 Sigmoid32 Add32 ArgMax32"},
		"moved elements": {func(b builder, x value) value {
			both := b.Op("Concat", x, b.Op("Exp", x), axis)
			return b.Op("Transpose", b.Op("Reshape", both, b.Ints(-1, 8)))
		}, "Cast32 Exp32 Cast16 Concat16 Reshape16 Transpose16"},
		"a moved sum": {func(b builder, x value) value {
			return b.Op("Add", x, b.Op("Transpose", b.Op("Exp", b.Op("Transpose", x))))
		}, "Transpose16 Cast32 Exp32 Cast16 Transpose16 Add16"},
		"a comparison": {func(b builder, x value) value {
			return b.Op("Where", b.Op("Greater", x, b.Floats(nil, 0)), x, b.Op("Neg", x))
		}, "Greater16 Neg16 Where16"},
		"a shape": {func(b builder, x value) value {
			zeros := b.Op("ConstantOfShape", b.Op("Shape", b.Op("Exp", x)))
			return b.Op("Add", x, zeros)
		}, "Cast32 Exp32 Shape32 ConstantOfShape16 Add16"},
		"a scatter that adds": {func(b builder, x value) value {
			at := b.Input("at", onnx.Int64, "n", 4)
			return b.Op("ScatterElements", x, at, x, onnx.StringAttr("reduction", "add"))
		}, "Cast32 ScatterElements32 Cast16"},
		"a scatter": {func(b builder, x value) value {
			at := b.Input("at", onnx.Int64, "n", 4)
			return b.Op("ScatterElements", x, at, x)
		}, "ScatterElements16"},
		"an op without kernels": {func(b builder, x value) value {
			return b.Op("Mul", x, b.Op("Hardmax", b.Op("OneHot", b.Input("ids", onnx.Int64, "n"), b.Ints(4),
				b.Floats([]int64{2}, 0, 1)), axis))
		}, "Cast32 OneHot32 Cast16 Hardmax16 Mul16"},
	} {
		b := onnxtest.New(18)
		b.Output(c.build(b, b.Input("x", onnx.Float, "n", 4)))
		if _, err := Precision(b.Model, onnx.Float16); err != nil {
			t.Errorf("%s: %v", name, err)
		} else if got := computedIn(b.Model); got != c.want {
			t.Errorf("%s:\n%s, want\n%s", name, got, c.want)
		}
	}
}

// TestPrecisionOfProviders: a node computes in bfloat16 if the standard has its op in this type at the model's opset
// and each provider has a kernel.
func TestPrecisionOfProviders(t *testing.T) {
	concat := func(b builder, x value) value {
		return b.Op("MatMul", b.Op("Concat", x, x, onnx.IntAttr("axis", 0)), b.Op("Transpose", x))
	}
	clip := func(b builder, x value) value { // a product of the clipped rows
		return b.Op("MatMul", b.Op("Clip", x, b.Floats(nil, 0)), b.Op("Transpose", x))
	}
	for name, c := range map[string]struct {
		opset     int64
		providers []string
		build     func(b builder, x value) value
		want      string
	}{
		"both":    {17, nil, concat, "Concat16 Cast32 Transpose16 Cast32 MatMul32 Cast16"},
		"the CPU": {17, []string{"cpu"}, concat, "Concat16 Cast32 Transpose16 Cast32 MatMul32 Cast16"},
		"the GPU": {17, []string{"cuda"}, concat, "Concat16 Transpose16 MatMul16"},
		"the norm": {17, nil, func(b builder, x value) value {
			return b.Op("LayerNormalization", x, weight(b, 4))
		}, "LayerNormalization16"},
		"no kernel on the GPU": {17, []string{"cuda"}, clip, "Cast32 Clip32 Cast16 Transpose16 MatMul16"},
		"in float16":           {17, []string{"half"}, clip, "Clip16 Transpose16 MatMul16"},
		"before the standard's type": {15, []string{"cuda"}, func(b builder, x value) value {
			return b.Op("LeakyRelu", b.Op("Neg", x))
		}, "Neg16 Cast32 LeakyRelu32 Cast16"},
		"with the standard's type": {16, []string{"cuda"}, func(b builder, x value) value {
			return b.Op("LeakyRelu", b.Op("Neg", x))
		}, "Neg16 LeakyRelu16"},
		"never in the standard": {17, []string{"cuda"}, func(b builder, x value) value {
			return b.Op("MatMul", b.Op("Shrink", x), b.Op("Transpose", x))
		}, "Cast32 Shrink32 Cast16 Transpose16 MatMul16"},
		"another domain": {17, []string{"half"}, func(b builder, x value) value {
			return b.Op("MatMul", b.Op("com.microsoft:QuickGelu", x), b.Op("Transpose", x))
		}, "Cast32 QuickGelu32 Cast16 Transpose16 MatMul16"},
	} {
		b := onnxtest.New(c.opset)
		b.Output(c.build(b, b.Input("x", onnx.Float, "n", 4)))
		half := onnx.BFloat16
		if slices.Contains(c.providers, "half") {
			half, c.providers = onnx.Float16, nil
		}
		if _, err := Precision(b.Model, half, c.providers...); err != nil {
			t.Errorf("%s: %v", name, err)
		} else if got := computedIn(b.Model); got != c.want {
			t.Errorf("%s:\n%s, want\n%s", name, got, c.want)
		}
	}
}

// TestPrecisionOfBranches: an output of an If is float32 if every branch computes it so, and values that loops carry
// have the half type. Branches of bfloat16 need opset 16.
func TestPrecisionOfBranches(t *testing.T) {
	branch := func(b builder, write func(b builder) value) *onnx.Graph {
		g := b.Graph.NewSubgraph("branch")
		g.AddOutput(write(&onnxtest.Builder{Model: b.Model, Graph: g}))
		return g
	}
	build := func(opset int64, first, second func(b builder, x value) value) *onnx.Model {
		b := onnxtest.New(opset)
		x, c := b.Input("x", onnx.Float, "n", 4), b.Input("c", onnx.Bool)
		y := b.Op("If", c,
			onnx.GraphAttr("then_branch", branch(b, func(b builder) value { return first(b, x) })),
			onnx.GraphAttr("else_branch", branch(b, func(b builder) value { return second(b, x) })))
		b.Output(b.Op("Softmax", y, onnx.IntAttr("axis", -1)))
		return b.Model
	}
	sum := func(b builder, x value) value { return b.Op("Exp", x) }
	half := func(b builder, x value) value { return b.Op("Relu", x) }
	for name, c := range map[string]struct {
		first, second func(b builder, x value) value
		want          string
	}{
		"both in float32": {sum, sum, "Cast32 Softmax32 Cast16 Exp32 Exp32"},
		"one":             {half, sum, "Cast32 Cast32 Softmax32 Cast16 Relu16 Exp32 Cast16"},
		"the other":       {sum, half, "Cast32 Cast32 Softmax32 Cast16 Exp32 Cast16 Relu16"},
		"none":            {half, half, "Cast32 Softmax32 Cast16 Relu16 Relu16"},
	} {
		m := build(17, c.first, c.second)
		if _, err := Precision(m, onnx.Float16); err != nil {
			t.Errorf("%s: %v", name, err)
		} else if got := computedIn(m); got != c.want {
			t.Errorf("%s:\n%s, want\n%s", name, got, c.want)
		}
	}
	for opset, refused := range map[int64]bool{15: true, 16: false} {
		if _, err := Precision(build(opset, half, half), onnx.BFloat16); (err != nil) != refused {
			t.Errorf("branches of bfloat16 in opset %d: %v", opset, err)
		}
	}
}

// TestPrecisionExcept: nodes that the caller names stay in float32, and so do outputs that they compute.
func TestPrecisionExcept(t *testing.T) {
	b := onnxtest.New(17)
	x := b.Input("x", onnx.Float, "n", 4)
	product := b.Op("MatMul", x, b.Op("Transpose", x))
	last := b.Op("Relu", product)
	b.Output(last)
	b.Output(b.Op("MatMul", product, x))
	wide := map[*onnx.Node]bool{product.Producer: true, last.Producer: true}
	r, err := PrecisionExcept(b.Model, onnx.Float16, wide)
	if err != nil {
		t.Fatal(err)
	}
	const want = "Cast32 Transpose16 Cast32 MatMul32 Cast16 Relu32 MatMul16"
	if got := computedIn(b.Model); got != want {
		t.Errorf("%s, want %s", got, want)
	}
	for i, want := range []onnx.DataType{onnx.Float, onnx.Float16} {
		if d, _ := b.Graph.Outputs[i].Type(); infer.Analyze(b.Model).DataType(b.Graph.Outputs[i]) != want {
			t.Errorf("output %d is declared as %s, want %s", i, d.DataType, want)
		}
	}
	if r.Float32["MatMul"] != 1 || r.Float32["Relu"] != 1 || len(r.Float32) != 2 || r.Casts != 3 {
		t.Errorf("%+v", r)
	}
}

// TestPrecisionOfConstants: a constant that both types read is stored once in each type if it is small, and otherwise
// in the half type with a Cast.
func TestPrecisionOfConstants(t *testing.T) {
	for _, n := range []int{4, fewElements, fewElements + 1} {
		b := onnxtest.New(17)
		x := b.Input("x", onnx.Float, "n", n)
		numbers := slices.Repeat([]float32{1 + 0x1p-12}, n) // which float16 rounds to 1
		w := b.Graph.AddInitializer(onnx.NewFloat32s("w", []int64{int64(n)}, numbers))
		b.Output(b.Op("Mul", x, w))
		b.Output(b.Op("Mul", b.Op("LogSoftmax", x), b.Op("Exp", w)))
		r, err := Precision(b.Model, onnx.Float16)
		if err != nil {
			t.Fatal(err)
		}
		other := b.Graph.Value("w_float32")
		if w.Const.DataType != onnx.Float16 || r.Initializers != 1 || r.Values != int64(n) || other == nil ||
			(other.Const == nil) != (n > fewElements) || (r.Kept == 1) != (n <= fewElements) {
			t.Errorf("%d elements: %+v, in float32 %v", n, r, other)
			continue
		}
		first := func(v value) float32 {
			data, err := v.Const.Bytes()
			if err != nil {
				t.Fatal(err)
			}
			part, err := onnx.NewTensor("", v.Const.DataType, []int64{1}, data[:v.Const.DataType.Bits()/8])
			if err != nil {
				t.Fatal(err)
			}
			x, err := reference.FromONNX(part)
			if err != nil {
				t.Fatal(err)
			}
			return float32(x.F[0])
		}
		if got := first(w); got != 1 {
			t.Errorf("%v in float16", got)
		}
		if other.Const != nil {
			if got := first(other); got != 1+0x1p-12 {
				t.Errorf("%v in float32", got)
			}
		} else if !other.Producer.Is("Cast") || other.Producer.Input(0) != w {
			t.Errorf("float32 is computed by %s", other.Producer.Text())
		}
	}
}
