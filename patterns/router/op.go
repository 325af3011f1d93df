package router

import (
	"slices"

	"github.com/mojo-patch/mojo-patch/fused"
	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/patterns/probe"
	"github.com/mojo-patch/mojo-patch/reference"
)

// valuesOf lists the values of an attribute of the op.
func valuesOf(attribute string) []string {
	list := fused.Lookup(fused.TopKRouterName).Attributes
	return list[slices.IndexFunc(list, func(a fused.AttributeSpec) bool { return a.Name == attribute })].Values
}

// answer is a router's result for some rows of logits: k experts for each, and their weights.
type answer struct {
	ids     []int64
	weights []float64
}

// apply returns the op's answer for rows of logits.
func (h *Router) apply(logits, bias []float64, experts int) (*answer, error) {
	if h.Sharpness != 1 {
		logits = slices.Clone(logits)
		for i := range logits {
			logits[i] *= h.Sharpness
		}
	}
	inputs := []*reference.Tensor{reference.NewFloats(onnx.Float, []int{len(logits) / experts, experts}, logits)}
	if bias != nil {
		inputs = append(inputs, reference.NewFloats(onnx.Float, []int{experts}, bias))
	}
	out, err := probe.Fused(h.Op(), h.budget.SpendOrFail, inputs...)
	if err != nil {
		return nil, err
	}
	return &answer{out[1].I, out[0].F}, nil
}
