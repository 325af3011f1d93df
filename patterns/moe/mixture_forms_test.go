package moe_test

import "github.com/mojo-patch/mojo-patch/onnx"

func (b *mixture) equalAndMul() value {
	return b.sum(func(e int) value { return b.Op("Mul", b.expert(b.rows), b.gate(e)) })
}

// masked passes zeros to each expert for the tokens of other experts.
func (b *mixture) masked() value {
	return b.sum(func(e int) value {
		hit := b.Op("Cast", b.Op("ReduceMax", b.Op("Cast", b.Op("Equal", b.ids, e), attr("to", 6)), []int64{-1}),
			attr("to", 9))
		y := b.expert(b.Op("Where", hit, b.rows, 0.0))
		return b.Op("Where", hit, b.Op("Mul", y, b.gate(e)), 0.0)
	})
}

// gates returns [tokens, experts].
func (b *mixture) gates(scattered bool) value {
	if scattered {
		shape := b.Op("Concat", b.Op("Shape", b.rows, attr("start", 0), attr("end", 1)), []int64{int64(b.experts)},
			attr("axis", 0))
		return b.Op("ScatterElements", b.Op("Expand", 0.0, shape), b.ids, b.scores, attr("axis", 1))
	}
	values := b.Model.Graph.AddInitializer(onnx.NewFloat32s("values", []int64{2}, []float32{0, 1}))
	hot := b.Op("OneHot", b.ids, b.experts, values)
	return b.Op("ReduceSum", b.Op("Mul", hot, b.Op("Unsqueeze", b.scores, []int64{-1})), []int64{1},
		attr("keepdims", 0))
}

func (b *mixture) column(gates value, e int) value {
	return b.Op("Slice", gates, []int64{int64(e)}, []int64{int64(e + 1)}, []int64{1})
}

func (b *mixture) oneHot() value {
	gates := b.gates(false)
	return b.sum(func(e int) value { return b.Op("Mul", b.column(gates, e), b.expert(b.rows)) })
}

func (b *mixture) scatteredGates() value {
	gates := b.gates(true)
	return b.sum(func(e int) value {
		return b.Op("Mul", b.expert(b.rows), b.Op("Unsqueeze", b.Op("Gather", gates, e, attr("axis", 1)), []int64{1}))
	})
}

// preWeighted applies the gates before the last product.
func (b *mixture) preWeighted() value {
	gates := b.gates(true)
	return b.sum(func(e int) value {
		gate := b.linear(b.rows, b.hidden, b.inner)
		a := b.unit(gate, b.linear(b.rows, b.hidden, b.inner))
		return b.linear(b.Op("Mul", a, b.column(gates, e)), b.inner, b.hidden)
	})
}

// hit returns, for expert e, its indexes in the tokens' lists of experts, and these tokens.
func (b *mixture) hit(e any) (place, token value) {
	where := b.Op("NonZero", b.Op("Equal", b.Op("Transpose", b.ids), e))
	return b.Op("Gather", where, 0), b.Op("Gather", where, 1)
}

// routed returns the rows of the tokens of expert e, times their factors.
func (b *mixture) routed(e any, expert func(value) value) (y, token value) {
	place, token := b.hit(e)
	y = expert(b.Op("Gather", b.rows, token))
	at := b.Op("Concat", b.Op("Unsqueeze", token, []int64{1}), b.Op("Unsqueeze", place, []int64{1}), attr("axis", 1))
	return b.Op("Mul", y, b.Op("Unsqueeze", b.Op("GatherND", b.scores, at), []int64{1})), token
}

func (b *mixture) zeros() value { return b.Op("ConstantOfShape", b.Op("Shape", b.rows)) }

// start returns the base that the experts are added to, or zeros.
func (b *mixture) start() value {
	if b.base != nil {
		return b.base()
	}
	return b.zeros()
}

