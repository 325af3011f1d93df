package spellings

import "github.com/mojo-patch/mojo-patch/onnx"

// sorted holds choices sorted by expert.
type sorted struct {
	*routed
	flat   *onnx.Value // the experts of the choices in their order, [T·k]
	order  *onnx.Value // the choices, sorted by expert
	expert *onnx.Value // of each choice in this order
	counts *onnx.Value // of each expert's choices
	cut    int         // how rows are split by expert
	listed bool        // the order is joined from lists, so that no shape has its length
}

func newSorted(r *routed) sorted {
	r.empty = true
	s := sorted{routed: r, flat: r.op("Reshape", r.ids, r.ints(-1)), cut: r.r.IntN(3)}
	number := r.op("Shape", s.flat)
	if s.listed = r.opset >= 16 && r.chance(3); s.listed { // the choices of each expert, concatenated
		parts := make([]any, r.experts)
		for i := range parts {
			e := r.constant(scalarInt(int64(i)))
			parts[i] = r.op("Squeeze", r.op("NonZero", r.op("Equal", s.flat, e)), r.ints(0))
		}
		s.order = r.op("Concat", append(parts, onnx.IntAttr("axis", 0))...)
		s.expert = r.op("Gather", s.flat, s.order)
	} else {
		out := r.ops("TopK", 2, s.flat, number, onnx.IntAttr("largest", 0), onnx.IntAttr("axis", r.lastAxis(1)))
		s.expert, s.order = out[0], out[1]
	}
	if r.opset >= 16 && r.chance(2) {
		zeros := r.constant(onnx.NewInt64s("zeros", make([]int64, r.experts)))
		s.counts = r.op("ScatterElements", zeros, s.expert, r.op("Expand", r.ints(1), number), onnx.IntAttr("axis", 0),
			onnx.StringAttr("reduction", "add"))
	} else {
		s.counts = r.reduce("ReduceSum", r.op("OneHot", s.flat, r.ints(int64(r.experts)), r.ints(0, 1)), []int64{0},
			false)
	}
	if r.wrong("numbers of choices in the other order") {
		s.counts = r.op("Slice", s.counts, r.ints(-1), r.ints(-int64(r.experts)-1), r.ints(0), r.ints(-1))
	}
	return s
}

// parts splits rows by expert, in order.
func (s sorted) parts(rows *onnx.Value) []*onnx.Value {
	if s.cut == 0 {
		return s.ops("Split", s.experts, rows, s.counts, onnx.IntAttr("axis", 0))
	}
	ends := s.op("CumSum", s.counts, s.constant(scalarInt(0)))
	parts := make([]*onnx.Value, s.experts)
	begin := s.ints(0)
	for i := range parts {
		end := s.op("Slice", ends, s.ints(int64(i)), s.ints(int64(i)+1), s.ints(0))
		if s.cut == 1 {
			parts[i] = s.op("Slice", rows, begin, end, s.ints(0))
		} else {
			from, to := s.op("Squeeze", begin, s.ints(0)), s.op("Squeeze", end, s.ints(0))
			parts[i] = s.op("Gather", rows, s.op("Range", from, to, s.constant(scalarInt(1))), onnx.IntAttr("axis", 0))
		}
		begin = end
	}
	return parts
}

// times multiplies the rows of each expert by its matrix, and adds all biases at once.
func (s sorted) times(l *linear, rows *onnx.Value, next int) *onnx.Value {
	products := make([]any, s.experts)
	plain := *l // without biases
	plain.b, plain.ownBias = nil, nil
	form := s.r.Uint64()
	for i, part := range s.parts(rows) {
		s.alike(form, func() { products[i] = s.linear(&plain, part, (i+next)%s.experts) })
	}
	y := s.op("Concat", append(products, onnx.IntAttr("axis", 0))...)
	if l.b == nil {
		return y
	}
	of := s.expert
	if s.wrong("biases of the choices as they come") {
		of = s.flat
	}
	return s.add(y, s.op("Gather", l.b, of))
}

