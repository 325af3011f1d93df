package spellings

import "github.com/mojo-patch/mojo-patch/onnx"

// writeLoop writes a Loop over the experts, whose weights are stacked.
func writeLoop(w *writer) []*onnx.Value {
	r := newRouted(w, "")
	e, x := r.newExpert(true), newIndexed(r)
	gate, zeros, outer := r.gates(false), x.zeros(), r.g
	body := outer.NewSubgraph("body")
	i := body.AddInput("expert", onnx.Type{DataType: onnx.Int64, HasShape: true})
	going := body.AddInput("more", onnx.Type{DataType: onnx.Bool, HasShape: true})
	sum := body.AddInput("sum", onnx.Type{DataType: r.typ})
	r.g = body
	of := i
	if r.outside("weights of the next expert") {
		of = r.op("Mod", r.op("Add", i, r.constant(scalarInt(1))), r.constant(scalarInt(int64(r.experts))))
	}
	one := func(rows *onnx.Value) *onnx.Value {
		y := r.one(e, e.act, rows, of)
		switch last := func() *onnx.Value { return r.op("Equal", i, r.constant(scalarInt(int64(r.experts-1)))) }; {
		case r.wrong("another function for the last expert"):
			y = r.op("Where", last(), r.op("Tanh", y), y)
		case r.wrong("the last expert counts twice"):
			y = r.op("Where", last(), r.op("Add", y, y), y)
		case r.wrong("outputs activated"):
			y = r.op("Tanh", y)
		case r.wrong("inputs added to the outputs"):
			y = r.op("Add", y, rows)
		}
		return y
	}
	to := sum
	if r.wrong("a sum that is not handed on") {
		to = zeros
	}
	var y *onnx.Value
	if r.chance(2) {
		rows, token := x.run(i, one)
		y = x.scatter(to, token, rows)
	} else {
		y = r.add(to, r.product(one(r.x), gate(i)))
	}
	if r.wrong("the greatest of the experts' outputs") {
		y = r.op("Max", sum, y)
	}
	more := r.op("Identity", going)
	body.AddOutput(more)
	body.AddOutput(y)
	r.g = outer
	rounds := r.experts
	if r.wrong("one round less") {
		rounds--
	}
	if r.outside("a sum that begins at one") {
		zeros = r.op("Exp", zeros)
	}
	return r.result(r.op("Loop", r.constant(scalarInt(int64(rounds))), omitted, zeros, onnx.GraphAttr("body", body)))
}

// writeTogether writes experts that all work on all tokens in products of three axes: [experts, T, n] or [T, experts,
// n].
func writeTogether(w *writer) []*onnx.Value {
	r := newRouted(w, "")
	e := r.newExpert(true)
	first := r.chance(2) // the experts' axis comes first
	letters := map[bool]string{true: "et", false: "te"}[first]
	times := func(l *linear, x *onnx.Value, rows string) *onnx.Value {
		var y *onnx.Value
		m := l.w
		if !first || r.chance(2) {
			equation := rows + "n,e" + map[bool]string{false: "mn", true: "nm"}[l.inOut] + "->" + letters + "m"
			y = r.op("Einsum", x, m, onnx.StringAttr("equation", equation))
		} else {
			if !l.inOut {
				m = r.op("Transpose", m, onnx.IntsAttr("perm", []int64{0, 2, 1}))
			}
			if rows == "t" && r.chance(2) {
				x = r.op("Unsqueeze", x, r.ints(0))
			}
			y = r.op("MatMul", x, m)
		}
		if b := l.b; b != nil {
			if first {
				b = r.op("Unsqueeze", b, r.ints(1))
			}
			y = r.add(y, b)
		}
		return y
	}
	gates := r.allGates(r.weightsOf(), r.r.IntN(2))
	switch {
	case r.wrong("shares of all experts"):
		gates = r.op("Softmax", gates, onnx.IntAttr("axis", 1))
	case r.wrong("gates of the next token"):
		gates = r.nextRow(gates)
	case r.outside("gates squared"):
		gates = r.op("Mul", gates, gates)
	}
	if first {
		gates = r.op("Transpose", gates, onnx.IntsAttr("perm", []int64{1, 0}))
	}
	column := func() *onnx.Value { return r.op("Unsqueeze", gates, r.ints(r.lastAxis(3))) }
	a := r.hiddenOf(e, e.act, 3, func(l *linear) *onnx.Value { return times(l, r.x, "t") })
	sum := []int64{1}
	if first {
		sum[0] = 0
	}
	if r.wrong("a function only of the last channels") {
		a = r.op("Where", r.bools(append(make([]int64, r.inner-1), 1)...), r.op("Tanh", a), a)
	}
	switch biased := e.down.b != nil; {
	case biased && r.wrong("weights before a down product with a bias"), !biased && r.chance(3):
		return r.result(r.reduce("ReduceSum", times(e.down, r.product(a, column()), letters), sum, false))
	}
	y := times(e.down, a, letters)
	switch {
	case r.wrong("outputs activated"):
		y = r.op("Tanh", y)
	case r.wrong("the greatest output"):
		return r.result(r.reduce("ReduceMax", r.op("Mul", y, column()), sum, false))
	case r.wrong("the mean of the outputs"):
		return r.result(r.reduce("ReduceMean", r.op("Mul", y, column()), sum, false))
	case r.chance(3):
		return r.result(r.op("Einsum", gates, y, onnx.StringAttr("equation", letters+","+letters+"h->th")))
	}
	return r.result(r.reduce("ReduceSum", r.product(y, column()), sum, false))
}
