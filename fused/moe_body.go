package fused

import (
	"math"

	"github.com/mojo-patch/mojo-patch/onnx"
)

func moeBody(b *body, s Site) []*onnx.Value {
	attrs := Read[MoE](s.Attributes)
	return b.mixture(s, func(b *body, x *onnx.Value, w map[int]*onnx.Value) *onnx.Value {
		h := b.product("h", x, w[MoEGateUp], w[MoEGateUpBias], attrs.GateUpLayout)
		return b.product("y", b.between(s, h), w[MoEDown], w[MoEDownBias], attrs.DownLayout)
	})
}

// mixture scans the experts. Each iteration reads the weights of one expert in place, and an If skips an expert without
// tokens. So the memory for weights grows by at most copies of one expert, and only if they must be widened. The
// function expert computes one expert's rows from x and from its tensors, by the indices of the op's inputs.
func (b *body) mixture(s Site, expert func(b *body, x *onnx.Value, w map[int]*onnx.Value) *onnx.Value) []*onnx.Value {
	tokens, shape := b.rows("tokens", b.in[MoEX])
	tokens = b.float32("tokens_32", tokens)
	ids, _ := b.rows("choices", b.in[MoEIDs])
	gates, _ := b.rows("gates", b.in[MoEWeights])
	gates = b.float32("gates_32", gates)
	experts := b.call("experts", "Slice", b.call("gate_up_shape", "Shape", b.in[MoEGateUp]), b.integers("first", 0),
		b.integers("second", 1))
	zeros := b.op("zeros", "ConstantOfShape", []*onnx.Value{b.call("tokens_shape", "Shape", tokens)})

	step := b.g.NewSubgraph("step")
	run, skip := step.NewSubgraph("run"), step.NewSubgraph("skip")
	scanned := []*onnx.Value{zeros, b.chosenExperts(ids, experts), b.numbers(experts)}
	// The types are declared because onnxruntime rejects a Scan if it cannot infer the rank of its results.
	rows := onnx.Type{DataType: onnx.Float, HasShape: true, Dims: []onnx.Dim{{Value: -1}, {Value: -1}}}
	sum, isChosen := step.AddInput("sum", rows), step.AddInput("is_chosen", onnx.Type{})
	number := step.AddInput("expert", onnx.Type{})
	one := map[int]*onnx.Value{} // the tensors of one expert, by index of the op's input
	for i := MoEGateUp; i < len(b.in); i++ {
		name := "expert_" + b.in[i].Name
		switch {
		case !s.has(i):
		case moeScans(s):
			scanned = append(scanned, b.in[i])
			one[i] = step.AddInput(name, onnx.Type{})
		default:
			one[i] = b.within(run).op(name, "Gather", []*onnx.Value{b.in[i], number}, onnx.IntAttr("axis", 0))
		}
	}
	declare := func(g *onnx.Graph, v *onnx.Value) {
		v.SetType(rows)
		g.AddOutput(v)
	}
	declare(run, b.within(run).addExpert(sum, number, tokens, ids, gates, func(b *body, x *onnx.Value) *onnx.Value {
		return expert(b, x, one)
	}))
	declare(skip, b.within(skip).call("unchanged", "Identity", sum))
	declare(step, b.within(step).op("next", "If", []*onnx.Value{isChosen}, onnx.GraphAttr("then_branch", run),
		onnx.GraphAttr("else_branch", skip)))
	total := b.op("total", "Scan", scanned, onnx.GraphAttr("body", step),
		onnx.IntAttr("num_scan_inputs", int64(len(scanned)-1)))
	return []*onnx.Value{b.round("Y", b.call("shaped", "Reshape", total, shape), MoEX)}
}

// moeScans reports whether the Scan can read the experts' tensors directly. Otherwise they are gathered, which copies
// them.
func moeScans(s Site) bool {
	return s.Opset >= scanBFloatOpset || s.Types[MoEGateUp] != onnx.BFloat16
}

// rows returns v as a matrix whose rows are its last dimension, and the shape of v.
func (b *body) rows(name string, v *onnx.Value) (matrix, shape *onnx.Value) {
	shape = b.call(name+"_from", "Shape", v)
	width := b.call(name+"_width", "Slice", shape, b.integers("last", -1), b.integers("end", math.MaxInt64))
	to := b.op(name+"_to", "Concat", []*onnx.Value{b.integers("any", -1), width}, onnx.IntAttr("axis", 0))
	return b.call(name, "Reshape", v, to), shape
}

