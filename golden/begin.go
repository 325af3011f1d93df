package golden

import (
	"maps"
	"slices"

	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/onnx/roles"
)

// KeepsOther reports whether m keeps another form of the past than the case, so that it can only continue from a past
// that it computed itself: see WithOwnPasts.
func KeepsOther(m *onnx.Model, c Case) bool {
	return slices.ContainsFunc(roles.Find(m), func(in *roles.Input) bool { return otherPast(in, c) })
}

// Begun replaces the random past of h by one that m computes. It returns inputs for the tokens of the past, and h as a
// case that follows them (Case.Follows, case 0), so that a model that keeps another form of the past can run both.
// before is nil if h has no past.
func (h Hard) Begun(m *onnx.Model) (before *Hard, behind Case, err error) {
	behind = Case{Inputs: h.Inputs}
	inputs := findInputs(m)
	var pasts []*roles.Input
	for _, in := range inputs {
		if isPast(in.Input) {
			pasts = append(pasts, in.Input)
		}
	}
	if len(pasts) == 0 || h.sizes.past == 0 {
		return nil, behind, nil
	}
	presents, err := roles.Presents(pasts, m.Graph.Outputs)
	if err != nil {
		return nil, Case{}, err
	}
	given := maps.Clone(h.dims)
	if given == nil {
		given = map[string]int64{}
	}
	a := axes(inputs)
	for _, d := range slices.Concat(a.batch, a.sequence, a.past, a.total) {
		delete(given, d.Param)
	}
	given["batch"], given["sequence"], given["past"] = h.sizes.batch, h.sizes.past, 0
	exists := h.sizes.exists
	if exists != nil {
		total := h.sizes.past + h.sizes.sequence
		exists = func(row, token, _ int64) bool { return h.sizes.exists(row, token, total) }
	}
	// h has tokens from the same seed: use others.
	tensors, s, err := inputsOf(m, ^h.seed, given, exists)
	if err != nil {
		return nil, Case{}, err
	}
	behind.Inputs = slices.Clone(behind.Inputs)
	for i, p := range pasts {
		name := p.Value.Name
		behind.Inputs = slices.DeleteFunc(behind.Inputs, func(t *onnx.Tensor) bool { return t.Name == name })
		behind.Follows = append(behind.Follows, Follow{Input: name, Output: presents[i].Name,
			Tokens: h.sizes.past})
	}
	return &Hard{Name: "the past of " + h.Name, Inputs: tensors, sizes: s}, behind, nil
}
