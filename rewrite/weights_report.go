package rewrite

import (
	"fmt"
	"slices"

	"github.com/mojo-patch/mojo-patch/fused"
	"github.com/mojo-patch/mojo-patch/onnx"
)

// WeightsReport counts the weights of experts, as matrices (and bias vectors) of one expert each: gate, up and down, or
// two without a gate.
type WeightsReport struct {
	// Expected is the number that the op needs for all experts, and Packed the number found and now in its inputs.
	// Missing counts the others: weights that are not constant, or that repeat another expert's.
	Expected int `json:"expected"`
	Packed   int `json:"packed"`
	Missing  int `json:"missing"`
	// Unexpected counts other tensors that the replaced nodes read: no op has them any more. Names lists them.
	Unexpected int      `json:"unexpected"`
	Names      []string `json:"unexpected_names,omitempty"`
	// Stored counts the matrices of Packed that are already in the op's layout and stay unchanged; Bytes is the size of
	// the others.
	Stored int   `json:"stored"`
	Bytes  int64 `json:"bytes"`
}

// add sums the counts; names are kept only for sites.
func (w *WeightsReport) add(o *WeightsReport) {
	w.Expected += o.Expected
	w.Packed += o.Packed
	w.Missing += o.Missing
	w.Unexpected += o.Unexpected
	w.Stored += o.Stored
	w.Bytes += o.Bytes
}

// Text returns the report in words.
func (w *WeightsReport) Text() string {
	text := fmt.Sprintf("%d expected, %d packed, %d missing, %d unexpected", w.Expected, w.Packed, w.Missing,
		w.Unexpected)
	if w.Stored > 0 {
		text += fmt.Sprintf("; %d of them as they are stored", w.Stored)
	}
	return text
}

// The inputs of a mixture's op that hold weights of experts, with experts on the first axis, and the number of matrices
// per expert in each.
var expertWeights = map[string]func(fused.Site) int{
	"gate_up":      gateAndUp,
	"gate_up_bias": gateAndUp,
	"down":         func(fused.Site) int { return 1 },
	"down_bias":    func(fused.Site) int { return 1 },
}

func gateAndUp(s fused.Site) int {
	if s.Attr(fused.AttrPacking).String == "none" {
		return 1
	}
	return 2
}

// weights counts the experts' weights of a candidate, or returns nil if it has no experts.
func (c *candidate) weights() *WeightsReport {
	var r *WeightsReport
	packed := map[*onnx.Tensor]bool{}
	widths := map[int64]bool{1: false} // of rows and vectors of weights
	for _, call := range c.Calls {
		if call.Op.Name != fused.MoEName || call.Node.Graph == nil {
			continue // a target's op has other weights
		}
		if r == nil {
			r = &WeightsReport{}
		}
		for i, v := range call.Node.Inputs {
			if each := expertWeights[call.Op.Inputs[i].Name]; each != nil && v != nil {
				stored := slices.Contains(c.Match.Replacement.Inputs, v) && c.IsConstant(v) // data may be missing
				r.count(call.Site.Dims[i], each(call.Site), c.constants[v], stored, packed)
				for _, d := range call.Site.Dims[i][min(1, len(call.Site.Dims[i])):] {
					widths[d] = d > 1
				}
			}
		}
	}
	if r == nil {
		return nil
	}
	for _, v := range c.ConstantsRead() {
		if t := v.Constant(); t.DataType.IsFloat() && len(t.Dims) > 0 && widths[t.Dims[len(t.Dims)-1]] && !packed[t] {
			r.Unexpected++
			r.Names = append(r.Names, v.Name)
		}
	}
	return r
}

// count adds one input of this shape.
func (r *WeightsReport) count(dims []int64, each int, k *constant, stored bool,
	packed map[*onnx.Tensor]bool) {
	if len(dims) == 0 || dims[0] <= 0 {
		return
	}
	expected := int(dims[0]) * each
	r.Expected += expected
	switch {
	case k == nil && stored:
		r.Packed += expected
		r.Stored += expected
	case k == nil:
		r.Missing += expected
	case !k.folded:
		packed[k.tensor] = true
		r.Packed += expected
		r.Stored += expected
	default:
		elements := int64(0) // of all tensors that the weights come from
		seen := map[*onnx.Tensor]bool{}
		for _, t := range k.sources {
			if !seen[t] {
				seen[t], packed[t] = true, true
				elements += max(t.Len(), 0)
			}
		}
		found := expected
		if one := k.tensor.Len() / int64(expected); one > 0 {
			found = int(min(int64(expected), elements/one))
		}
		r.Packed += found
		r.Missing += expected - found
		r.Bytes += k.tensor.Size()
	}
}

// sumWeights sums the experts' weights of the fused sites, or returns nil without experts.
func (r *Report) sumWeights() *WeightsReport {
	var sum *WeightsReport
	for _, s := range r.Sites {
		if s.Status == Fused && s.Weights != nil {
			if sum == nil {
				sum = &WeightsReport{}
			}
			sum.add(s.Weights)
		}
	}
	return sum
}
