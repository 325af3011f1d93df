package moe

import (
	"slices"
	"sync"

	"github.com/mojo-patch/mojo-patch/fused"
	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/reference"
)

// unitOpset is the opset of the definitions that evaluate units.
const unitOpset = 18

// unitActivations lists the activations of mojo.MoE.
var unitActivations = sync.OnceValue(func() []string {
	list := fused.Lookup(fused.MoEName).Attributes
	is := func(a fused.AttributeSpec) bool { return a.Name == fused.AttrActivation }
	return list[slices.IndexFunc(list, is)].Values
})

// point is a unit with one number for gate and one for up.
type point struct {
	unit     *unit
	gate, up float64
}

// evaluate returns the units' results for the numbers, by the catalogue's definition. Units that differ only in numbers
// are evaluated together: their attributes are columns of a tensor.
func evaluate(points []point) []float64 {
	result := make([]float64, len(points))
	byForm := map[unitForm][]int{}
	for i, p := range points {
		byForm[p.unit.form()] = append(byForm[p.unit.form()], i)
	}
	for _, at := range byForm {
		for i, x := range points[at[0]].unit.body().evaluate(points, at) {
			result[at[i]] = x
		}
	}
	return result
}

// of returns the unit's result for one gate and one up; up does not matter without a gate.
func (u *unit) of(gate, up float64) float64 { return evaluate([]point{{u, gate, up}})[0] }

// unitBody is the definition of mojo.MoE between its products.
type unitBody struct {
	nodes   []*onnx.Node
	h, a    *onnx.Value
	gated   bool
	numbers map[*onnx.Value]string // the attributes that constants of the body refer to
}

// unitForm identifies units with the same definition.
type unitForm struct {
	activation              string
	limited, shifted, gated bool
}

func (u *unit) form() unitForm {
	return unitForm{u.activation, u.limit > 0, u.offset != 0, u.packing != "none"}
}

// body returns the definition that computes the unit.
func (u *unit) body() *unitBody {
	v, gated := *u, u.packing != "none"
	if gated {
		v.packing = "halves" // of one gate and one up
	}
	f := fused.MoEUnit(v.op("out_in", "out_in").Attributes(), unitOpset).Body
	b := &unitBody{h: f.Inputs[0], a: f.Outputs[0], gated: gated, numbers: map[*onnx.Value]string{}}
	for _, n := range f.Nodes {
		if a := n.Attr("value_float"); a != nil && a.RefName != "" {
			b.numbers[n.Outputs[0]] = a.RefName
		} else {
			b.nodes = append(b.nodes, n)
		}
	}
	return b
}

// evaluate computes the points at the given indices.
func (b *unitBody) evaluate(points []point, at []int) []float64 {
	var h []float64
	for _, i := range at {
		p := points[i]
		if h = append(h, p.gate); b.gated {
			h = append(h, p.up)
		}
	}
	env := map[*onnx.Value]*reference.Tensor{b.h: reference.NewFloats(onnx.Float, []int{len(at), len(h) / len(at)}, h)}
	for v, name := range b.numbers {
		column := make([]float64, len(at))
		for k, i := range at {
			column[k] = points[i].unit.number(name)
		}
		env[v] = reference.NewFloats(onnx.Float, []int{len(at), 1}, column)
	}
	if err := reference.NewForOpset(unitOpset, nil, reference.Options{Exact: true}).Eval(b.nodes, env); err != nil {
		panic(err) // a bug here, which any test catches
	}
	return env[b.a].F
}

// number returns the attribute alpha, limit or up_offset.
func (u *unit) number(name string) float64 {
	switch name {
	case fused.AttrAlpha:
		return u.alpha
	case fused.AttrLimit:
		return u.limit
	}
	return u.offset
}
