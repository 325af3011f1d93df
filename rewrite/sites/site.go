// Package sites checks one match: whether the op that would replace the matched nodes computes the same results.
//
// Site.Cut finds the nodes by following the match's outputs back to its inputs, whatever nodes the match names.
// Checker.Check claims that they and the replacement agree on hard inputs, without rounding and with the graph's types
// (package prove). Equal sites are checked once. Mixtures of experts are also tried on hard routings, and attention on
// paddings. A kernel or a runtime, if available, runs on the same inputs.
package sites

import (
	"slices"

	"github.com/mojo-patch/mojo-patch/fused"
	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/patterns"
	"github.com/mojo-patch/mojo-patch/patterns/reason"
	"github.com/mojo-patch/mojo-patch/reference/infer"
	"github.com/mojo-patch/mojo-patch/rewrite/pass"
	"github.com/mojo-patch/mojo-patch/rewrite/registry"
)

// A Site is a match with facts about it and about the nodes that would replace it.
type Site struct {
	Match *patterns.Match
	Scope *pass.Scope
	slice *slice
	Types []onnx.DataType // of the match's inputs
	Facts *infer.Facts    // of the values of the replacement
	Calls []*Call
	// twice holds the inputs of which a target's ops read only one half, because every element is there twice: by
	// neighbors or by halves.
	twice     map[int]bool
	routing   *routing         // of the op that sends tokens to experts, or nil
	Functions []*onnx.Function // the definitions that the replacement calls
	// coarse is the type with the fewest digits in which the matched nodes compute, if that matters: the output may
	// have been cast.
	coarse onnx.DataType
	// narrowest is the same type, but always set.
	narrowest onnx.DataType
	// terms is the number of terms in an output's sum, if the model fixes it.
	terms int64
	// short is the slice with fewer tokens during such a check, and nil otherwise.
	short *shorter
}

// A Call is a fused op in a replacement, with the kernel that runs it.
type Call struct {
	Node   *onnx.Node
	Op     *fused.Op
	Kernel *registry.Kernel
	Site   fused.Site
}

// NewSite returns a site without the ops of its replacement (AddCall) and its nodes (Cut). facts belong to the graph of
// the match.
func NewSite(m *patterns.Match, s *pass.Scope, facts *infer.Facts) (*Site, error) {
	if m.Problem != nil {
		return nil, reason.New(reason.Opset, nil, "%w", m.Problem).With("opset", facts.Opset())
	}
	c := &Site{Match: m, Scope: s, Facts: facts.Within(m.Replacement, m.Inputs, m.Functions...)}
	for _, v := range m.Inputs {
		t := facts.DataType(v)
		if t == onnx.Undefined {
			return nil, reason.New(reason.Unknown, v.Producer, "the type of %q is unknown", v.Name)
		}
		c.Types = append(c.Types, t)
	}
	return c, nil
}

// AddCall adds a fused op of the replacement, which kernel runs. It returns an error if the op does not support its
// inputs.
func (c *Site) AddCall(n *onnx.Node, kernel *registry.Kernel, opset int64) (*Call, error) {
	op := fused.Lookup(n.OpType)
	required := func(p fused.Param) bool { return !p.Optional }
	if len(n.Inputs) > len(op.Inputs) || len(n.Outputs) > len(op.Outputs) ||
		slices.ContainsFunc(op.Outputs[len(n.Outputs):], required) { // Supports checks inputs; this checks outputs
		return nil, reason.New(reason.Signature, nil, "mojo.%s has %d inputs and %d outputs, the match %d and %d",
			op.Name, len(op.Inputs), len(op.Outputs), len(n.Inputs), len(n.Outputs))
	}
	typed(op, n)
	call := &Call{Node: n, Op: op, Kernel: kernel, Site: fused.Site{Attributes: n.Attributes, Opset: opset}}
	if err := c.describe(call); err != nil {
		return nil, err
	}
	c.Calls = append(c.Calls, call)
	return call, nil
}

// typed converts numbers captured by a pattern, which has only one kind of number, to the types of the op's attributes.
func typed(op *fused.Op, n *onnx.Node) {
	for _, spec := range op.Attributes {
		a := n.Attr(spec.Name)
		switch {
		case a == nil || a.RefName != "":
		case spec.Type == onnx.AttrInt && a.Type == onnx.AttrFloat && a.Float == float32(int64(a.Float)):
			a.Type, a.Int, a.Float = onnx.AttrInt, int64(a.Float), 0
		case spec.Type == onnx.AttrFloat && a.Type == onnx.AttrInt:
			a.Type, a.Float, a.Int = onnx.AttrFloat, float32(a.Int), 0
		}
	}
}