// writeGrouped writes experts that work on the rows of all choices, sorted by expert.
func writeGrouped(w *writer) []*onnx.Value {
	r := newRouted(w, "")
	e := r.newExpert(true)
	s := newSorted(r)
	rows := s.op("Div", s.order, s.constant(scalarInt(int64(r.k))))
	if r.chance(2) {
		rows = s.op("Gather", r.x, rows)
	} else {
		rows = s.op("GatherND", r.x, s.op("Unsqueeze", rows, s.ints(-1)))
	}
	if s.wrong("rows of the next choice") {
		rows = s.nextRow(rows)
	}
	var y *onnx.Value
	if r.chance(3) { // each expert separately
		outs, form := make([]any, r.experts), r.r.Uint64()
		for i, part := range s.parts(rows) {
			outs[i] = r.each(e, form, part, i)
		}
		y = s.op("Concat", append(outs, onnx.IntAttr("axis", 0))...)
	} else {
		next := 0
		a := s.hiddenOf(e, e.act, 2, func(l *linear) *onnx.Value { return s.times(l, rows, 0) })
		if s.outside("down products of the next expert") {
			next = 1
		}
		if y = s.times(e.down, a, next); s.wrong("outputs activated") {
			y = s.op("Tanh", y)
		}
	}
	return r.result(s.back(y))
}

// back weights the rows, and sums the rows of each token.
func (s sorted) back(y *onnx.Value) *onnx.Value {
	flat := s.op("Reshape", s.weightsOf(), s.ints(-1))
	weights := s.op("Gather", flat, s.order)
	if s.wrong("weights of the choices as they come") {
		weights = flat
	}
	if !s.listed && s.chance(3) {
		inverse := s.inverse()
		if s.wrong("rows left in the order of the experts") {
			inverse = s.op("Abs", s.order)
		}
		return s.finish(s.op("Gather", y, inverse))
	}
	y = s.product(y, s.op("Unsqueeze", weights, s.ints(s.lastAxis(2))))
	switch {
	case s.listed, s.opset >= 16 && s.chance(2): // by token
		token := s.op("Unsqueeze", s.op("Div", s.order, s.constant(scalarInt(int64(s.k)))), s.ints(1))
		add := []any{onnx.StringAttr("reduction", "add")}
		if s.k > 1 && s.wrong("rows replaced by others") {
			add = nil
		}
		zeros := s.op("ConstantOfShape", s.op("Shape", s.x),
			onnx.TensorAttr("value", tensor(s.typ, []int{1}, []float64{0})))
		if s.chance(2) {
			token = s.op("Expand", token, s.op("Shape", y))
			return s.op("ScatterElements", append([]any{zeros, token, y, onnx.IntAttr("axis", 0)}, add...)...)
		}
		return s.op("ScatterND", append([]any{zeros, token, y}, add...)...)
	case s.chance(3): // by choice
		at := s.op("Expand", s.op("Unsqueeze", s.order, s.ints(1)), s.op("Shape", y))
		y = s.op("ScatterElements", s.op("Sub", y, y), at, y, onnx.IntAttr("axis", 0))
	default:
		y = s.op("Gather", y, s.inverse())
	}
	return s.sumOf(y)
}

// inverse returns the positions of the choices in the sorted order.
func (s sorted) inverse() *onnx.Value {
	number := s.op("Shape", s.flat)
	if s.chance(2) {
		return s.ops("TopK", 2, s.order, number, onnx.IntAttr("largest", 0))[1]
	}
	all := s.op("Range", s.constant(scalarInt(0)), s.op("Squeeze", number, s.ints(0)), s.constant(scalarInt(1)))
	if s.chance(2) {
		return s.op("ScatterElements", s.op("Expand", s.ints(0), number), s.order, all, onnx.IntAttr("axis", 0))
	}
	return s.op("ScatterND", s.op("Expand", s.ints(0), number), s.op("Unsqueeze", s.order, s.ints(1)), all)
}
