package hostile

import (
	"fmt"

	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/onnx/onnxtest"
)

// inside builds a graph in an attribute: add runs with b's Graph set to it.
func (b *builder) inside(name string, add func(body *onnx.Graph)) *onnx.Attribute {
	outer := b.Graph
	b.Graph = outer.NewSubgraph(name)
	defer func() { b.Graph = outer }()
	add(b.Graph)
	return onnx.GraphAttr(name, b.Graph)
}

// structures are wide graphs, graphs in graphs, and functions.
var structures = []Shape{
	{"readers", func(b *builder) { // of one value
		x := b.rows()
		for i := 0; b.more(1); i++ {
			b.Output(b.Op("Relu", x))
		}
	}},
	{"readers-constant", func(b *builder) {
		x := b.rows()
		for b.more(1) {
			x = b.Op("Max", x, b.number(1))
		}
		b.Output(x)
	}},
	parallel("branches-alike", 4, func(b *builder, x value, _ int) value {
		return b.Op("Mul", b.Op("Tanh", b.Op("Add", x, b.number(1))), b.Op("Exp", x))
	}),
	parallel("branches-different", 4, func(b *builder, x value, i int) value {
		ops := []string{"Tanh", "Exp", "Sigmoid", "Cos", "Sin", "Relu", "Neg", "Abs", "Erf", "Sqrt"}
		op := func(k int) string { return ops[i/k%len(ops)] }
		return b.Op("Mul", b.Op(op(1), b.Op(op(10), x)), b.Op(op(100), x))
	}),
	{"inputs-outputs", func(b *builder) {
		for i := 0; b.more(1); i++ {
			b.Output(b.Op("Exp", b.Input(fmt.Sprintf("x%d", i), onnx.Float, "batch", width)))
		}
	}},
	{"wide-Concat", func(b *builder) {
		x := b.rows()
		var list values
		for i := 0; b.more(2); i++ {
			list = append(list, b.Op("Mul", x, b.number(float64(i))))
		}
		b.Output(b.Op("Concat", list, last))
	}},
	{"wide-Concat-ids", func(b *builder) { // of as many parts of one value, which is then sliced
		x := b.rows()
		var list values
		for b.more(1 + b.nodes/2) {
			list = append(list, b.Op("Slice", x, []int64{0}, []int64{1}, []int64{2}))
		}
		all := b.Op("Concat", list, last)
		var parts values
		for i := int64(0); b.more(2); i++ {
			parts = append(parts, b.Op("Slice", all, []int64{i}, []int64{i + 1}, []int64{2}))
		}
		b.Output(b.Op("Concat", parts, last))
	}},
	{"wide-Split", func(b *builder) {
		x := b.Input("x", onnx.Float, "batch", b.nodes)
		parts := b.Ops(b.nodes, "Split", x, last, onnx.IntAttr("num_outputs", int64(b.nodes)))
		for i := range parts {
			parts[i] = b.Op("Exp", parts[i])
		}
		b.Output(b.Op("Concat", parts, last))
	}},
	{"stacked", func(b *builder) { // a Concat of shapes and a Reshape for each node
		x := b.rows()
		for b.more(3) {
			n := b.Op("Shape", x, onnx.IntAttr("start", 0), onnx.IntAttr("end", 2))
			x = b.Op("Reshape", x, b.Op("Concat", n, []int64{width}, onnx.IntAttr("axis", 0)))
		}
		b.Output(x)
	}},
	{"body-If", func(b *builder) { b.branches(b.Graph, 1) }},
	{"bodies-If", func(b *builder) { b.branches(b.Graph, max(1, b.nodes/10)) }},
	{"nested-If", func(b *builder) {
		x := b.rows()
		cond := b.Op("Greater", b.Op("ReduceMax", x, onnx.IntAttr("keepdims", 0)), b.number(0))
		depth := 0
		var branch func() value
		branch = func() value {
			y := b.Op("Exp", x)
			if depth++; depth > min(b.nodes/3, 80) {
				return y
			}
			return b.Op("If", cond, b.inside("then_branch", func(g *onnx.Graph) { g.AddOutput(branch()) }),
				b.inside("else_branch", func(g *onnx.Graph) { g.AddOutput(b.Op("Neg", y)) }))
		}
		b.Output(branch())
	}},
	{"body-Loop", func(b *builder) {
		x := b.rows()
		body := b.inside("body", func(g *onnx.Graph) {
			g.AddInput("i", onnxtest.Type(onnx.Int64))
			cond := g.AddInput("cond", onnxtest.Type(onnx.Bool))
			y := g.AddInput("y", onnxtest.Type(onnx.Float, "batch", "seq", width))
			g.AddOutput(b.Op("Identity", cond))
			for i := 0; len(g.Nodes) < b.nodes; i++ {
				y = b.Op("Exp", b.Op("Mul", y, b.number(float64(i%5))))
			}
			g.AddOutput(y)
		})
		b.Output(b.Op("Loop", 3, b.Constant(must(onnx.NewTensor("yes", onnx.Bool, []int64{}, []byte{1}))), x, body))
	}},
	{"body-Scan", func(b *builder) {
		x := b.rows()
		body := b.inside("body", func(g *onnx.Graph) {
			state := g.AddInput("state", onnxtest.Type(onnx.Float, "seq", width))
			y := g.AddInput("y", onnxtest.Type(onnx.Float, "seq", width))
			for i := 0; len(g.Nodes) < b.nodes; i++ {
				y = b.Op("Exp", b.Op("Mul", y, b.number(float64(i%5))))
			}
			g.AddOutput(b.Op("Add", state, y))
			g.AddOutput(b.Op("Neg", y))
		})
		start := b.Op("ReduceSum", x, []int64{0}, onnx.IntAttr("keepdims", 0))
		out := b.Ops(2, "Scan", start, x, body, onnx.IntAttr("num_scan_inputs", 1))
		b.Output(out[1])
	}},
	{"functions-chain", func(b *builder) { b.functions(max(1, b.nodes/4), 1) }},
	{"functions-doubling", func(b *builder) { b.functions(max(1, b.nodes/4), 2) }},
	{"functions-flat", func(b *builder) { // all called by the graph
		x := b.rows()
		for i := 0; b.more(4); i += 4 {
			f := onnx.NewFunction("local", fmt.Sprintf("f%d", i), "", 20)
			inner := &onnxtest.Builder{Graph: f.Body}
			y := f.Body.AddInput("x", onnx.Type{})
			f.Body.AddOutput(inner.Op("Mul", y, inner.Op("Sigmoid", inner.Op("Exp", y))))
			b.Model.Functions = append(b.Model.Functions, f)
			if x = b.Op("local:"+f.Name, x); i > b.nodes/4*3 {
				break
			}
		}
		b.Model.ImportOpset("local", 1)
		b.Output(x)
	}},
	{"function-calls", func(b *builder) { // of one function
		f := onnx.NewFunction("local", "f", "", 20)
		inner := &onnxtest.Builder{Graph: f.Body}
		y := f.Body.AddInput("x", onnx.Type{})
		f.Body.AddOutput(inner.Op("Mul", y, inner.Op("Sigmoid", inner.Op("Exp", y))))
		b.Model.Functions = append(b.Model.Functions, f)
		b.Model.ImportOpset("local", 1)
		x := b.rows()
		for b.more(1) {
			x = b.Op("local:f", x)
		}
		b.Output(x)
	}},
}

