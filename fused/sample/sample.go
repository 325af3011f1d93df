// Package sample has Sample.
package sample

import (
	"encoding/binary"
	"errors"
	"math"

	"github.com/mojo-patch/mojo-patch/fused/op"
	"github.com/mojo-patch/mojo-patch/onnx"
)

// Ops lists the ops of the package in the order of the documentation.
var Ops = []*op.Op{Op}

// The columns of Sample's input controls.
const (
	Temperature = iota
	TopK
	TopP
	MinP
	Repetition
	Frequency
	Presence
	Controls // the number of columns
)

// Most is the greatest number of tokens of a vocabulary: the weights of so many tokens have a sum below 2^62.
const Most = 1 << 22

// Randoms is the number of random numbers.
const Randoms = 1 << 53

// One is the weight of the likeliest token, and LeastExponent is below the logarithm of the least weight, 1/One.
const (
	One           = 1 << 40
	LeastExponent = -29
)

// The constants of the exponential: an integer times Ln2High is exact, and both parts of ln 2 add up to it.
const (
	Log2E   = 1.4426950408889634
	Ln2High = 0x1.62e42feep-1
	Ln2Low  = 1.90821492927058770002e-10
)

// Terms are the coefficients of the exponential's polynomial, from the highest power on: 1/n!.
var Terms = func() []float64 {
	list, factorial := make([]float64, 12), 1.0
	for n := range list {
		list[len(list)-1-n] = 1 / factorial
		factorial *= float64(n + 1)
	}
	return list
}()

// Op chooses the next token of each sequence.
var Op = &op.Op{
	Name:    "Sample",
	Summary: "Chooses a token of each row of logits: penalties, temperature, top-k, top-p, min-p and a random number.",
	Formula: []string{
		"l = float32(logits);  t, k, p, m, r, f, q = columns of controls",
		"tokens given: for each id of the row from 0 to V-1, with n = how often it is at or after place prompt:",
		"  l = r is 0 ? l : l < 0 ? l * r : l / r;  l = l - f * n;  l = n > 0 ? l - q : l",
		"t = 0: id = the token of the greatest l, the lowest of equal ones. Otherwise:",
		"  w = round(2^40 * exp(float64(l / t) - float64(max(l) / t))), exp by a polynomial, with the same bits on " +
			"every device",
		"  kept, by descending l and ascending id: tokens with l >= the k-th greatest (k = 0: all), then those " +
			"before which the w sum to less than p * sum(w)",
		"  (p = 0 and 1: all), then those with w >= m * 2^40",
		"  id = the first token whose kept w, summed by ascending ids, exceed random * 2^-53 * sum(kept w)",
		"id = -1 if a logit is NaN or +infinity, if all are -infinity, if max(l) / t is infinite, or if a control is " +
			"out of range",
	},
	Source: "transformers' RepetitionPenaltyLogitsProcessor, TemperatureLogitsWarper, TopKLogitsWarper, " +
		"TopPLogitsWarper and MinPLogitsWarper; the OpenAI API has the other penalties, and vLLM their order",
	Family: &op.Family{Name: "sampling", Summary: "the choice of the next token behind the logits: apply --sample",
		Stored: true},
	Devices: []op.Device{op.CPU, op.CUDA},
	Inputs: []op.Param{
		{Name: "logits", Type: "T", Dims: "R V"},
		{Name: "controls", Type: "float32", Dims: "R 7", Doc: "temperature (0: greedy), top-k (0: all), top-p and " +
			"min-p (0 to 1), repetition (0: off), frequency and presence penalty (-2 to 2)"},
		{Name: "random", Type: "int64", Dims: "R", Doc: "0 to 2^53-1, drawn by the caller from the row's seed"},
		{Name: "tokens", Type: "int64", Dims: "R L", Doc: "earlier tokens of the row; -1 fills it up", Optional: true},
		{Name: "prompt", Type: "int64", Dims: "R", Doc: "the number of tokens of the prompt, which come first",
			Optional: true},
	},
	Outputs: []op.Param{{Name: "ids", Type: "int64", Dims: "R", Doc: "tokens, 0 to V-1, or -1"}},
	Types:   op.Independent("T"),
	Where: []op.Relation{
		{Text: "1 <= V", Doc: "a token"},
		{Text: "V <= 4194304", Doc: "no more tokens than their weights can be summed"},
	},
	Check: func(s op.Site) error {
		if s.Has(SampleTokens) != s.Has(SamplePrompt) {
			return errors.New("mojo.Sample takes tokens and prompt together")
		}
		return nil
	},
	Shapes: func(op.Site) [][][]int64 {
		return [][][]int64{{{5, 22}, {5, Controls}, {5}}, {{3, 70}, {3, Controls}, {3}, {3, 9}, {3}}}
	},
	Wide: func(form op.FormMaker) []op.Form {
		const v = 32064
		return []op.Form{form([][]int64{{2, v}, {2, Controls}, {2}, {2, 64}, {2}})}
	},
	Variant: func(s op.Site) string { return "sample" + op.IfGiven(s, SampleTokens, "_penalties") },
	Body:    body,
}