// indexAdd scatters the results of the experts for their tokens.
func (b *mixture) indexAdd(elements bool) value {
	y := b.start()
	for e := range b.experts {
		v, token := b.routed(e, b.expert)
		index := b.Op("Unsqueeze", token, []int64{1})
		if elements {
			y = b.Op("Add", y, b.Op("ScatterElements", b.zeros(), b.Op("Expand", index, b.Op("Shape", v)), v,
				attr("axis", 0)))
		} else {
			y = b.Op("ScatterND", y, index, v, onnx.StringAttr("reduction", "add"))
		}
	}
	return y
}

// branches runs an expert only if a token goes to it.
func (b *mixture) branches() value {
	y := b.start()
	for e := range b.experts {
		some := b.Op("Cast", b.Op("ReduceMax", b.Op("Cast", b.Op("Equal", b.ids, e), attr("to", 6)),
			attr("keepdims", 0)), attr("to", 9))
		outer := b.Graph
		then, other := outer.NewSubgraph("then"), outer.NewSubgraph("else")
		b.Graph = then
		v, token := b.routed(e, b.expert)
		then.AddOutput(b.Op("ScatterND", y, b.Op("Unsqueeze", token, []int64{1}), v,
			onnx.StringAttr("reduction", "add")))
		b.Graph = other
		other.AddOutput(b.Op("Identity", y))
		b.Graph = outer
		y = b.Op("If", some, onnx.GraphAttr("then_branch", then), onnx.GraphAttr("else_branch", other))
	}
	return y
}

// loop runs over the experts, whose weights are stacked; indexed takes only the tokens of each.
func (b *mixture) loop(indexed bool) value {
	gateUp, down := b.weight(b.experts, b.hidden, 2*b.inner), b.weight(b.experts, b.inner, b.hidden)
	zeros, outer := b.start(), b.Graph
	body := outer.NewSubgraph("body")
	e := body.AddInput("e", onnx.Type{DataType: onnx.Int64, HasShape: true})
	cond := body.AddInput("cond", onnx.Type{DataType: onnx.Bool, HasShape: true})
	sum := body.AddInput("sum", onnx.Type{DataType: onnx.Float})
	b.Graph = body
	expert := func(x value) value {
		return b.Op("MatMul", b.unit(b.halves(b.Op("MatMul", x, b.Op("Gather", gateUp, e)))), b.Op("Gather", down, e))
	}
	var y value
	if indexed {
		v, token := b.routed(e, expert)
		y = b.Op("ScatterND", sum, b.Op("Unsqueeze", token, []int64{1}), v, onnx.StringAttr("reduction", "add"))
	} else {
		y = b.Op("Add", sum, b.Op("Mul", expert(b.rows), b.gate(e)))
	}
	more := b.Op("Identity", cond)
	body.AddOutput(more)
	body.AddOutput(y)
	b.Graph = outer
	return b.Op("Loop", b.experts, nil, zeros, onnx.GraphAttr("body", body))
}

// scan runs over the stacked weights.
func (b *mixture) scan() value {
	first, second, down := b.weight(b.experts, b.hidden, b.inner), b.weight(b.experts, b.hidden, b.inner),
		b.weight(b.inner, b.experts, b.hidden)
	gates, zeros, outer := b.Op("Transpose", b.gates(true)), b.start(), b.Graph
	body := outer.NewSubgraph("body")
	var in []value
	for _, name := range []string{"sum", "gate", "w1", "w3", "w2"} {
		in = append(in, body.AddInput(name, onnx.Type{DataType: onnx.Float}))
	}
	b.Graph = body
	v := b.Op("MatMul", b.unit(b.Op("MatMul", b.rows, in[2]), b.Op("MatMul", b.rows, in[3])), in[4])
	body.AddOutput(b.Op("Add", in[0], b.Op("Mul", v, b.Op("Unsqueeze", in[1], []int64{1}))))
	b.Graph = outer
	return b.Op("Scan", zeros, gates, first, second, down, onnx.GraphAttr("body", body), attr("num_scan_inputs", 4),
		onnx.IntsAttr("scan_input_axes", []int64{0, 0, 0, 1}))
}