// branches adds count If nodes, whose branches have b.nodes nodes together.
func (b *builder) branches(g *onnx.Graph, count int) {
	x := b.rows()
	for range count {
		cond := b.Op("Greater", b.Op("ReduceMax", x, onnx.IntAttr("keepdims", 0)), b.number(0))
		branch := func(name, op string) *onnx.Attribute {
			return b.inside(name, func(g *onnx.Graph) {
				y := x
				for i := 0; len(g.Nodes) < max(2, b.nodes/count/2); i++ {
					y = b.Op(op, b.Op("Mul", y, b.number(float64(i%5))))
				}
				g.AddOutput(y)
			})
		}
		x = b.Op("If", cond, branch("then_branch", "Exp"), branch("else_branch", "Sigmoid"))
	}
	b.Output(x)
}

// functions makes a chain of functions, each of which calls the next one calls times.
func (b *builder) functions(count, calls int) {
	for i := range count {
		f := onnx.NewFunction("local", fmt.Sprintf("f%d", i), "", 20)
		inner := &onnxtest.Builder{Graph: f.Body}
		y := f.Body.AddInput("x", onnx.Type{})
		y = inner.Op("Mul", y, inner.Op("Sigmoid", inner.Op("Exp", y)))
		for range calls {
			if i+1 < count {
				y = inner.Op(fmt.Sprintf("local:f%d", i+1), y)
			}
		}
		f.Body.AddOutput(y)
		f.Opsets = append(f.Opsets, onnx.Opset{Domain: "local", Version: 1})
		b.Model.Functions = append(b.Model.Functions, f)
	}
	b.Model.ImportOpset("local", 1)
	b.Output(b.Op("local:f0", b.rows()))
}
