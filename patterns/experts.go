package patterns

import (
	"cmp"
	"fmt"

	"github.com/mojo-patch/mojo-patch/onnx"
)

// moeForm finds the experts of a mixture: what becomes of tokens between the router's choice and the weighted sum.
var moeForm = &goForm{name: "MoE", op: "MoE"}

func init() { moeForm.find = findExperts }

// experts are what a region computes with, as far as it can be read from the graph: a hypothesis, which the check holds
// against the nodes of the region for all experts.
type experts struct {
	gateUp *stack // gate and up as one product, or the only product where there is no gate
	// gate and up are the weights of two products; gateUp is nil then.
	gate, up *stack
	down     *stack

	gateUpBias, gateBias, upBias, downBias *stack // nil where there is none

	unit   *unit
	scaled bool // the weights are factors of what goes into the experts, not of what comes out
}

// stack is a weight or a bias of all experts: a place in an initializer for each.
type stack struct {
	blocks []*weightBlock
	dims   []int64 // of all blocks, one after the other
	inOut  bool    // a matrix is stored as [in, out], and not as [out, in] like those of torch.nn.Linear
}

func findExperts(f *finder) []*Match {
	g := f.view
	var matches []*Match
	for _, r := range routings(g) {
		m, at, why := f.expertsBehind(r)
		if m == nil {
			f.note(moeForm.name, r.topK, at, why)
			continue
		}
		matches = append(matches, m)
	}
	return matches
}

// expertsBehind finds the experts that a router chooses; where and why not otherwise.
func (f *finder) expertsBehind(r *routing) (m *Match, at *onnx.Node, why string) {
	regions, why := regionsOf(f.view, r, nil)
	if len(regions) == 0 {
		return nil, r.topK, why
	}
	if m, at, why = f.expertsAmong(regions); m != nil || r.k > 1 {
		return m, at, why
	}
	// Where each token goes to one expert, rows in the order of the experts look like the sums for the tokens.
	for range maxEnds {
		if regions, _ = regionsOf(f.view, r, regions[0].y.Producer); len(regions) == 0 {
			break
		}
		if m, _, _ := f.expertsAmong(regions); m != nil {
			return m, nil, ""
		}
	}
	return nil, at, why
}

// expertsAmong finds the experts of one of the regions, which have one y.
func (f *finder) expertsAmong(regions []*region) (m *Match, at *onnx.Node, why string) {
	for _, reg := range regions {
		if at, why := countsTokens(f.view, reg); at != nil {
			return nil, at, why
		}
		m, reason := f.expertsIn(reg)
		if m != nil {
			return m, nil, ""
		}
		if why = cmp.Or(why, reason); reg.sure {
			why = reason
			break
		}
	}
	r := regions[0]
	return nil, r.y.Producer, cmp.Or(why, fmt.Sprintf("the weights of %d experts are not found among what is multiplied with the tokens", r.routing.experts))
}

// expertsIn finds the experts of a region; why not otherwise.
func (f *finder) expertsIn(reg *region) (m *Match, why string) {
	e, why := f.readExperts(reg)
	if e == nil {
		return nil, why
	}
	return f.expertsMatch(reg, e)
}
