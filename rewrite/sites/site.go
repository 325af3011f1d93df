package sites

import (
	"slices"

	"github.com/mojo-patch/mojo-patch/fused"
	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/patterns"
	"github.com/mojo-patch/mojo-patch/patterns/reason"
	"github.com/mojo-patch/mojo-patch/reference"
	"github.com/mojo-patch/mojo-patch/reference/infer"
	"github.com/mojo-patch/mojo-patch/rewrite/pass"
	"github.com/mojo-patch/mojo-patch/rewrite/registry"
)

// Site is a match with what is known of it, and of the nodes that would replace it.
type Site struct {
	Match *patterns.Match
	Scope *pass.Scope
	slice *slice
	Types []onnx.DataType // of the match's inputs
	Facts *infer.Facts    // of the values of the replacement
	Calls []*Call
	// twice are the inputs that a target's ops take one half of, because they hold everything twice: by neighbors or
	// by halves.
	twice     map[int]bool
	routing   *routing         // of the op that sends tokens to experts; nil if there is none
	Functions []*onnx.Function // the definitions that the replacement calls
	// coarse is the type with the fewest digits that the matched nodes compute in, where that matters: what comes out
	// may have been cast to another one.
	coarse onnx.DataType
	// narrowest is the type with the fewest digits, always set.
	narrowest onnx.DataType
	// terms is how many numbers an output adds up, where the model fixes it.
	terms int64
	// short is the slice with fewer tokens while it is checked so, nil otherwise.
	short *shorter
}

// Call is a fused op in a replacement, with the kernel that runs it.
type Call struct {
	Node   *onnx.Node
	Op     *fused.Op
	Kernel *registry.Kernel
	Site   fused.Site
}

// Cut finds the nodes that compute the match's outputs from its inputs, among those whose facts are given. Its errors
// say what the match depends on besides its inputs.
func (c *Site) Cut(facts *infer.Facts) (err error) {
	if c.slice, err = cut(c.Match, c.Scope.Graph, facts); err == nil {
		c.routing = routingOf(c)
	}
	return err
}

// Nodes are those that compute the match's outputs from its inputs, producers first.
func (c *Site) Nodes() []*onnx.Node { return c.slice.nodes }

// ConstantsRead are the constants that the nodes read and that are no inputs of the match.
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

// Describe fills the types and shapes of a fused op's inputs and has the op look at them in every world.
func (c *Site) Describe(call *Call) error {
	op, inputs := call.Op, call.Node.Inputs
	call.Site.Types = make([]onnx.DataType, len(inputs))
	call.Site.Dims = make([][]int64, len(inputs))
	for i, v := range inputs {
		if v == nil { // left out; whether it may be, op.Supports knows
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
	for i := 1; i < len(op.SameShape); i++ {
		v, w := inputs[op.SameShape[0]], inputs[op.SameShape[i]]
		if v != w && !c.Facts.SameShape(v, w) {
			return reason.New(reason.Unknown, nil,
				"%q and %q are not known to have one shape, and mojo.%s does not broadcast", c.nameOf(v), c.nameOf(w),
				op.Name)
		}
	}
	for _, i := range op.Spread {
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

// spreads reports whether the dimensions of v, except the last, are proven to be 1 or those of x.
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

// nameOf names a value of the replacement as the model does, if it is one of the match's inputs.
func (c *Site) nameOf(v *onnx.Value) string {
	if i := slices.Index(c.Match.Replacement.Inputs, v); i >= 0 {
		return c.Match.Inputs[i].Name
	}
	return v.Name
}

// TypeOf returns the type of a value of the replacement; that of a fused op's output is what its definition says.
func (c *Site) TypeOf(v *onnx.Value) onnx.DataType {
	for _, call := range c.Calls {
		if call.Node == v.Producer {
			return call.Op.OutputTypes(call.Site)[v.Output]
		}
	}
	return c.Facts.DataType(v)
}

// IsConstant reports whether a value of the replacement follows from constants that are folded.
func (c *Site) IsConstant(v *onnx.Value) bool {
	if v == nil || c.Scope.Function != nil { // whose body can hold no initializers
		return false
	}
	if i := slices.Index(c.Match.Replacement.Inputs, v); i >= 0 {
		return c.Match.Inputs[i].Constant() != nil
	}
	if v.Constant() != nil {
		return true
	}
	n := v.Producer
	return n != nil && onnx.IsStandardDomain(n.Domain) && len(n.Inputs) > 0 &&
		!slices.ContainsFunc(n.Inputs, func(in *onnx.Value) bool { return in != nil && !c.IsConstant(in) })
}

// SameSize reports whether dimensions of two values of the replacement have one size in all worlds.
func (c *Site) SameSize(v *onnx.Value, axis int, w *onnx.Value, other int) bool {
	for world := range infer.Worlds {
		if n := c.Facts.Size(v, world, axis); n < 0 || n != c.Facts.Size(w, world, other) {
			return false
		}
	}
	return true
}

// Repeats reports whether the last axis of an input of the replacement holds everything twice, and notes that it does:
// the check has to hold to it.
func (c *Site) Repeats(v *onnx.Value, neighbors bool) bool {
	i := slices.Index(c.Match.Replacement.Inputs, v)
	if i < 0 || c.Match.Repeats == nil || !c.Match.Repeats(c.Match.Inputs[i], neighbors) {
		return false
	}
	if c.twice == nil {
		c.twice = map[int]bool{}
	}
	c.twice[i] = neighbors
	return true
}

// repeatInput makes an input of the check hold everything twice along its last axis, as the one of the model does.
func (c *Site) repeatInput(i int, t *reference.Tensor) {
	neighbors, twice := c.twice[i]
	if !twice || t.Rank() == 0 {
		return
	}
	n := t.Shape[t.Rank()-1]
	for k := range t.F {
		row, at := k/n*n, k%n
		if neighbors {
			t.F[k] = t.F[row+at/2*2]
		} else {
			t.F[k] = t.F[row+at%(n/2)]
		}
	}
}
