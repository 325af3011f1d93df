package spellings

import (
	"math"
	"slices"

	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/reference"
)

// writeNormQuantize writes an RMSNorm, of a sum or not, that is rounded to 8 bits with a scale for each row.
func writeNormQuantize(to onnx.DataType, add bool) func(w *writer) []*onnx.Value {
	return func(w *writer) []*onnx.Value {
		last := choose(w, 4, 6, 8)
		dims := append(w.rows(1, 3, last), dim{"", last})
		n := w.newNorm(dims)
		read := []*onnx.Value{w.input("x", w.typ, dims), n.scaleOf(w.typ, dims)}
		if add {
			read = append(read, w.residual(dims))
		}
		in := w.enter(read...)
		x := in[0]
		if add {
			x = w.residualSum(x, in[2])
			w.smaller = slices.Contains(residualEdits, w.change) // a norm of something else
		}
		q := quantizer{n, to, 127, x}
		if to == onnx.Float8E4M3FN {
			q.most = 448
		}
		var y *onnx.Value
		if add && w.half() || w.chance(2) {
			y = n.rmsNorm(x, in[1], true)
		} else { // the norm rounds nothing
			scale := n.widen(in[1])
			n.scaleType = n.wide
			y = n.normalize(n.widen(x), n.spread(scale, x))
		}
		out := q.quantize(y)
		if add {
			out = append(out, x)
		}
		// The edit was offered by a branch that was not taken this time.
		w.smaller = w.smaller || w.change != "" && !slices.Contains(w.offered, w.change)
		return out
	}
}

// quantizer writes the rounding of a norm to 8 bits.
type quantizer struct {
	norm
	to   onnx.DataType
	most float64
	x    *onnx.Value // the norm's input
}

// quantize returns the numbers of 8 bits and the scales, or the inverses of the scales.
func (q quantizer) quantize(y *onnx.Value) []*onnx.Value {
	wide := q.widen(y)
	most := q.rowMost(choose(q.writer, y, wide))
	if q.half() {
		most = q.cast(most, onnx.Float)
	}
	limit, floor := q.most, choose(q.writer, 1e-5, 1e-12, 1e-3)
	switch {
	case q.wrong("another greatest number"):
		limit = choose(q.writer, limit+1, limit-7, 15)
	case q.wrong("floor added"):
		return q.rounded(wide, q.op("Div", q.sum(most, q.number(0.05)), q.number(limit)))
	case q.wrong("floor of another operation"):
		return q.rounded(wide, q.op("Min", q.op("Div", most, q.number(limit)), q.number(1e-3)))
	}
	if q.chance(4) {
		bounded := q.floored(most, floor)
		factor := q.op("Div", q.number(limit), bounded)
		return []*onnx.Value{q.narrow(q.product(wide, factor)), factor}
	}
	if q.chance(3) {
		return q.rounded(wide, q.floored(q.per(most, limit), floor))
	}
	return q.rounded(wide, q.per(q.floored(most, floor), limit))
}

func (q quantizer) number(x float64) *onnx.Value { return q.scalar(onnx.Float, x) }

// rowMost returns the greatest magnitude of each row.
func (q quantizer) rowMost(y *onnx.Value) *onnx.Value {
	over := []int64{q.lastAxis(q.rank)}
	switch {
	case q.wrong("scale of the whole tensor"):
		over = nil
	case q.wrong("scale along another axis"):
		over = []int64{0}
	case q.wrong("greatest of the norm's input"):
		y = q.x
	case q.wrong("greatest number"):
		return q.reduce("ReduceMax", y, over, true)
	case q.wrong("mean of the magnitudes"):
		return q.reduce("ReduceMean", q.op("Abs", y), over, true)
	}
	switch {
	case over == nil || over[0] == 0:
	case q.chance(4):
		return q.op("Unsqueeze", q.reduce("ReduceMax", q.op("Abs", y), over, false), q.ints(over[0]))
	case q.chance(6):
		least := q.op("Neg", q.reduce("ReduceMin", y, over, true))
		return q.op("Max", q.reduce("ReduceMax", y, over, true), least)
	}
	return q.reduce("ReduceMax", q.op("Abs", y), over, true)
}

// floored returns the greater of v and a number.
func (q quantizer) floored(v *onnx.Value, least float64) *onnx.Value {
	if q.chance(2) {
		return q.op("Max", v, q.number(least))
	}
	return q.op("Clip", v, q.floats(onnx.Float, []int{}, []float64{least}))
}

// per divides by a number.
func (q quantizer) per(v *onnx.Value, by float64) *onnx.Value {
	if q.chance(3) {
		return q.product(v, q.number(1/by))
	}
	return q.op("Div", v, q.number(by))
}

// rounded divides by the scale and rounds.
func (q quantizer) rounded(v, scale *onnx.Value) []*onnx.Value {
	switch {
	case q.wrong("times the scale"):
		return []*onnx.Value{q.narrow(q.op("Mul", v, scale)), scale}
	case q.opset >= 21 && q.chance(4):
		block := []any{v, scale, onnx.IntAttr("axis", -1), onnx.IntAttr("block_size", int64(q.size)),
			onnx.IntAttr("output_dtype", int64(q.to))}
		return []*onnx.Value{q.op("QuantizeLinear", block...), scale}
	case q.chance(3):
		return []*onnx.Value{q.narrow(q.product(v, q.op("Reciprocal", scale))), scale}
	}
	return []*onnx.Value{q.narrow(q.op("Div", v, scale)), scale}
}

// narrow rounds to the type of the result.
func (q quantizer) narrow(v *onnx.Value) *onnx.Value {
	least := -q.most
	switch {
	case q.to == onnx.Float8E4M3FN:
	case q.wrong("cut off"):
		return q.cast(v, q.to)
	case q.wrong("rounded down"):
		return q.cast(q.op("Floor", v), q.to)
	case q.wrong("shifted by a zero point"):
		return q.cast(q.op("Sub", q.op("Round", v), q.number(11)), q.to)
	default:
		least -= float64(q.r.IntN(2))
	}
	most := q.most
	if q.wrong("clipped to less") {
		most /= 2
	}
	clip := func(v *onnx.Value) *onnx.Value {
		if most == q.most && q.chance(4) { // nothing is greater
			return v
		}
		of := func(x float64) *onnx.Value { return q.floats(onnx.Float, []int{}, []float64{x}) }
		return q.op("Clip", v, of(least), of(most))
	}
	switch {
	case q.to == onnx.Float8E4M3FN:
		v = clip(v)
	case q.chance(3):
		v = q.op("Round", clip(v))
	default:
		v = clip(q.op("Round", v))
	}
	return q.cast(v, q.to)
}

// numbers returns the floats or the numbers of 8 bits of a tensor.
func numbers(t *reference.Tensor) []float64 {
	if v := bytes(t); v != nil {
		return v
	}
	return t.F
}

// bytes returns the numbers of a tensor of 8 bits, or nil for other types. It rounds those of exact evaluations.
func bytes(t *reference.Tensor) []float64 {
	switch t.DataType {
	case onnx.Float8E4M3FN:
		v := slices.Clone(t.F)
		for i, x := range v {
			_, e := math.Frexp(x)
			step := math.Ldexp(1, max(e-4, -9))
			v[i] = min(max(math.RoundToEven(x/step)*step, -448), 448)
		}
		return v
	case onnx.Int8:
		v := make([]float64, len(t.I))
		for i, x := range t.I {
			v[i] = float64(x)
		}
		return v
	}
	return nil
}
