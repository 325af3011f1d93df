package spellings

import (
	"fmt"
	"slices"

	"github.com/mojo-patch/mojo-patch/onnx"
)

// each sends rows through expert i, with edits.
func (r *routed) each(e *expert, form uint64, x *onnx.Value, i int) *onnx.Value {
	first, last := i == 0, i == r.experts-1
	if last && r.wrong("another input for an expert") {
		x = r.op("Add", x, r.floats(r.typ, []int{}, []float64{1}))
	}
	act := e.act
	if last && r.wrong("another activation for an expert") {
		act = map[string]string{"relu": "silu"}[act]
		if act == "" {
			act = "relu"
		}
	}
	of := i
	if first && r.outside("weights of the next expert for an expert") {
		of++
	}
	var y *onnx.Value
	r.alike(form, func() { y = r.one(e, act, x, of) })
	switch {
	case first && r.wrong("an expert counts twice"):
		y = r.op("Add", y, y)
	case first && r.wrong("an expert's outputs activated"):
		y = r.op("Tanh", y)
	case last && r.wrong("an expert's inputs added to its outputs"):
		y = r.op("Add", y, x)
	}
	return y
}

// writeDense writes experts that all work on all tokens, with separate weights and masks.
func writeDense(w *writer) []*onnx.Value {
	r := newRouted(w, "")
	e := r.newExpert(r.chance(2))
	gate, form, masked := r.gates(true), r.r.Uint64(), r.chance(4)
	var parts []*onnx.Value
	for i := range r.experts {
		if i == r.experts-1 && r.wrong("the last expert missing") {
			continue
		}
		x := r.x
		var hit *onnx.Value
		zero := r.floats(r.typ, []int{}, []float64{0})
		if masked {
			hit = r.hit(i)
			x = r.op("Where", hit, x, zero)
		}
		y, g := r.each(e, form, x, i), gate(i)
		switch {
		case i == 1 && r.wrong("an expert without its weight"):
			g = r.cast(r.hit(i), r.typ)
		case i == 1 && r.wrong("an expert with its weight squared"):
			g = r.op("Mul", g, g)
		case i == 1 && r.wrong("an expert that serves two tokens"):
			one := r.cast(r.hit(i), onnx.Float)
			full := r.op("Less", r.op("CumSum", one, r.constant(scalarInt(0))),
				r.floats(onnx.Float, []int{}, []float64{2.5}))
			g = r.op("Mul", g, r.cast(full, r.typ))
		case i == 1 && r.wrong("weights of the next token for an expert"):
			g = r.nextRow(g)
		}
		if y = r.product(y, g); masked {
			y = r.op("Where", hit, y, zero)
		}
		parts = append(parts, y)
	}
	return r.result(r.total(parts))
}

// total sums values one by one, or at once.
func (r *routed) total(parts []*onnx.Value) *onnx.Value {
	if r.wrong("the greatest of the experts' outputs") {
		return r.op("Max", anyList(parts)...)
	}
	if r.chance(4) {
		return r.op("Sum", anyList(parts)...)
	}
	if r.chance(4) {
		for i, v := range parts {
			parts[i] = r.op("Unsqueeze", v, r.ints(0))
		}
		return r.reduce("ReduceSum", r.op("Concat", append(anyList(parts), onnx.IntAttr("axis", 0))...), []int64{0},
			false)
	}
	y := parts[0]
	for _, v := range parts[1:] {
		y = r.add(y, v)
	}
	return y
}

func anyList(values []*onnx.Value) []any {
	list := make([]any, len(values))
	for i, v := range values {
		list[i] = v
	}
	return list
}

// is compares the ids with expert i, a number or a value.
func (r *routed) is(i any) *onnx.Value {
	e, ok := i.(*onnx.Value)
	if !ok {
		e = r.constant(onnx.NewInt64s(fmt.Sprint("expert", i), []int64{int64(i.(int))}))
	}
	return r.op("Equal", r.ids, e)
}

// hit returns which tokens go to expert i, [T, 1].
func (r *routed) hit(i any) *onnx.Value {
	t := choose(r.writer, onnx.Float, onnx.Int32, onnx.Int64)
	return r.cast(r.reduce("ReduceMax", r.cast(r.is(i), t), []int64{r.lastAxis(2)}, true), onnx.Bool)
}

// gates returns, for each expert i (a number or a value without axes), the column [T, 1] of weights, 0 for tokens that
// did not choose it.
func (r *routed) gates(split bool) func(i any) *onnx.Value {
	weights := r.weightsOf()
	if all := r.allGates(weights, r.r.IntN(4)); all != nil {
		if r.chance(4) && split {
			columns := channels{r.writer, 2, r.experts}.split(all, true, slices.Repeat([]int{1}, r.experts))
			return func(i any) *onnx.Value { return columns[i.(int)] }
		}
		return func(i any) *onnx.Value {
			at, ok := i.(int)
			switch {
			case !ok:
				return r.op("Unsqueeze", r.op("Gather", all, i, onnx.IntAttr("axis", 1)), r.ints(1))
			case r.chance(3):
				return r.op("Gather", all, r.ints(int64(at)), onnx.IntAttr("axis", r.lastAxis(2)))
			}
			return r.op("Slice", all, r.ints(int64(at)), r.ints(int64(at)+1), r.ints(r.lastAxis(2)))
		}
	}
	where := r.chance(2)
	return func(i any) *onnx.Value {
		mask := r.is(i)
		if where {
			mask = r.op("Where", mask, weights, r.floats(r.typ, []int{}, []float64{0}))
		} else {
			mask = r.product(r.cast(mask, r.typ), weights)
		}
		return r.reduce("ReduceSum", mask, []int64{1}, true)
	}
}

// allGates returns the weights of all experts [T, experts], or nil for other forms than 0 and 1.
func (r *routed) allGates(weights *onnx.Value, form int) *onnx.Value {
	switch form {
	case 0: // one_hot
		hot := r.op("OneHot", r.ids, r.ints(int64(r.experts)), r.floats(r.typ, []int{2}, []float64{0, 1}))
		return r.reduce("ReduceSum", r.product(hot, r.op("Unsqueeze", weights, r.ints(-1))), []int64{1}, false)
	case 1: // scatter
		shape := r.op("Concat", r.op("Slice", r.op("Shape", r.ids), r.ints(0), r.ints(1)), r.ints(int64(r.experts)),
			onnx.IntAttr("axis", 0))
		zeros := r.op("Expand", r.floats(r.typ, []int{1}, []float64{0}), shape)
		return r.op("ScatterElements", zeros, r.ids, weights, onnx.IntAttr("axis", 1))
	}
	return nil
}