// chosenExperts returns a bool for each expert: whether a token goes to it.
func (b *body) chosenExperts(ids, experts *onnx.Value) *onnx.Value {
	flat := b.call("all_choices", "Reshape", ids, b.integers("any", -1))
	none := b.op("none_chosen", "ConstantOfShape", []*onnx.Value{experts})
	one := onnx.TensorAttr("value", onnx.NewFloat32s("", []int64{1}, []float32{1}))
	ones := b.op("ones", "ConstantOfShape", []*onnx.Value{b.call("choices_count", "Shape", flat)}, one)
	marked := b.op("marked", "ScatterElements", []*onnx.Value{none, flat, ones}, onnx.IntAttr("axis", 0))
	return b.op("chosen", "Cast", []*onnx.Value{marked}, onnx.IntAttr("to", int64(onnx.Bool)))
}

// numbers returns 0, ..., n-1; n is a vector of one.
func (b *body) numbers(n *onnx.Value) *onnx.Value {
	zero, one := b.constant("zero", onnx.IntAttr("value_int", 0)), b.constant("one", onnx.IntAttr("value_int", 1))
	return b.call("numbers", "Range", zero, b.call("count", "Squeeze", n), one)
}

// addExpert adds the weighted results of expert number to sum, in the rows of the expert's tokens.
func (b *body) addExpert(sum, number, tokens, ids, gates *onnx.Value,
	expert func(b *body, x *onnx.Value) *onnx.Value) *onnx.Value {
	last := b.integers("last", -1)
	mine := b.call("mine", "Equal", ids, number)
	// A token may choose the expert twice. Its weights are summed, so that every row of sum is written once.
	gate := b.op("gate_of_token", "ReduceSum",
		[]*onnx.Value{b.call("my_gates", "Where", mine, gates, b.number("no_gate", 0)), last},
		onnx.IntAttr("keepdims", 1))
	times := b.op("times", "ReduceSum",
		[]*onnx.Value{b.op("mine_32", "Cast", []*onnx.Value{mine}, onnx.IntAttr("to", int64(onnx.Float))),
			last}, onnx.IntAttr("keepdims", 0))
	at := b.call("rows", "Squeeze", b.call("rows_matrix", "NonZero", times), b.integers("front", 0))
	y := expert(b, b.op("x", "Gather", []*onnx.Value{tokens, at}, onnx.IntAttr("axis", 0)))
	y = b.call("weighted", "Mul", y, b.op("row_gates", "Gather", []*onnx.Value{gate, at}, onnx.IntAttr("axis", 0)))
	y = b.call("added", "Add", b.op("before", "Gather", []*onnx.Value{sum, at}, onnx.IntAttr("axis", 0)), y)
	return b.call("sum_after", "ScatterND", sum, b.call("places", "Unsqueeze", at, last), y)
}

// product multiplies x by an expert's matrix and adds its bias, if there is one.
func (b *body) product(name string, x, w, bias *onnx.Value, layout string) *onnx.Value {
	in := []*onnx.Value{x, b.float32(name+"_matrix", w)}
	if bias != nil {
		in = append(in, b.float32(name+"_bias", bias))
	}
	trans := int64(0)
	if layout == layoutOutIn {
		trans = 1
	}
	return b.op(name, "Gemm", in, onnx.IntAttr("transB", trans))
}

// MoEUnit returns a function with the part of MoE's definition between its two products: from h [..., 2I], or [..., I]
// with packing=none, to a [..., I]. It takes MoE's attributes.
func MoEUnit(attributes []*onnx.Attribute, opset int64) *onnx.Function {
	s := Site{Attributes: attributes, Types: []onnx.DataType{onnx.Float}, Opset: opset}
	f := onnx.NewFunction(Domain, "MoEUnit", "", opset)
	b := &body{root: f.Body, g: f.Body, site: s}
	f.Body.AddOutput(b.between(s, f.Body.AddInput("h", onnx.Type{})))
	return f
}

// between computes the part between the two products.
func (b *body) between(s Site, h *onnx.Value) *onnx.Value {
	attrs := Read[MoE](s.Attributes)
	var g, u *onnx.Value
	switch attrs.Packing {
	case packNone:
		return b.activated(s, h)
	case packHalves:
		g, u = b.pairs("gate", "up", h, layoutHalves)
	default:
		g, u = b.pairs("gate", "up", h, layoutInterleaved)
	}
	g, u = b.limited(s, g, u)
	a := b.activated(s, g)
	if attrs.UpOffset != 0 {
		u = b.call("up_shifted", "Add", u, b.attribute("up_offset"))
	}
	return b.call("a", "Mul", a, u)
}
