package sites

import (
	"bytes"
	"slices"

	"github.com/mojo-patch/mojo-patch/fused"
	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/patterns"
	"github.com/mojo-patch/mojo-patch/patterns/reason"
	"github.com/mojo-patch/mojo-patch/reference"
	"github.com/mojo-patch/mojo-patch/reference/infer"
	"github.com/mojo-patch/mojo-patch/rewrite/edit"
)

const (
	// maxSliceNodes bounds a slice, in addition to twice the nodes that the match names. Without it, a match that
	// depends on more than its inputs would be followed to the model's inputs.
	maxSliceNodes = 128
	// maxConstantBytes bounds the constants that are read.
	maxConstantBytes = 1 << 20
	// maxUniformBytes bounds those whose elements are all equal, such as a state of zeros.
	maxUniformBytes = 1 << 26
	// maxKnownNodes bounds the search for inputs of the match behind a known value.
	maxKnownNodes = 16
	// maxCongruence bounds the depth to which two computations are compared.
	maxCongruence = 6
)

// slice is the part of a graph that computes a match's outputs from its inputs. It is found by following the outputs
// back, whatever nodes the match names: the check must see everything that is replaced.
type slice struct {
	nodes   []*onnx.Node // producers first, in an order that depends only on their structure
	inputs  []*onnx.Value
	isInput map[*onnx.Value]bool
	outputs []*onnx.Value
	consts  []*onnx.Value               // constants that the nodes read
	known   []*onnx.Value               // values known to shape inference, such as bounds computed from shapes
	equal   map[*onnx.Value]*onnx.Value // repeated values, mapped to the input that they equal
	numbers []*reference.Tensor         // the known values that are constant
	varying bool                        // a known value depends on the model's symbolic dimensions
}

// cut finds the slice of a match. It returns an error if the match depends on anything besides its inputs.
func cut(m *patterns.Match, g *onnx.Graph, facts *infer.Facts) (*slice, error) {
	c := &cutter{g: g, facts: facts, match: m, most: maxSliceNodes + 2*len(m.Nodes),
		routed:    m.Domain == fused.Domain && policies[m.Op].sizes != nil,
		dependent: map[*onnx.Value]bool{},
		s: &slice{inputs: m.Inputs, outputs: m.Outputs, isInput: map[*onnx.Value]bool{},
			equal: map[*onnx.Value]*onnx.Value{}},
		seen: map[*onnx.Value]bool{}, made: map[*onnx.Node]bool{}, reached: map[*onnx.Value]bool{}}
	for _, v := range m.Inputs {
		c.seen[v], c.s.isInput[v] = true, true
		if v.Producer != nil {
			c.computed = append(c.computed, v)
		}
	}
	for _, v := range m.Outputs {
		if c.seen[v] {
			return nil, reason.New(reason.Depends, v.Producer, "output %q of the match is also its input", v.Name)
		}
		if v.Producer == nil || v.Graph != g || v.Constant() != nil {
			return nil, reason.New(reason.Depends, nil, "output %q of the match is not computed in the graph", v.Name)
		}
	}
	for _, v := range m.Outputs {
		if err := c.value(v); err != nil {
			return nil, err
		}
	}
	for _, v := range m.Inputs {
		if !c.reached[v] && !choosesGates(m, v) && m.Roles[v] != fused.RoleShapeAlone {
			return nil, reason.New(reason.Unread, nil, "the matched nodes do not read %q, which the op would", v.Name)
		}
	}
	return c.s, nil
}

// choosesGates reports whether v is an input of the match by which its replacement selects gates of experts. If the
// nodes send all tokens through all experts, only the gates determine which results count.
func choosesGates(m *patterns.Match, v *onnx.Value) bool {
	i := slices.Index(m.Inputs, v)
	return i >= 0 && slices.ContainsFunc(m.Replacement.Inputs[i].Uses(), func(u onnx.Use) bool {
		return u.Node.Is("GatherElements") && u.Index == 1 && slices.Contains(m.Replacement.Inputs, u.Node.Inputs[0])
	})
}

type cutter struct {
	g       *onnx.Graph
	facts   *infer.Facts
	match   *patterns.Match
	s       *slice
	seen    map[*onnx.Value]bool
	made    map[*onnx.Node]bool
	reached map[*onnx.Value]bool // inputs of the match that the slice reads
	// computed holds the inputs of the match that a node computes.
	computed []*onnx.Value
	// routed means that the op sends tokens to experts. dependent caches depends.
	routed    bool
	dependent map[*onnx.Value]bool
	most      int // nodes of a slice
}