// batched multiplies all tokens with all experts at once.
func (b *mixture) batched() value {
	h := b.Op("MatMul", b.Op("Unsqueeze", b.rows, []int64{0}), b.weight(b.experts, b.hidden, 2*b.inner))
	h = b.Op("Add", h, b.weight(b.experts, 1, 2*b.inner))
	y := b.Op("Add", b.Op("MatMul", b.unit(b.halves(h)), b.weight(b.experts, b.inner, b.hidden)),
		b.weight(b.experts, 1, b.hidden))
	gates := b.Op("Unsqueeze", b.Op("Transpose", b.gates(true)), []int64{-1})
	return b.Op("ReduceSum", b.Op("Mul", y, gates), []int64{0}, attr("keepdims", 0))
}

func (b *mixture) einsum(equation string, args ...any) value {
	return b.Op("Einsum", append(args, onnx.StringAttr("equation", equation))...)
}

// einsums does the same by Einsums; with summed, the last one adds the experts.
func (b *mixture) einsums(summed bool) value {
	gate := b.einsum("th,eih->tei", b.rows, b.weight(b.experts, b.inner, b.hidden))
	a := b.unit(gate, b.einsum("th,eih->tei", b.rows, b.weight(b.experts, b.inner, b.hidden)))
	down := b.weight(b.experts, b.inner, b.hidden)
	if summed {
		return b.einsum("tei,eih->th", b.Op("Mul", a, b.Op("Unsqueeze", b.gates(true), []int64{-1})), down)
	}
	return b.einsum("te,teh->th", b.gates(true), b.einsum("tei,eih->teh", a, down))
}

// flattened keeps all experts in one matrix and takes their rows.
func (b *mixture) flattened() value {
	n := b.experts * b.inner
	first, second, down := b.weight(n, b.hidden), b.weight(n, b.hidden), b.weight(n, b.hidden)
	return b.sum(func(e int) value {
		part := func(w value) value {
			return b.Op("Slice", w, []int64{int64(e * b.inner)}, []int64{int64((e + 1) * b.inner)}, []int64{0})
		}
		a := b.unit(b.Op("MatMul", b.rows, b.Op("Transpose", part(first))),
			b.Op("MatMul", b.rows, b.Op("Transpose", part(second))))
		return b.Op("Mul", b.Op("MatMul", a, part(down)), b.gate(e))
	})
}

// unrolled is a loop over the chosen experts as tracers write it: one branch for each expert chosen in the trace, for
// the first, the second, … chosen expert. The weights are stacked, or are the weights of the traced expert.
func (b *mixture) unrolled(seen []int, stacked bool) value {
	gateUp, down := b.weight(b.experts, b.hidden, 2*b.inner), b.weight(b.experts, b.inner, b.hidden)
	hot := b.Op("OneHot", b.ids, b.experts, []int64{0, 1})
	some := b.Op("NonZero", b.Op("ReduceMax", hot, []int64{0, 1}, attr("keepdims", 0)))
	ones := make([]int64, len(seen))
	for i := range ones {
		ones[i] = 1
	}
	chosen := b.Ops(len(seen), "Split", b.Op("Squeeze", some, []int64{0}), ones)
	y := b.start()
	for _, c := range chosen {
		v, token := b.routed(c, func(x value) value {
			if !stacked {
				return b.expert(x)
			}
			w, d := b.Op("Squeeze", b.Op("Gather", gateUp, c), []int64{0}),
				b.Op("Squeeze", b.Op("Gather", down, c), []int64{0})
			return b.Op("MatMul", b.unit(b.halves(b.Op("MatMul", x, w))), d)
		})
		y = b.Op("ScatterND", y, b.Op("Unsqueeze", token, []int64{1}), v, onnx.StringAttr("reduction", "add"))
	}
	return y
}

