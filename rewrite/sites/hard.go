package sites

import (
	"math"
	"math/rand/v2"
	"slices"

	"github.com/mojo-patch/mojo-patch/fused"
	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/reference"
	"github.com/mojo-patch/mojo-patch/rewrite/prove"
)

// HardInputs is one kind of the inputs that sites are checked on, for trying a kernel outside of a model.
type HardInputs struct {
	// Name describes the difficulty, such as "small".
	Name string
	// of returns the kind of numbers of an input.
	of func(s fused.Site, input int) prove.Kind
	// padding is the padding of attention's keys.
	padding prove.Padding
}

// HardInputsOf lists the kinds that the check of an op's sites uses. It leaves out kinds on which correct results
// differ: scores so close that the choice of experts is open, and numbers that vanish in the site's types. Sites with
// the same types have the same kinds.
func HardInputsOf(op *fused.Op, s fused.Site) []HardInputs {
	if hard := policies[op.Name].hard; hard != nil {
		return hard(s, coarsestOf(s.Types))
	}
	var list []HardInputs
	for _, k := range prove.Kinds {
		of := func(s fused.Site, input int) prove.Kind { return k.Of(s.Dims, input) }
		list = append(list, HardInputs{k.Name, of, prove.NoPadding})
	}
	return list
}

// hardAttention returns all paddings and scores.
func hardAttention(s fused.Site, coarse onnx.DataType) (list []HardInputs) {
	for i, t := range attentionTrials(s, coarse, 0, false) {
		list = append(list, HardInputs{t.name, func(s fused.Site, input int) prove.Kind {
			return attentionTrials(s, coarse, 0, false)[i].of(s, input)
		}, t.padding})
	}
	return list
}

// hardLatents returns all paddings.
func hardLatents(fused.Site, onnx.DataType) (list []HardInputs) {
	for _, p := range prove.Paddings {
		list = append(list, HardInputs{p.Name, always(prove.Normal), p})
	}
	return list
}

// hardLogits returns the kinds that leave no choice open.
func hardLogits(fused.Site, onnx.DataType) (list []HardInputs) {
	for _, k := range append(slices.Clone(prove.Kinds), wide) {
		if !unsettled(k.Name) {
			list = append(list, HardInputs{k.Name, first(k), prove.NoPadding})
		}
	}
	return list
}

// hardTokens returns the kinds of experts' tokens that the type can hold.
func hardTokens(_ fused.Site, coarse onnx.DataType) (list []HardInputs) {
	for _, k := range append([]prove.Kind{prove.Normal}, expertKinds...) {
		if holdsKind(k, coarse) {
			list = append(list, HardInputs{k.Name, first(k), prove.NoPadding})
		}
	}
	return list
}

// always uses one kind for all inputs.
func always(k prove.Kind) func(fused.Site, int) prove.Kind {
	return func(fused.Site, int) prove.Kind { return k }
}

// first uses a kind for the first input, which holds the tokens. Weights are normal.
func first(k prove.Kind) func(fused.Site, int) prove.Kind {
	return func(_ fused.Site, input int) prove.Kind {
		if input == 0 {
			return k
		}
		return prove.Normal
	}
}

// of returns the kind of an input of Attention.
func (t attentionTrial) of(s fused.Site, input int) prove.Kind {
	switch input {
	case fused.AttentionQ, fused.AttentionK, fused.AttentionPastKey:
		return t.scores
	case fused.AttentionV, fused.AttentionPastValue:
		return t.values
	case fused.AttentionBias:
		if t.padding.Empty && !hasMask(s) {
			return masking
		}
	}
	return prove.Normal
}

// fewNumbers bounds the integers that are tried: expert ids and cache lengths.
const fewNumbers = 3

// Numbers names the numbers that Tensor puts into an input of a site. Kinds with the same name use the same numbers.
func (h HardInputs) Numbers(op *fused.Op, s fused.Site, input int) string {
	switch {
	case op.Inputs[input].Name == "key_valid":
		return h.padding.Name
	case s.Types[input] == onnx.Undefined || s.Types[input].IsInteger():
		return ""
	}
	if k := h.of(s, input); k.Name != prove.Normal.Name {
		return h.Name + ", " + k.Name
	}
	return prove.Normal.Name
}

// Tensor returns an input of a site, always with the same elements, or nil for an input that the site leaves out.
func (h HardInputs) Tensor(op *fused.Op, s fused.Site, input int) (*reference.Tensor, error) {
	t, shape := s.Types[input], s.Dims[input]
	switch {
	case t == onnx.Undefined:
		return nil, nil
	case op.Inputs[input].Name == "key_valid":
		return h.padding.Tensor(t, shape), nil
	case t == onnx.Int32 && (op.Name == fused.PagedAttentionName || op.Name == fused.QPagedAttentionName):
		return reference.NewInts(t, ints(shape), fused.PagedNumbers(s, input)), nil
	case t.IsInteger():
		r := rand.New(rand.NewPCG(uint64(input)+1, fewNumbers))
		v := make([]int64, prove.Elements([][]int64{shape}))
		for i := range v {
			v[i] = r.Int64N(fewNumbers)
		}
		return reference.NewInts(t, ints(shape), v), nil
	}
	made, err := prove.MakeInput(h.of(s, input), input, t, shape)
	if err == nil && op.Inputs[input].Type == "V" && len(shape) == 3 { // one matrix per expert
		for i, x := range made.F {
			made.F[i] = prove.RoundTo(t, x*matrixScale(shape))
		}
	}
	return made, err
}

// outlier rows contain one number whose square overflows the type; the other numbers are normal.
var outlier = prove.Kind{Name: "outlier", Fill: func(r *rand.Rand, t onnx.DataType, v []float64, row int) {
	for i := range v {
		if v[i] = r.NormFloat64(); row > 0 && i%row == i/row%row {
			v[i] = 2 * math.Sqrt(prove.Greatest(t))
		}
	}
}}

// kinds returns the kinds of a list. For a site that computes in float16 it adds outliers, because activations of real
// models reach 256, and the square of 256 overflows float16. For a norm without an epsilon it adds slight rows.
func (c *Site) kinds(list []prove.Kind) []prove.Kind {
	if c.withoutEpsilon() {
		list = append(slices.Clip(list), prove.Slight)
	}
	if c.narrowest == onnx.Float16 {
		return append(slices.Clip(list), outlier)
	}
	return list
}

// withoutEpsilon reports whether the op of a site is a norm that adds nothing to the mean of the squares. If that mean
// is subnormal, its rounding determines the result. The results differ if the nodes sum the squares and the op takes
// their mean, or if the nodes round only a length.
func (c *Site) withoutEpsilon() bool {
	return slices.ContainsFunc(c.Calls, func(call *Call) bool {
		a := call.Site.Attr(fused.AttrEpsilon)
		return a.Name != "" && a.Float == 0
	})
}