func (c *cutter) value(v *onnx.Value) error {
	if c.seen[v] {
		c.reached[v] = true // only used for inputs
		return nil
	}
	c.seen[v] = true
	if v.Constant() != nil {
		return c.constant(v)
	}
	if in := c.congruentInput(v); in != nil {
		c.reached[in] = true
		c.s.equal[v] = in
		return nil
	}
	if n := v.Producer; n != nil && c.facts.Loose(v) && !c.positional() && !c.readsInput(v) {
		return reason.New(reason.Depends, n, "the matched nodes read %q, which depends on the sizes of inputs by "+
			"more than sums and products (%s): it may differ at other sizes", v.Name, n.OpType)
	}
	if c.known(v) && !c.readsInput(v) && !c.follows(v) {
		if _, ok := c.facts.Constant(v); !ok {
			c.s.varying = true
		}
		c.s.known = append(c.s.known, v)
		if t, ok := c.facts.Constant(v); ok {
			c.s.numbers = append(c.s.numbers, t)
		}
		return nil
	}
	n := v.Producer
	if n == nil {
		return reason.New(reason.Depends, nil, "the matched nodes depend on %q, which is not an input of the "+
			"op", v.Name)
	}
	if n.Graph != c.g {
		return reason.New(reason.Depends, n,
			"the matched nodes depend on %q of an outer graph, which is not an input of the op", v.Name)
	}
	return c.node(n)
}

// positional reports whether the op computes with positions of tokens, which the nodes compare, or is tried on many
// numbers of tokens.
func (c *cutter) positional() bool {
	p := policies[c.match.Op]
	return c.match.Domain == fused.Domain && (p.positional || p.lengths)
}

// known reports whether shape inference knows a value for all tried sizes of the symbolic dimensions. It may know only
// small masks.
func (c *cutter) known(v *onnx.Value) bool {
	for w := range infer.Worlds {
		if _, ok := c.facts.Known(v, w); !ok {
			return false
		}
	}
	return true
}

// readsInput reports whether a known value is computed from the elements of an input of the match (or of its double),
// which is then known too: a small weight that is cast, for example. The check must cover such a value.
func (c *cutter) readsInput(v *onnx.Value) bool {
	seen := map[*onnx.Node]bool{}
	var reads func(v *onnx.Value) bool
	reads = func(v *onnx.Value) bool {
		if v == nil {
			return false
		}
		if c.s.isInput[v] || c.congruentInput(v) != nil {
			return true
		}
		n := v.Producer
		if n == nil || n.Graph != c.g || seen[n] || len(seen) >= maxKnownNodes || n.Is("Shape") || n.Is("Size") {
			return false
		}
		seen[n] = true
		if _, ok := c.facts.Known(v, 0); !ok {
			return false
		}
		return slices.ContainsFunc(n.Inputs, reads)
	}
	return reads(v)
}

// follows reports whether a value known from shapes has to be computed anyway. In a mixture of experts, shapes depend
// on the numbers in a match's inputs, which shape inference only makes up.
func (c *cutter) follows(v *onnx.Value) bool {
	if !c.routed {
		return false
	}
	_, constant := c.facts.Constant(v)
	return !constant && c.depends(v)
}

// depends reports whether a value is computed from an input of the match, or from the shape of such a value.
func (c *cutter) depends(v *onnx.Value) bool {
	if v == nil {
		return false
	}
	if known, ok := c.dependent[v]; ok {
		return known
	}
	n := v.Producer
	is := c.s.isInput[v] || n != nil && n.Graph == c.g && slices.ContainsFunc(n.Inputs, c.depends)
	if n != nil && n.Graph == c.g && !is {
		for _, g := range n.Subgraphs() {
			for _, m := range g.Nodes {
				is = is || c.dependsWithin(m)
			}
		}
	}
	c.dependent[v] = is
	return is
}

// dependsWithin is depends for a node of a subgraph.
func (c *cutter) dependsWithin(n *onnx.Node) bool {
	is := false
	edit.EachRead(n, func(v *onnx.Value) { is = is || v.Graph == c.g && c.depends(v) })
	return is
}

func (c *cutter) node(n *onnx.Node) error {
	if c.made[n] {
		return nil
	}
	c.made[n] = true
	if len(c.made) > c.most {
		return reason.New(reason.Depends, n,
			"the outputs of the match depend on more than its inputs: the search back ends after %d nodes at %q (%s)",
			c.most, n.Label(), n.OpType)
	}
	if err := c.reads(n); err != nil {
		return err
	}
	c.s.nodes = append(c.s.nodes, n)
	return nil
}