// gathered takes the weights of the chosen experts for every token.
func (b *mixture) gathered() value {
	pick := func(dims ...int) value { return b.Op("Gather", b.weight(dims...), b.ids) }
	x := b.Op("Unsqueeze", b.rows, []int64{1, -1})
	h := b.Op("Squeeze", b.Op("MatMul", pick(b.experts, 2*b.inner, b.hidden), x), []int64{-1})
	a := b.unit(b.halves(b.Op("Add", h, pick(b.experts, 2*b.inner))))
	y := b.Op("Squeeze", b.Op("MatMul", pick(b.experts, b.hidden, b.inner), b.Op("Unsqueeze", a, []int64{-1})),
		[]int64{-1})
	y = b.Op("Mul", b.Op("Add", y, pick(b.experts, b.hidden)), b.Op("Unsqueeze", b.scores, []int64{-1}))
	return b.Op("ReduceSum", y, []int64{1}, attr("keepdims", 0))
}

// grouped sorts the choices by expert, multiplies group by group, and has one unit for all.
func (b *mixture) grouped() value {
	flat := b.Op("Reshape", b.ids, []int64{-1})
	groups, sizes := make([]any, b.experts), make([]any, b.experts)
	products := make([]any, b.experts)
	for e := range groups {
		group := b.Op("Squeeze", b.Op("NonZero", b.Op("Equal", flat, e)), []int64{0})
		groups[e], sizes[e] = group, b.Op("Shape", group)
		products[e] = b.Op("MatMul", b.Op("Gather", b.rows, b.Op("Div", group, b.k)), b.weight(b.hidden, 2*b.inner))
	}
	concat := func(list []any) value { return b.Op("Concat", append(list, attr("axis", 0))...) }
	order := concat(groups)
	expert := b.Op("Gather", flat, order)
	a := b.unit(b.halves(b.Op("Add", concat(products), b.Op("Gather", b.weight(b.experts, 2*b.inner), expert))))
	for e, part := range b.Ops(b.experts, "Split", a, concat(sizes), attr("axis", 0)) {
		products[e] = b.Op("MatMul", part, b.weight(b.inner, b.hidden))
	}
	y := b.Op("Add", concat(products), b.Op("Gather", b.weight(b.experts, b.hidden), expert))
	y = b.Op("Mul", y, b.Op("Unsqueeze", b.Op("Gather", b.Op("Reshape", b.scores, []int64{-1}), order), []int64{1}))
	token := b.Op("Unsqueeze", b.Op("Div", order, b.k), []int64{1})
	return b.Op("ScatterND", b.start(), token, y, onnx.StringAttr("reduction", "add"))
}

// eachToken runs over the tokens, and over the experts of each.
func (b *mixture) eachToken() value {
	first, down, outer := b.weight(b.experts, 2*b.inner, b.hidden), b.weight(b.experts, b.hidden, b.inner), b.Graph
	body := func(at *onnx.Graph) (i value) {
		i = at.AddInput("i", onnx.Type{DataType: onnx.Int64, HasShape: true})
		at.AddOutput(at.AddInput("cond", onnx.Type{DataType: onnx.Bool, HasShape: true}))
		return i
	}
	tokens := outer.NewSubgraph("tokens")
	t := body(tokens)
	chosen := tokens.NewSubgraph("chosen")
	j := body(chosen)
	sum := chosen.AddInput("sum", onnx.Type{DataType: onnx.Float})
	b.Graph = chosen
	of := func(v value) value { return b.Op("Gather", b.Op("Gather", v, t), j) }
	h := b.Op("MatMul", b.Op("Gather", first, of(b.ids)), b.Op("Gather", b.rows, t))
	y := b.Op("MatMul", b.Op("Gather", down, of(b.ids)), b.unit(b.halves(h)))
	chosen.AddOutput(b.Op("Add", sum, b.Op("Mul", y, of(b.scores))))
	b.Graph = tokens
	zero := b.Op("Mul", b.Op("Gather", b.rows, t), 0.0)
	tokens.AddOutput(b.Op("Loop", b.k, nil, zero, onnx.GraphAttr("body", chosen)))
	b.Graph = outer
	n := b.Op("Squeeze", b.Op("Shape", b.rows, attr("end", 1)), []int64{0})
	return b.Op("Loop", n, nil, onnx.GraphAttr("body", tokens))
}