// sampler builds the body. Values of one number for each row are [R, 1].
type sampler struct {
	*op.Body
	zero *onnx.Value // int64
}

func body(b *op.Body, site op.Site) []*onnx.Value {
	s := &sampler{b, b.Integers("zero", 0)}
	l := b.Float32("logits_32", b.In[SampleLogits])
	if site.Has(SampleTokens) {
		l = s.penalized(l)
	}
	lo := b.Constant("least_controls", onnx.TensorAttr("value",
		onnx.NewFloat32s("", []int64{Controls}, []float32{0, 0, 0, 0, 0, -2, -2})))
	most := float32(math.MaxFloat32)
	hi := b.Constant("most_controls", onnx.TensorAttr("value",
		onnx.NewFloat32s("", []int64{Controls}, []float32{most, most, 1, 1, most, 2, 2})))
	controls, greatest := b.In[SampleControls], b.Number("greatest_number", most)
	ok := s.all("controls_ok", b.Call("controls_in_range", "And", b.Call("enough", "GreaterOrEqual", controls, lo),
		b.Call("not_too_much", "LessOrEqual", controls, hi)), "ReduceMin")
	ok = b.Call("no_nan", "And", ok, s.all("numbers", b.Call("is_number", "LessOrEqual", l, greatest), "ReduceMin"))
	ok = b.Call("some_finite", "And", ok, s.all("finite", b.Call("is_finite", "GreaterOrEqual", l,
		b.Number("least_number", -most)), "ReduceMax"))
	l = b.Call("sane", "Where", ok, l, b.Number("nothing", 0)) // NaN has no order

	sorted, ids := b.TopK("sorted", "sorted_ids", l, b.Size("vocabulary", l, 1))
	t := s.control("temperature", Temperature)
	samples := b.Call("samples", "Greater", t, b.Number("greedy", 0))
	scaled := b.Call("scaled", "Div", sorted, b.Call("divisor", "Where", samples, t, b.Number("one", 1)))
	first := b.Slice("first", scaled, nil, b.Integers("one_end", 1), 1)
	ok = b.Call("no_overflow", "And", ok, b.Call("divides", "LessOrEqual", b.Call("first_abs", "Abs", first), greatest))
	w := s.weights(scaled, first)
	w = s.kept(sorted, w)

	none := b.Call("none", "Mul", ids, s.zero)
	byID := b.Op("by_id", "ScatterElements", []*onnx.Value{none, ids, w}, onnx.IntAttr("axis", 1))
	total := s.sum("kept_total", byID)
	random := b.Call("random_column", "Unsqueeze", b.In[SampleRandom], b.Integers("last", -1))
	random = b.Call("random", "Max", s.zero, b.Call("random_least", "Min", random, b.Integers("most", Randoms-1)))
	u := b.Call("fraction", "Mul", s.double("random_64", random), s.number("grain", 1.0/Randoms))
	target := s.integer("target_any", b.Call("target_64", "Mul", u, s.double("kept_total_64", total)))
	target = b.Call("target", "Max", s.zero, b.Call("target_least", "Min", target,
		b.Call("target_most", "Sub", total, b.Integers("one_int", 1))))
	passed := b.Call("passed", "LessOrEqual", b.Call("summed", "CumSum", byID, s.axis()), target)
	drawn := s.sum("drawn", s.integer("passed_int", passed))
	id := b.Call("chosen", "Where", samples, drawn, s.likeliest(sorted, ids))
	id = b.Call("known", "Where", ok, id, b.Integers("unknown", -1))
	return []*onnx.Value{b.Call("ids", "Squeeze", id, b.Integers("last", -1))}
}

