package router

import (
	"slices"

	"github.com/mojo-patch/mojo-patch/fused"
	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/patterns/probe"
	"github.com/mojo-patch/mojo-patch/reference"
)

// opOpset is the opset of the definition that regions are compared with.
const opOpset = 18

// valuesOf lists the values of an attribute of the op.
func valuesOf(attribute string) []string {
	list := fused.Lookup("TopKRouter").Attributes
	return list[slices.IndexFunc(list, func(a fused.AttributeSpec) bool { return a.Name == attribute })].Values
}

// answer is what a router gives for some rows of logits: k experts for each, and their weights.
type answer struct {
	ids     []int64
	weights []float64
}

// apply returns what the op gives for rows of logits, by the catalogue's definition and without roundings.
func (h *Router) apply(logits, bias []float64, experts int) (*answer, error) {
	rows := len(logits) / experts
	if h.Sharpness != 1 {
		sharp := make([]float64, len(logits))
		for i, z := range logits {
			sharp[i] = z * h.Sharpness
		}
		logits = sharp
	}
	g := onnx.NewFunction("", "", "", opOpset).Body
	site := fused.Site{Attributes: h.Attributes(), Opset: opOpset}
	env := probe.Values{}
	var inputs []*onnx.Value
	input := func(name string, shape []int, elements []float64) {
		v := g.AddInput(name, onnx.Type{})
		env[v] = reference.NewFloats(onnx.Float, shape, elements)
		inputs = append(inputs, v)
		site.Types = append(site.Types, onnx.Float)
		site.Dims = append(site.Dims, env[v].Dims())
	}
	input("logits", []int{rows, experts}, logits)
	if bias != nil {
		input("correction_bias", []int{experts}, bias)
	}
	f, err := fused.Lookup("TopKRouter").Function(site)
	if err != nil {
		return nil, err
	}
	out := []*onnx.Value{g.NewValue("weights"), g.NewValue("ids")}
	n := g.AddNode(f.Name, inputs, out, site.Attributes...)
	n.Domain, n.Overload = f.Domain, f.Overload
	e := reference.NewForOpset(opOpset, []*onnx.Function{f},
		reference.Options{Exact: true, Spend: h.budget.SpendOrFail})
	if _, err := e.EvalFor([]*onnx.Node{n}, env, out); err != nil {
		return nil, err
	}
	return &answer{env[out[1]].I, env[out[0]].F}, nil
}