// reads follows the operands of a node: its inputs, and the outer values that its subgraphs read.
func (c *cutter) reads(n *onnx.Node) error {
	for _, a := range n.Attributes {
		if a.RefName != "" {
			return reason.New(reason.Depends, n,
				"the matched nodes depend on the attribute %q of their function, at node %q (%s)",
				a.RefName, n.Label(), n.OpType)
		}
	}
	if n.IsRandom() {
		return reason.New(reason.Random, n, "the matched nodes depend on random numbers of node %q (%s)", n.Label(),
			n.OpType)
	}
	for _, v := range n.Inputs {
		if v != nil {
			if err := c.read(v); err != nil {
				return err
			}
		}
	}
	for _, g := range n.Subgraphs() {
		for _, m := range g.Nodes {
			if err := c.reads(m); err != nil {
				return err
			}
		}
		for _, v := range g.Outputs {
			if err := c.read(v); err != nil {
				return err
			}
		}
	}
	return nil
}

// read follows a value read by a node of the slice or of a subgraph in it. Values computed in the subgraph are not
// dependencies, except constants.
func (c *cutter) read(v *onnx.Value) error {
	if v.Graph == c.g || !c.within(v.Graph) {
		return c.value(v)
	}
	if c.s.isInput[v] {
		c.reached[v] = true
	} else if v.Const != nil && !c.seen[v] {
		c.seen[v] = true
		return c.constant(v)
	}
	return nil
}

// within reports whether g is nested in the graph of the match.
func (c *cutter) within(g *onnx.Graph) bool {
	for ; g != nil; g = g.Parent {
		if g == c.g {
			return true
		}
	}
	return false
}

// constant adds a constant that is not an input of the match.
func (c *cutter) constant(v *onnx.Value) error {
	t := v.Constant()
	if in := c.copied(t); in != nil {
		c.reached[in] = true
		c.s.equal[v] = in
		return nil
	}
	if t.Size() > maxConstantBytes && (t.Size() > maxUniformBytes || !uniform(t)) {
		return reason.New(reason.Depends, v.Producer,
			"the matched nodes read the constant %q of %d bytes, which is not an input of the op", v.Name, t.Size()).
			With("bytes", t.Size())
	}
	c.s.consts = append(c.s.consts, v)
	return nil
}

// uniform reports whether all elements of a constant are equal.
func uniform(t *onnx.Tensor) bool {
	b, err := t.Bytes()
	n := int(t.Len())
	if err != nil || n == 0 {
		return false
	}
	size := len(b) / n
	return size > 0 && size*n == len(b) && bytes.Equal(b[size:], b[:len(b)-size])
}

// copied finds the weight among the inputs of the match that t copies. Exporters store a shared weight several times,
// and the check replaces its numbers.
func (c *cutter) copied(t *onnx.Tensor) *onnx.Value {
	for _, in := range c.s.inputs {
		w := in.Constant()
		if w == nil || w.DataType != t.DataType || len(w.Dims) < 2 || !slices.Equal(w.Dims, t.Dims) ||
			w.DataType == onnx.String {
			continue
		}
		a, err1 := w.Bytes()
		b, err2 := t.Bytes()
		if err1 == nil && err2 == nil && bytes.Equal(a, b) {
			return in
		}
	}
	return nil
}

// congruentInput finds the input of the match that equals v because both are computed in the same way from the same
// values. Exporters repeat computations, and matchers see through that.
func (c *cutter) congruentInput(v *onnx.Value) *onnx.Value {
	for _, in := range c.computed {
		if v.Producer != nil && (c.match.Alike != nil && c.match.Alike(in, v) || congruent(in, v, maxCongruence)) {
			return in
		}
	}
	return nil
}

func congruent(a, b *onnx.Value, depth int) bool {
	if a == b {
		return true
	}
	if a == nil || b == nil || depth == 0 {
		return false
	}
	if ta, tb := a.Constant(), b.Constant(); ta != nil || tb != nil {
		return ta != nil && tb != nil && ta.Size() <= maxConstantBytes && onnx.TensorKey(ta) == onnx.TensorKey(tb)
	}
	m, n := a.Producer, b.Producer
	if m == nil || n == nil || a.Output != b.Output || m.OpType != n.OpType || m.Domain != n.Domain ||
		m.Overload != n.Overload || len(m.Outputs) != len(n.Outputs) || m.IsRandom() || len(m.Subgraphs()) > 0 ||
		onnx.AttributesKey(m.Attributes) != onnx.AttributesKey(n.Attributes) {
		return false
	}
	return slices.EqualFunc(m.Inputs, n.Inputs, func(a, b *onnx.Value) bool { return congruent(a, b, depth-1) })
}