// likeliest returns the lowest id of the greatest logit. onnxruntime's CUDA provider does not sort equal logits by id.
func (s *sampler) likeliest(sorted, ids *onnx.Value) *onnx.Value {
	most := s.Slice("most", sorted, nil, s.Integers("one_end", 1), 1)
	of := s.Call("candidates", "Where", s.Call("is_most", "Equal", sorted, most), ids,
		s.Size("vocabulary", sorted, 1))
	least := s.Greatest("least_minus", s.Call("minus", "Neg", s.Float32("candidates_32", of)))
	return s.integer("likeliest", s.Call("least_id", "Neg", least))
}

// penalized applies the penalties: to the logits of all places of tokens, which are equal for equal tokens. A column is
// added to the logits for ids outside the vocabulary.
func (s *sampler) penalized(l *onnx.Value) *onnx.Value {
	tokens, size := s.In[SampleTokens], s.Size("vocabulary", l, 1)
	inside := s.Call("is_token", "And", s.Call("not_negative", "GreaterOrEqual", tokens, s.zero),
		s.Call("in_vocabulary", "Less", tokens, size))
	at := s.Call("at", "Where", inside, tokens, size)
	padded := s.Call("padded", "Pad", l, s.Integers("one_column", 0, 0, 0, 1))
	old := s.Op("old", "GatherElements", []*onnx.Value{padded, at}, onnx.IntAttr("axis", 1))

	ones := s.Call("ones", "Add", s.Call("zeros", "Mul", at, s.zero), s.Integers("one_int", 1))
	place := s.Op("place", "CumSum", []*onnx.Value{ones, s.axis()}, onnx.IntAttr("exclusive", 1))
	later := s.Call("generated", "GreaterOrEqual", place, s.Call("prompt_column", "Unsqueeze", s.In[SamplePrompt],
		s.Integers("last", -1)))
	same := s.Call("same", "Equal", s.Call("at_column", "Unsqueeze", at, s.Integers("last", -1)),
		s.Call("at_row", "Unsqueeze", at, s.Integers("middle", 1)))
	same = s.Call("same_generated", "And", same, s.Call("generated_row", "Unsqueeze", later, s.Integers("middle", 1)))
	// onnxruntime's CUDA provider drops no dimension that it reduces from 0 elements.
	n := s.Call("times", "Squeeze", s.sum("times_column", s.Float32("same_32", same)), s.Integers("last", -1))

	nothing, r := s.Number("nothing", 0), s.control("repetition", Repetition)
	r = s.Call("factor", "Where", s.Call("no_penalty", "Equal", r, nothing), s.Number("one", 1), r)
	v := s.Call("repeated", "Where", s.Call("negative", "Less", old, nothing), s.Call("times_factor", "Mul", old, r),
		s.Call("by_factor", "Div", old, r))
	v = s.Call("frequent", "Sub", v, s.Call("all_times", "Mul", s.control("frequency", Frequency), n))
	v = s.Call("present", "Where", s.Call("is_generated", "Greater", n, nothing),
		s.Call("less_presence", "Sub", v, s.control("presence", Presence)), v)
	all := s.Op("penalized_padded", "ScatterElements", []*onnx.Value{padded, at, v}, onnx.IntAttr("axis", 1))
	return s.Slice("penalized", all, nil, size, 1)
}

// weights returns the weights of logits that are divided by the temperature; first has the greatest of each row.
func (s *sampler) weights(scaled, first *onnx.Value) *onnx.Value {
	d := s.Call("distance_any", "Sub", s.double("scaled_64", scaled), s.double("first_64", first))
	least := s.number("least_exponent", LeastExponent)
	d = s.Call("distance", "Where", s.Call("counts", "GreaterOrEqual", d, least), d, least) // NaN too
	n := s.Call("power", "Round", s.Call("log2", "Mul", d, s.number("log2e", Log2E)))
	x := s.Call("x_high", "Sub", d, s.Call("power_high", "Mul", n, s.number("ln2_high", Ln2High)))
	x = s.Call("x", "Sub", x, s.Call("power_low", "Mul", n, s.number("ln2_low", Ln2Low)))
	y := s.number("term", Terms[0])
	for _, c := range Terms[1:] {
		y = s.Call("sum", "Add", s.Call("product", "Mul", y, x), s.number("term", c))
	}
	const lowest = -42 // LeastExponent as a power of 2
	powers := make([]float64, 1-lowest)
	for i := range powers {
		powers[i] = math.Ldexp(One, lowest+i)
	}
	table := s.doubles("powers", []int64{int64(len(powers))}, powers)
	scale := s.Call("scale", "Gather", table, s.integer("power_at", s.Call("power_from", "Sub", n,
		s.number("lowest", lowest))))
	return s.integer("weights", s.Call("rounded", "Round", s.Call("exponential", "Mul", y, scale)))
}

