package router

import (
	"fmt"
	"math"
	"slices"

	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/patterns/match"
	"github.com/mojo-patch/mojo-patch/patterns/probe"
	"github.com/mojo-patch/mojo-patch/reference"
)

// maxElements bounds the elements that the nodes of one run compute.
const maxElements = 1 << 27

// plan lists the nodes that compute the wanted values from the logits and constants.
func (p *reader) plan(logits *onnx.Value, want ...*onnx.Value) (*probe.Plan, error) {
	way, err := p.lab.Plan(probe.Values{logits: nil}, p.computed, want...)
	if err != nil {
		return nil, err
	}
	elements := 0
	for _, n := range way.Nodes {
		for _, out := range n.Outputs {
			if shape, ok := p.lab.Shape(out); ok {
				elements += match.Elements(shape)
			}
		}
		for _, in := range p.g.Operands(n) {
			if p.followsSizes(in) {
				return nil, errLoose(in)
			}
		}
	}
	if elements > maxElements {
		return nil, fmt.Errorf("more than %d elements", maxElements)
	}
	return way, nil
}

// computed returns the integers that follow from shapes. It returns an error if a value does not belong to a router.
func (p *reader) computed(v *onnx.Value) (*reference.Tensor, error) {
	n, inside := v.Producer, p.r.cone[v]
	if p.g.Facts.Loose(v) && !inside {
		return nil, errLoose(v)
	}
	if t, ok := p.g.Facts.Known(v, p.lab.World); ok && !inside && !t.IsFloat() {
		return t, nil
	}
	switch {
	case n == nil || n.Graph != p.g.Graph || p.g.IsData(v) && !inside:
		return nil, fmt.Errorf("%q is not computed from the logits", v.Name)
	case n.IsRandom():
		return nil, fmt.Errorf("%q is random", v.Name)
	case n.Is("IsNaN") || n.Is("IsInf"):
		return nil, fmt.Errorf("%s tests for NaN or infinity, which samples cannot show", n.OpType)
	}
	return nil, nil
}

func errLoose(v *onnx.Value) error {
	return fmt.Errorf("%q depends on sizes that the model does not fix", v.Name)
}

// bounds returns the numbers that the nodes compare logits with. ok is false if they round scores, or compare other
// values with numbers greater than scores: then it is not a router.
func (p *reader) bounds(way *probe.Plan, logits *onnx.Value) (list []float64, ok bool) {
	for _, n := range way.Nodes {
		d := p.g.DecidesBy(n, func(v *onnx.Value) bool { return p.r.cone[v] })
		if d != nil && d.Open && rounds(p.g, n) {
			return nil, false
		}
		if d == nil || !slices.ContainsFunc(d.Bounds, func(b float64) bool { return math.Abs(b) > 1 }) {
			continue
		}
		if p.g.Resolve(d.Value) != p.g.Resolve(logits) {
			return nil, false
		}
		list = append(list, d.Bounds...)
	}
	if len(list) > maxBounds {
		return nil, false
	}
	return append(list, p.constants(way)...), true
}

// constants returns the numbers greater than scores that the nodes add, multiply by or clip at. Beyond these, or powers
// of their quotients, logits may be treated differently.
func (p *reader) constants(way *probe.Plan) (list []float64) {
	for _, n := range way.Nodes {
		if !combining[n.OpType] || !slices.ContainsFunc(n.Inputs, func(v *onnx.Value) bool { return p.r.cone[v] }) {
			continue
		}
		for _, v := range n.Inputs {
			if v == nil || p.r.cone[v] {
				continue
			}
			t, ok := p.g.Facts.Constant(v)
			if !ok || len(t.F) != 1 || len(list) == maxBounds {
				continue
			}
			if x := math.Abs(t.F[0]); x > 1 && x < greatestAsked && !slices.Contains(list, x) {
				list = append(list, x)
			}
		}
	}
	return list
}

// combining are the ops that combine logits with numbers.
var combining = onnx.Words("Add Clip Div Max Min Mul Pow Sub")

// greatestAsked bounds the numbers near which logits are tried. Greater ones mask scores.
const greatestAsked = 1e8

// rounds reports whether a node rounds numbers. A cast to Boolean values only reads a mask of zeros and ones.
func rounds(g *match.View, n *onnx.Node) bool {
	switch n.OpType {
	case "Round", "Floor", "Ceil", "Mod", "Sign":
		return true
	case "Cast":
		return g.Facts.DataType(n.OutputValue(0)) != onnx.Bool
	}
	return false
}

// maxBounds bounds the numbers that logits are compared with.
const maxBounds = 8

// followsSizes reports whether v holds numbers or conditions that change with the number of tokens, such as positions.
func (p *reader) followsSizes(v *onnx.Value) bool {
	t := p.g.Facts.DataType(v)
	if v == nil || p.r.cone[v] || !t.IsFloat() && t != onnx.Bool || p.g.FromConstant(v) {
		return false
	}
	_, same := p.g.Facts.Constant(v)
	_, filled := filledWith(p.g, v)
	return !same && !filled
}
