package moe

import (
	"math"

	"github.com/mojo-patch/mojo-patch/fused/glu"
	"github.com/mojo-patch/mojo-patch/fused/op"
	"github.com/mojo-patch/mojo-patch/onnx"
)

func moeBody(b *op.Body, s op.Site) []*onnx.Value {
	attrs := op.Read[MoE](s.Attributes)
	return Mixture(b, s, func(b *op.Body, x *onnx.Value, w map[int]*onnx.Value) *onnx.Value {
		h := expertProduct(b, "h", x, w[MoEGateUp], w[MoEGateUpBias], attrs.GateUpLayout)
		return expertProduct(b, "y", Between(b, s, h), w[MoEDown], w[MoEDownBias], attrs.DownLayout)
	})
}

// Mixture scans the experts. Each iteration reads the weights of one expert in place, and an If skips an expert without
// tokens. So the memory for weights grows by at most copies of one expert, and only if they must be widened. The
// function expert computes one expert's rows from x and from its tensors, by the indices of the op's inputs.
func Mixture(b *op.Body, s op.Site, expert func(b *op.Body, x *onnx.Value,
	w map[int]*onnx.Value) *onnx.Value) []*onnx.Value {
	tokens, shape := b.Rows("tokens", b.In[MoEX])
	tokens = b.Float32("tokens_32", tokens)
	ids, _ := b.Rows("choices", b.In[MoEIDs])
	gates, _ := b.Rows("gates", b.In[MoEWeights])
	gates = b.Float32("gates_32", gates)
	experts := b.Call("experts", "Slice", b.Call("gate_up_shape", "Shape", b.In[MoEGateUp]), b.Integers("first", 0),
		b.Integers("second", 1))
	zeros := b.Op("zeros", "ConstantOfShape", []*onnx.Value{b.Call("tokens_shape", "Shape", tokens)})

	step := b.Graph.NewSubgraph("step")
	run, skip := step.NewSubgraph("run"), step.NewSubgraph("skip")
	scanned := []*onnx.Value{zeros, chosenExperts(b, ids, experts), numbersTo(b, experts)}
	// The types are declared because onnxruntime rejects a Scan if it cannot infer the rank of its results.
	rows := onnx.Type{DataType: onnx.Float, HasShape: true, Dims: []onnx.Dim{{Value: -1}, {Value: -1}}}
	sum, isChosen := step.AddInput("sum", rows), step.AddInput("is_chosen", onnx.Type{})
	number := step.AddInput("expert", onnx.Type{})
	one := map[int]*onnx.Value{} // the tensors of one expert, by index of the op's input
	for i := MoEGateUp; i < len(b.In); i++ {
		name := "expert_" + b.In[i].Name
		switch {
		case !s.Has(i):
		case moeScans(s):
			scanned = append(scanned, b.In[i])
			one[i] = step.AddInput(name, onnx.Type{})
		default:
			one[i] = b.Within(run).Op(name, "Gather", []*onnx.Value{b.In[i], number}, onnx.IntAttr("axis", 0))
		}
	}
	declare := func(g *onnx.Graph, v *onnx.Value) {
		v.SetType(rows)
		g.AddOutput(v)
	}
	declare(run, addExpert(b.Within(run), sum, number, tokens, ids, gates, func(b *op.Body, x *onnx.Value) *onnx.Value {
		return expert(b, x, one)
	}))
	declare(skip, b.Within(skip).Call("unchanged", "Identity", sum))
	declare(step, b.Within(step).Op("next", "If", []*onnx.Value{isChosen}, onnx.GraphAttr("then_branch", run),
		onnx.GraphAttr("else_branch", skip)))
	total := b.Op("total", "Scan", scanned, onnx.GraphAttr("body", step),
		onnx.IntAttr("num_scan_inputs", int64(len(scanned)-1)))
	return []*onnx.Value{b.Round("Y", b.Shaped("shaped", total, shape), MoEX)}
}

// moeScans reports whether the Scan can read the experts' tensors directly. Otherwise they are gathered, which copies
// them.
func moeScans(s op.Site) bool {
	return s.Opset >= op.ScanBFloatOpset || s.Types[MoEGateUp] != onnx.BFloat16
}