// kept returns the weights with zeros for the tokens that top-k, top-p and min-p drop.
func (s *sampler) kept(sorted, w *onnx.Value) *onnx.Value {
	size := s.Size("vocabulary", sorted, 1)
	k := s.integer("k", s.control("top_k", TopK))
	k = s.Call("k_used", "Where", s.Call("k_limits", "And", s.Call("k_given", "Greater", k, s.zero),
		s.Call("k_small", "Less", k, size)), k, size)
	kth := s.Op("kth", "GatherElements", []*onnx.Value{sorted, s.Call("k_at", "Sub", k, s.Integers("one_int", 1))},
		onnx.IntAttr("axis", 1))
	w = s.Call("top_k_weights", "Where", s.Call("in_top_k", "GreaterOrEqual", sorted, kth), w, s.zero)

	total, p, unit := s.sum("total", w), s.control("top_p", TopP), s.Number("one", 1)
	all := s.Call("p_all", "Or", s.Call("p_none", "LessOrEqual", p, s.Number("nothing", 0)),
		s.Call("p_full", "GreaterOrEqual", p, unit))
	mass := s.integer("mass_any", s.Call("mass_64", "Ceil", s.Call("mass_real", "Mul", s.double("p", p),
		s.double("total_64", total))))
	mass = s.Call("mass", "Where", all, total, mass)
	before := s.Op("before", "CumSum", []*onnx.Value{w, s.axis()}, onnx.IntAttr("exclusive", 1))
	in := s.Call("in_top_p", "Less", before, mass)

	least := s.integer("least", s.Call("least_64", "Ceil", s.Call("least_real", "Mul",
		s.double("m", s.control("min_p", MinP)), s.number("one_weight", One))))
	in = s.Call("in_all", "And", in, s.Call("in_min_p", "GreaterOrEqual", w, least))
	return s.Call("kept", "Where", in, w, s.zero)
}

// control returns a column of the controls.
func (s *sampler) control(name string, column int64) *onnx.Value {
	return s.Slice(name, s.In[SampleControls], s.Integers("start", column), s.Integers("end", column+1), 1)
}

// all reduces booleans of each row to whether all are true (ReduceMin) or any (ReduceMax).
func (s *sampler) all(name string, v *onnx.Value, reduce string) *onnx.Value {
	v = s.Float32(name+"_32", v)
	if reduce == "ReduceMin" {
		v = s.Call(name+"_least", "Neg", s.Greatest(name+"_greatest", s.Call(name+"_minus", "Neg", v)))
	} else {
		v = s.Greatest(name+"_greatest", v)
	}
	return s.Op(name, "Cast", []*onnx.Value{v}, onnx.IntAttr("to", int64(onnx.Bool)))
}

func (s *sampler) sum(name string, v *onnx.Value) *onnx.Value {
	return s.Op(name, "ReduceSum", []*onnx.Value{v, s.Integers("last", -1)}, onnx.IntAttr("keepdims", 1))
}

// axis returns the axis of the vocabulary as CumSum takes it.
func (s *sampler) axis() *onnx.Value { return s.Constant("axis", onnx.IntAttr("value_int", 1)) }

func (s *sampler) double(name string, v *onnx.Value) *onnx.Value {
	return s.Op(name, "Cast", []*onnx.Value{v}, onnx.IntAttr("to", int64(onnx.Double)))
}

func (s *sampler) integer(name string, v *onnx.Value) *onnx.Value {
	return s.Op(name, "Cast", []*onnx.Value{v}, onnx.IntAttr("to", int64(onnx.Int64)))
}

func (s *sampler) number(name string, v float64) *onnx.Value {
	return s.doubles(name, nil, []float64{v})
}

func (s *sampler) doubles(name string, dims []int64, list []float64) *onnx.Value {
	var bytes []byte
	for _, v := range list {
		bytes = binary.LittleEndian.AppendUint64(bytes, math.Float64bits(v))
	}
	t, err := onnx.NewTensor("", onnx.Double, dims, bytes)
	if err != nil {
		panic(err) // the bytes are as many as the dimensions say
	}
	return s.Constant(name, onnx.TensorAttr("value", t))
}