// Cut finds the nodes that compute the match's outputs from its inputs, after all calls are added. It returns an error
// if the match depends on anything besides its inputs, or if an output's type differs from the replacement's.
func (c *Site) Cut(facts *infer.Facts) (err error) {
	for i, v := range c.Match.Replacement.Outputs {
		have, made := facts.DataType(c.Match.Outputs[i]), c.typeOf(v)
		if have != made && made != onnx.Undefined {
			return reason.New(reason.Types, c.Match.Outputs[i].Producer, "output %q is %s, %s returns %s",
				c.Match.Outputs[i].Name, have, c.OpName(), made)
		}
	}
	if c.slice, err = cut(c.Match, c.Scope.Graph, facts); err == nil {
		c.routing = routingOf(c)
	}
	return err
}

// Nodes returns the nodes that compute the match's outputs from its inputs, producers first.
func (c *Site) Nodes() []*onnx.Node { return c.slice.nodes }

// ConstantsRead returns the constants that the nodes read, except inputs of the match.
func (c *Site) ConstantsRead() []*onnx.Value { return c.slice.consts }

// EachSubgraph calls f for all graphs nested in the nodes.
func (c *Site) EachSubgraph(f func(*onnx.Graph)) {
	for _, n := range c.slice.nodes {
		for _, g := range n.Subgraphs() {
			g.Walk(f)
		}
	}
}

// OpName names the main op of the replacement.
func (c *Site) OpName() string { return onnx.OpName(c.Match.Domain, c.Match.Op) }

// describe sets the types and shapes of a fused op's inputs and lets the op check them in every world.
func (c *Site) describe(call *Call) error {
	op, inputs := call.Op, call.Node.Inputs
	call.Site.Types = make([]onnx.DataType, len(inputs))
	call.Site.Dims = make([][]int64, len(inputs))
	for i, v := range inputs {
		if v == nil { // left out; op.Supports checks whether it may be
			continue
		}
		if call.Site.Types[i] = c.Facts.DataType(v); call.Site.Types[i] == onnx.Undefined {
			return reason.New(reason.Unknown, nil, "the type of %q is unknown", c.nameOf(v))
		}
		call.Site.Dims[i] = pass.Dims(c.Facts, v)
	}
	if err := op.Supports(call.Site); err != nil {
		return err
	}
	given := func(i int) bool { return i < len(inputs) && inputs[i] != nil }
	same := slices.DeleteFunc(op.SameShape(), func(i int) bool { return !given(i) })
	for i := 1; i < len(same); i++ {
		v, w := inputs[same[0]], inputs[same[i]]
		if v != w && !c.Facts.SameShape(v, w) {
			return reason.New(reason.Unknown, nil,
				"%q and %q are not known to have the same shape, and mojo.%s does not "+
					"broadcast", c.nameOf(v), c.nameOf(w),
				op.Name)
		}
	}
	for _, i := range op.Spread() {
		if v := inputs[i]; !c.spreads(v, inputs[0]) {
			return reason.New(reason.Unknown, nil, "%q is not known to broadcast to %q", c.nameOf(v),
				c.nameOf(inputs[0]))
		}
	}
	for world := range infer.Worlds {
		concrete := call.Site
		concrete.Dims = make([][]int64, len(inputs))
		for i, v := range inputs {
			if v == nil {
				continue
			}
			concrete.Dims[i] = call.Site.Dims[i]
			if s, ok := c.Facts.Shape(v, world); ok {
				concrete.Dims[i] = s
			}
		}
		if err := op.Supports(concrete); err != nil {
			return err
		}
	}
	return nil
}

// spreads reports whether each dimension of v except the last is proven to be 1 or that of x.
func (c *Site) spreads(v, x *onnx.Value) bool {
	rank, ok1 := c.Facts.Rank(v)
	of, ok2 := c.Facts.Rank(x)
	if !ok1 || !ok2 || rank > of {
		return false
	}
	for axis := 2; axis <= rank; axis++ {
		if d, fixed := c.Facts.Dim(v, -axis); !(fixed && d == 1) && !c.Facts.SameDim(v, -axis, x, -axis) {
			return false
		}
	}
	return true
}

// nameOf returns the model's name for a value of the replacement, if it is an input of the match.
func (c *Site) nameOf(v *onnx.Value) string {
	if i := slices.Index(c.Match.Replacement.Inputs, v); i >= 0 {
		return c.Match.Inputs[i].Name
	}
	return v.Name
}

// typeOf returns the type of a value of the replacement. The definition of a fused op determines the type of its
// output.
func (c *Site) typeOf(v *onnx.Value) onnx.DataType {
	for _, call := range c.Calls {
		if call.Node == v.Producer {
			return call.Op.OutputTypes(call.Site)[v.Output]
		}
	}
	return c.Facts.DataType(v)
}
