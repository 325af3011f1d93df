package experts

import (
	"github.com/mojo-patch/mojo-patch/internal/spellings/writer"
	"github.com/mojo-patch/mojo-patch/onnx"
)

// WriteLoop writes a Loop over the experts, whose weights are stacked.
func WriteLoop(w *writer.Writer) []*onnx.Value {
	r := newRouted(w, "")
	e, x := r.newExpert(true), newIndexed(r)
	gate, zeros, outer := r.gates(false), x.zeros(), r.Graph
	body := outer.NewSubgraph("body")
	i := body.AddInput("expert", onnx.Type{DataType: onnx.Int64, HasShape: true})
	going := body.AddInput("more", onnx.Type{DataType: onnx.Bool, HasShape: true})
	sum := body.AddInput("sum", onnx.Type{DataType: r.Type})
	r.Graph = body
	of := i
	if r.outside("weights of the next expert") {
		of = r.Op("Mod", r.Op("Add", i, r.Constant(writer.ScalarInt(1))),
			r.Constant(writer.ScalarInt(int64(r.experts))))
	}
	one := func(rows *onnx.Value) *onnx.Value {
		y := r.one(e, e.act, rows, of)
		switch last := func() *onnx.Value {
			return r.Op("Equal", i,
				r.Constant(writer.ScalarInt(int64(r.experts-1))))
		}; {
		case r.wrong("another function for the last expert"):
			y = r.Op("Where", last(), r.Op("Tanh", y), y)
		case r.wrong("the last expert counts twice"):
			y = r.Op("Where", last(), r.Op("Add", y, y), y)
		case r.wrong("outputs activated"):
			y = r.Op("Tanh", y)
		case r.wrong("inputs added to the outputs"):
			y = r.Op("Add", y, rows)
		}
		return y
	}
	to := sum
	if r.wrong("a sum that is not handed on") {
		to = zeros
	}
	var y *onnx.Value
	if r.Chance(2) {
		rows, token := x.run(i, one)
		y = x.scatter(to, token, rows)
	} else {
		y = r.add(to, r.Product(one(r.x), gate(i)))
	}
	if r.wrong("the greatest of the experts' outputs") {
		y = r.Op("Max", sum, y)
	}
	more := r.Op("Identity", going)
	body.AddOutput(more)
	body.AddOutput(y)
	r.Graph = outer
	rounds := r.experts
	if r.wrong("one round less") {
		rounds--
	}
	if r.outside("a sum that begins at one") {
		zeros = r.Op("Exp", zeros)
	}
	return r.result(r.Op("Loop", r.Constant(writer.ScalarInt(int64(rounds))), writer.Omitted, zeros,
		onnx.GraphAttr("body", body)))
}

// WriteTogether writes experts that all work on all tokens in products of three axes: [experts, T, n] or [T, experts,
// n].
func WriteTogether(w *writer.Writer) []*onnx.Value {
	r := newRouted(w, "")
	e := r.newExpert(true)
	first := r.Chance(2) // the experts' axis comes first
	letters := map[bool]string{true: "et", false: "te"}[first]
	times := func(l *linear, x *onnx.Value, rows string) *onnx.Value {
		var y *onnx.Value
		m := l.w
		if !first || r.Chance(2) {
			equation := rows + "n,e" + map[bool]string{false: "mn", true: "nm"}[l.inOut] + "->" + letters + "m"
			y = r.Op("Einsum", x, m, onnx.StringAttr("equation", equation))
		} else {
			if !l.inOut {
				m = r.Op("Transpose", m, onnx.IntsAttr("perm", []int64{0, 2, 1}))
			}
			if rows == "t" && r.Chance(2) {
				x = r.Op("Unsqueeze", x, r.Ints(0))
			}
			y = r.Op("MatMul", x, m)
		}
		if b := l.b; b != nil {
			if first {
				b = r.Op("Unsqueeze", b, r.Ints(1))
			}
			y = r.add(y, b)
		}
		return y
	}
	gates := r.allGates(r.weightsOf(), r.Rand.IntN(2))
	switch {
	case r.wrong("shares of all experts"):
		gates = r.Op("Softmax", gates, onnx.IntAttr("axis", 1))
	case r.wrong("gates of the next token"):
		gates = r.nextRow(gates)
	case r.outside("gates squared"):
		gates = r.Op("Mul", gates, gates)
	}
	if first {
		gates = r.Op("Transpose", gates, onnx.IntsAttr("perm", []int64{1, 0}))
	}
	column := func() *onnx.Value { return r.Op("Unsqueeze", gates, r.Ints(r.LastAxis(3))) }
	a := r.hiddenOf(e, e.act, 3, func(l *linear) *onnx.Value { return times(l, r.x, "t") })
	sum := []int64{1}
	if first {
		sum[0] = 0
	}
	if r.wrong("a function only of the last channels") {
		a = r.Op("Where", r.bools(append(make([]int64, r.inner-1), 1)...), r.Op("Tanh", a), a)
	}
	switch biased := e.down.b != nil; {
	case biased && r.wrong("weights before a down product with a bias"), !biased && r.Chance(3):
		return r.result(r.Reduce("ReduceSum", times(e.down, r.Product(a, column()), letters), sum, false))
	}
	y := times(e.down, a, letters)
	switch {
	case r.wrong("outputs activated"):
		y = r.Op("Tanh", y)
	case r.wrong("the greatest output"):
		return r.result(r.Reduce("ReduceMax", r.Op("Mul", y, column()), sum, false))
	case r.wrong("the mean of the outputs"):
		return r.result(r.Reduce("ReduceMean", r.Op("Mul", y, column()), sum, false))
	case r.Chance(3):
		return r.result(r.Op("Einsum", gates, y, onnx.StringAttr("equation", letters+","+letters+"h->th")))
	}
	return r.result(r.Reduce("ReduceSum", r.Product(y, column()), sum, false))
}
