package rewrite

import (
	"fmt"
	"slices"

	"github.com/mojo-patch/mojo-patch/fused"
	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/rewrite/convert"
)

// ruleHeads is what the metadata of nodes that shape tables for moved rotations have for a pattern (MetaRule).
const ruleHeads = "HeadsInPlace"

// rotations are the fused ops that rotate rows one by one, wherever these lie, by the index of their first table.
var rotations = map[string]int{"RotaryEmbedding": 1, "NormRotary": 2}

// headLayout names the attribute of mojo.Attention that tells the order of an input's dimensions.
var headLayout = map[int]string{fused.AttentionQ: "q_layout", fused.AttentionK: "k_layout"}

// leaveHeads has queries and keys rotated as the projections leave them, tokens before heads, and attention read them
// so: the transpositions before the rotations go. The tables, which are the same for all heads, are given an axis for
// these at the other place.
func (a *applier) leaveHeads() error {
	changed := false
	for _, s := range a.scopes() {
		h := &headMover{applier: a, graph: s.graph, tables: map[*onnx.Value]*onnx.Value{}}
		for _, n := range slices.Clone(s.graph.Nodes) {
			if _, ok := rotations[n.OpType]; ok && n.Domain == fused.Domain {
				if err := h.move(n); err != nil {
					return err
				}
			}
		}
		if h.dead == nil {
			continue
		}
		changed = true
		dead, _ := convert.Unread(h.dead)
		if err := s.graph.RemoveNodes(dead); err != nil {
			return err
		}
		if err := s.graph.Sort(); err != nil {
			return err
		}
	}
	if changed {
		a.dropDefinitions(attends)
	}
	return nil
}

type headMover struct {
	*applier
	graph  *onnx.Graph
	tables map[*onnx.Value]*onnx.Value // those for rows in the other order
	dead   []*onnx.Node
}

// move moves one rotation, if attention alone reads it.
func (h *headMover) move(n *onnx.Node) error {
	t := n.Input(0).Producer
	out := n.OutputValue(0)
	if t == nil || !t.Is("Transpose") || t.Graph != h.graph || !slices.Equal(t.AttrInts("perm"), []int64{0, 2, 1, 3}) ||
		out.IsOutput() || len(out.Uses()) == 0 {
		return nil
	}
	for _, use := range out.Uses() {
		name, reads := headLayout[use.Index]
		if u := use.Node; !reads || u.Domain != fused.Domain || u.OpType != attends ||
			u.AttrString(name, "") != "bnsh" {
			return nil
		}
	}
	first := rotations[n.OpType]
	var tables [2]*onnx.Value
	for k := range tables {
		if tables[k] = h.table(n.Input(first+k), t); tables[k] == nil {
			return nil
		}
	}
	n.SetInput(0, t.Input(0))
	for k, v := range tables {
		if p := n.Input(first + k).Producer; p != nil { // not a constant
			h.dead = append(h.dead, p)
		}
		n.SetInput(first+k, v)
	}
	h.dead = append(h.dead, t)
	if typ, ok := out.Type(); ok && len(typ.Dims) == 4 {
		typ.Dims = []onnx.Dim{typ.Dims[0], typ.Dims[2], typ.Dims[1], typ.Dims[3]}
		out.SetType(typ)
	}
	for _, use := range out.Uses() {
		use.Node.SetAttr(onnx.StringAttr(headLayout[use.Index], "bsnh"))
		if err := h.define(use.Node); err != nil {
			return fmt.Errorf("node %q: %w", nodeName(use.Node), err)
		}
	}
	return nil
}

// define has a node of attention call the definition for its layouts. The facts are of the graph as it was: what was
// made since has the type that the signature says, or that of the other inputs.
func (h *headMover) define(n *onnx.Node) error {
	op, of := fused.Lookup(attends), onnx.Undefined
	for _, v := range n.Inputs[:fused.AttentionKeyValid] {
		if of == onnx.Undefined {
			of = h.facts.DataType(v)
		}
	}
	site := fused.Site{Attributes: n.Attributes, Opset: h.model.Opset("")}
	for i, v := range n.Inputs {
		typ := of
		if known, err := onnx.ParseDataType(op.Inputs[i].Type); err == nil {
			typ = known
		}
		if v == nil {
			typ = onnx.Undefined
		}
		site.Types, site.Dims = append(site.Types, typ), append(site.Dims, nil)
	}
	f, err := op.Function(site)
	if err != nil {
		return err
	}
	n.Overload = f.Overload
	h.addFunction(f)
	return nil
}

// table returns a table for rows [batch, tokens, heads, channels] in place of one for [batch, heads, tokens, channels];
// nil where it may have rows of its own for each head.
func (h *headMover) table(v *onnx.Value, moved *onnx.Node) *onnx.Value {
	if w := h.tables[v]; w != nil {
		return w
	}
	rank, known := h.facts.Rank(v)
	if !known || rank == 0 || rank > 4 {
		return nil
	}
	w := v
	if rank > 2 { // without the axis of the heads
		axis := rank - 3
		if size, fixed := h.facts.Dim(v, axis); !fixed || size != 1 {
			return nil
		}
		if p := v.Producer; p != nil && p.Is("Unsqueeze") && p.Graph == h.graph && h.inserts(p, axis, rank) {
			w = p.Input(0)
		} else {
			w = h.compute("Squeeze", v, int64(axis), moved)
		}
	}
	if rank > 1 {
		w = h.compute("Unsqueeze", w, int64(max(rank-2, 1)), moved)
	}
	h.tables[v] = w
	return w
}

// inserts reports whether an Unsqueeze makes a tensor of this rank by inserting this one axis.
func (h *headMover) inserts(n *onnx.Node, axis, rank int) bool {
	axes := n.AttrInts("axes")
	if given := n.Input(1); given != nil {
		t, known := h.facts.Constant(given)
		if !known {
			return false
		}
		axes = t.I
	}
	return len(axes) == 1 && (axes[0] == int64(axis) || axes[0] == int64(axis-rank))
}

// compute adds a node that drops or inserts an axis, since a transposition was moved; Sort puts it in its place.
func (h *headMover) compute(op string, v *onnx.Value, axis int64, moved *onnx.Node) *onnx.Value {
	axes := h.graph.AddInitializer(onnx.NewInt64s("table_axis", []int64{axis}))
	out := h.graph.NewValue(v.Name + "_of_tokens")
	return h.addNode(h.graph, op, out, h.config.origin(ruleHeads, moved), v, axes).Outputs[0]
}
