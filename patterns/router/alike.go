package router

import (
	"fmt"
	"slices"

	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/patterns/probe"
	"github.com/mojo-patch/mojo-patch/patterns/reason"
)

// The layers of a model have routers of one form. Only the first is read.

// known reads a routing. It reuses the reading of an earlier routing of the same form.
func (p *reader) known(known *probe.Readings[Router]) (*Router, *reason.Reason) {
	way, err := p.plan(p.r.Logits, slices.DeleteFunc(p.r.Cut(), func(v *onnx.Value) bool { return v == nil })...)
	if err != nil {
		return p.last()
	}
	if *known == nil {
		*known = probe.Readings[Router]{}
	}
	bias := corrections(p.g, p.r, way.Nodes)
	f := p.form(way, bias)
	return known.Of(f, p.r.budget, func() (*Router, *reason.Reason) {
		found, why := p.last()
		if slices.ContainsFunc(bias, func(c *onnx.Value) bool { return found == nil || c != found.Bias }) {
			f.Unclear = true // the elements of this constant count
		}
		return found, why
	}, p.own)
}

// own translates the reading of another routing to this one.
func (p *reader) own(found *Router, why *reason.Reason, stands func(*onnx.Value) *onnx.Value) (*Router, *reason.Reason,
	bool) {
	if found != nil {
		own := *found
		own.Routing, own.Logits, own.Bias, own.Gives = p.r, stands(own.Logits), stands(own.Bias), stands(own.Gives)
		return &own, nil, true
	}
	own := reason.New(why.Code, p.r.TopK, "%w", why)
	if n := why.Node; n != nil && len(n.Outputs) > 0 && stands(n.Outputs[0]) != nil {
		own.Node = stands(n.Outputs[0]).Producer
	}
	return nil, own, true
}

// form writes the nodes between a routing's logits and weights, without the elements of the constants in bias.
func (p *reader) form(way *probe.Plan, bias []*onnx.Value) *probe.Form {
	var f *probe.Form
	f = probe.NewForm(p.g, 4*MaxRouter, func(v *onnx.Value) bool {
		n := v.Producer
		fmt.Fprint(f, p.r.ByID[v], slices.Contains(p.r.chosen, v), n == p.r.TopK, slices.Contains(p.r.before, n))
		c, t := v.Constant(), way.Known[v]
		switch {
		case v == p.r.Logits || slices.Contains(bias, v):
		case c != nil:
			f.Tensor(c)
		case t != nil:
			fmt.Fprint(f, t.DataType, t.Shape, t.I)
		default:
			return false
		}
		return true
	})
	for _, v := range p.r.Cut() {
		f.Value(v)
	}
	fmt.Fprint(f, "\n", p.r.K, p.r.Experts)
	return f
}