// inStyle is the plainest form, with experts in a style.
func inStyle(style expertStyle) func(b *mixture) value {
	return func(b *mixture) value { b.style = style; return b.equalAndMul() }
}

// mixtureForms are ways to write a mixture that all mean mojo.MoE.
var mixtureForms = []struct {
	name  string
	build func(b *mixture) value
}{
	{"Equal and Mul", inStyle(expertStyle{})},
	{"Gemm", inStyle(expertStyle{weights: "gemm"})},
	{"Gemm with bias", inStyle(expertStyle{weights: "gemm", bias: true})},
	{"Transpose", inStyle(expertStyle{weights: "transposed"})},
	{"weights on the left", inStyle(expertStyle{weights: "left"})},
	{"bias", inStyle(expertStyle{bias: true})},
	{"packed", inStyle(expertStyle{packed: "halves", bias: true})},
	{"packed, transposed", inStyle(expertStyle{packed: "halves", weights: "transposed"})},
	{"interleaved", inStyle(expertStyle{packed: "interleaved"})},
	{"up first", inStyle(expertStyle{packed: "up first", bias: true})},
	{"up first, transposed", inStyle(expertStyle{packed: "up first", weights: "gemm"})},
	{"clamped", inStyle(expertStyle{activation: "clamped", packed: "interleaved", bias: true})},
	{"no gate", inStyle(expertStyle{activation: "gelu", bias: true})},
	{"masks", (*mixture).masked},
	{"OneHot", (*mixture).oneHot},
	{"scattered gates", (*mixture).scatteredGates},
	{"gates before the last product", (*mixture).preWeighted},
	{"ScatterElements", func(b *mixture) value { return b.indexAdd(true) }},
	{"ScatterND", func(b *mixture) value { return b.indexAdd(false) }},
	{"If", (*mixture).branches},
	{"Loop", func(b *mixture) value { return b.loop(false) }},
	{"Loop over tokens of the expert", func(b *mixture) value { return b.loop(true) }},
	{"Scan", (*mixture).scan},
	{"batched", (*mixture).batched},
	{"Einsum", func(b *mixture) value { return b.einsums(false) }},
	{"Einsum that adds up", func(b *mixture) value { return b.einsums(true) }},
	{"one matrix for all", (*mixture).flattened},
	{"packed and not, up before gate and behind it", func(b *mixture) value {
		return b.sum(func(e int) value {
			b.style.packed = []string{"", "halves", "up first"}[e%3]
			if e != 3 {
				return b.Op("Mul", b.expert(b.rows), b.gate(e))
			}
			up := b.linear(b.rows, b.hidden, b.inner)
			a := b.unit(b.linear(b.rows, b.hidden, b.inner), up)
			return b.Op("Mul", b.linear(a, b.inner, b.hidden), b.gate(e))
		})
	}},
	{"gathered", (*mixture).gathered},
	{"grouped", (*mixture).grouped},
	{"a loop over the tokens", (*mixture).eachToken},
	{"gates on the tokens", func(b *mixture) value {
		return b.sum(func(e int) value { return b.expert(b.Op("Mul", b.rows, b.gate(e))) })
	}},
	{"weights in the branches", func(b *mixture) value { b.inBodies = true; return b.branches() }},
	{"those chosen, stacked", func(b *mixture) value { return b.unrolled([]int{0, 2, 3, 4, 6}, true) }},
	{"other order", func(b *mixture) value {
		return b.sum(func(e int) value { return b.Op("Mul", b.expert(b.rows), b.gate((3*e+2)%b.experts)) })
	}},
}