// chosenExperts returns a bool for each expert: whether a token goes to it. The marks begin with one for no expert.
func chosenExperts(b *op.Body, ids, experts *onnx.Value) *onnx.Value {
	flat := b.Call("all_choices", "Reshape", ids, b.Integers("any", -1))
	first := b.Integers("first_mark", 1)
	none := b.Op("none_chosen", "ConstantOfShape", []*onnx.Value{b.Call("marks", "Add", experts, first)})
	one := onnx.TensorAttr("value", onnx.NewFloat32s("", []int64{1}, []float32{1}))
	ones := b.Op("ones", "ConstantOfShape", []*onnx.Value{b.Call("choices_count", "Shape", flat)}, one)
	places := b.Call("places_of_marks", "Add", flat, first)
	marked := b.Op("marked", "ScatterElements", []*onnx.Value{none, places, ones}, onnx.IntAttr("axis", 0))
	marked = b.Call("marks_of_experts", "Slice", marked, first, b.Integers("end_of_marks", math.MaxInt64))
	return b.Op("chosen", "Cast", []*onnx.Value{marked}, onnx.IntAttr("to", int64(onnx.Bool)))
}

// numbersTo returns 0, ..., n-1; n is a vector of one.
func numbersTo(b *op.Body, n *onnx.Value) *onnx.Value {
	zero, one := b.Constant("zero", onnx.IntAttr("value_int", 0)), b.Constant("one", onnx.IntAttr("value_int", 1))
	return b.Call("numbers", "Range", zero, b.Call("count", "Squeeze", n), one)
}

// addExpert adds the weighted results of expert number to sum, in the rows of the expert's tokens.
func addExpert(b *op.Body, sum, number, tokens, ids, gates *onnx.Value,
	expert func(b *op.Body, x *onnx.Value) *onnx.Value) *onnx.Value {
	last := b.Integers("last", -1)
	mine := b.Call("mine", "Equal", ids, number)
	// A token may choose the expert twice. Its weights are summed, so that every row of sum is written once.
	gate := b.Op("gate_of_token", "ReduceSum",
		[]*onnx.Value{b.Call("my_gates", "Where", mine, gates, b.Number("no_gate", 0)), last},
		onnx.IntAttr("keepdims", 1))
	times := b.Op("times", "ReduceSum",
		[]*onnx.Value{b.Op("mine_32", "Cast", []*onnx.Value{mine}, onnx.IntAttr("to", int64(onnx.Float))),
			last}, onnx.IntAttr("keepdims", 0))
	at := b.Call("rows", "Squeeze", b.Call("rows_matrix", "NonZero", times), b.Integers("front", 0))
	y := expert(b, b.Op("x", "Gather", []*onnx.Value{tokens, at}, onnx.IntAttr("axis", 0)))
	y = b.Call("weighted", "Mul", y, b.Op("row_gates", "Gather", []*onnx.Value{gate, at}, onnx.IntAttr("axis", 0)))
	y = b.Call("added", "Add", b.Op("before", "Gather", []*onnx.Value{sum, at}, onnx.IntAttr("axis", 0)), y)
	return b.Call("sum_after", "ScatterND", sum, b.Call("places", "Unsqueeze", at, last), y)
}

// expertProduct multiplies x by an expert's matrix and adds its bias, if there is one.
func expertProduct(b *op.Body, name string, x, w, bias *onnx.Value, layout string) *onnx.Value {
	in := []*onnx.Value{x, b.Float32(name+"_matrix", w)}
	if bias != nil {
		in = append(in, b.Float32(name+"_bias", bias))
	}
	trans := int64(0)
	if layout == op.LayoutOutIn {
		trans = 1
	}
	return b.Op(name, "Gemm", in, onnx.IntAttr("transB", trans))
}

// MoEUnit returns a function with the part of MoE's definition between its two products: from h [..., 2I], or [..., I]
// with packing=none, to a [..., I]. It takes MoE's attributes.
func MoEUnit(attributes []*onnx.Attribute, opset int64) *onnx.Function {
	s := op.Site{Attributes: attributes, Types: []onnx.DataType{onnx.Float}, Opset: opset}
	f := onnx.NewFunction(op.Domain, "MoEUnit", "", opset)
	b := &op.Body{Root: f.Body, Graph: f.Body, Site: s}
	f.Body.AddOutput(Between(b, s, f.Body.AddInput("h", onnx.Type{})))
	return f
}

// Between computes the part between the two products.
func Between(b *op.Body, s op.Site, h *onnx.Value) *onnx.Value {
	attrs := op.Read[MoE](s.Attributes)
	var g, u *onnx.Value
	switch attrs.Packing {
	case PackNone:
		return glu.Activated(b, s, h)
	case PackHalves:
		g, u = b.Pairs("gate", "up", h, op.LayoutHalves)
	default:
		g, u = b.Pairs("gate", "up", h, op.LayoutInterleaved)
	}
	g, u = glu.Limited(b, s, g, u)
	a := glu.Activated(b, s, g)
	if attrs.UpOffset != 0 {
		u = b.Call("up_shifted", "Add", u, b.Attribute("up_offset"))
	}
	return b.Call("a", "Mul", a, u)
}
