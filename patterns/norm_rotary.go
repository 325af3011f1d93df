package patterns

import (
	"slices"

	"github.com/mojo-patch/mojo-patch/fused"
	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/patterns/match"
	"github.com/mojo-patch/mojo-patch/patterns/site"
)

// normRotaries finds RMSNorms of heads that only a RotaryEmbedding reads. Exporters often put a Transpose between them,
// from [batch, sequence, heads, channels] to [batch, heads, sequence, channels]. It is moved before the norm, which
// treats each head separately.
func (f *finder) normRotaries(d *form) []*Match {
	norms := &normsByOutput{byValue: map[*onnx.Value]*Match{}, byOp: map[string]bool{}}
	for _, m := range f.matches {
		if isMojo(m, fused.RMSNormName) {
			norms.add(f.view, m)
		}
	}
	var found []*Match
	for _, m := range f.matches {
		if len(norms.list) > 0 && isMojo(m, fused.RotaryEmbeddingName) {
			if joined := f.joinNormRotary(d, norms, m); joined != nil {
				found = append(found, joined)
			}
		}
	}
	return found
}

// isMojo reports whether the match may become the fused op, with one output.
func isMojo(m *Match, op string) bool {
	return m.Domain == "mojo" && m.Op == op && m.Problem == nil && len(m.Outputs) == 1
}

// joinNormRotary makes one match of a rotation and the norm before it; nil unless only the rotation reads the norm.
func (f *finder) joinNormRotary(d *form, norms *normsByOutput, rotary *Match) *Match {
	rotates := mainNode(rotary)
	if rotates == nil {
		return nil
	}
	at := slices.Index(rotary.Replacement.Inputs, rotates.Inputs[0])
	if at < 0 || len(rotates.Inputs[0].Uses()) != 1 {
		return nil // cast or reshaped before the rotation, or also used as a table
	}
	v, moves := movedRows(f.view, rotary.Inputs[at])
	norm := norms.of(f.view, v)
	if norm == nil {
		return nil
	}
	normalizes := mainNode(norm)
	facts := f.view.Facts
	switch {
	case normalizes == nil || !normalizesLastAxis(normalizes):
		return nil
	case !leadsOnlyTo(f.view, norm.Outputs[0], rotary.Outputs[0]):
		return nil
	case len(moves) > 0 && facts.DataType(norm.Inputs[0]) != facts.DataType(v):
		return nil // with a wider X the Transpose would move more bytes
	}

	j := f.join(d, rotary.Root, norm, rotary)
	normed := j.place(norm, normalizes, nil)
	x, scale := normed[normalizes.Inputs[0]], normed[normalizes.Inputs[1]]
	for _, n := range moves {
		x = x.Then("Transpose", "moved", nil, n.Attributes...)
	}
	rotated := j.place(rotary, rotates, map[*onnx.Value]*site.Operand{rotates.Inputs[0]: x})
	j.Output(rotary.Outputs[0], j.ComputeAs(copied(normalizes, rotates, "axis"), []string{"y"}, x, scale,
		rotated[rotates.Inputs[1]], rotated[rotates.Inputs[2]])[0])
	j.Nodes = slices.Concat(norm.Nodes, moves, rotary.Nodes)
	return j.match()
}

// normsByOutput indexes norms by their outputs.
type normsByOutput struct {
	list     []*Match // in the order they were found
	byValue  map[*onnx.Value]*Match
	byOp     map[string]bool  // of the ops that compute their outputs
	byNumber map[int][]*Match // by the numbers of their outputs, nil until needed
}

func (norms *normsByOutput) add(g *match.View, m *Match) {
	norms.list = append(norms.list, m)
	if norms.byValue[m.Outputs[0]] == nil {
		norms.byValue[m.Outputs[0]] = m
	}
	if n := match.Producer(g.Resolve(m.Outputs[0])); n != nil {
		norms.byOp[match.OpKind(n)] = true
	}
}

// of finds the norm that computes v or an equal value: exporters repeat nodes.
func (norms *normsByOutput) of(g *match.View, v *onnx.Value) *Match {
	n := match.Producer(g.Resolve(v))
	if m := norms.byValue[v]; m != nil || n == nil || !norms.byOp[match.OpKind(n)] {
		return m
	}
	if norms.byNumber == nil {
		norms.byNumber = map[int][]*Match{}
		for _, m := range norms.list {
			k := g.Number(m.Outputs[0])
			norms.byNumber[k] = append(norms.byNumber[k], m)
		}
	}
	for _, m := range norms.byNumber[g.Number(v)] {
		if g.Alike(m.Outputs[0], v) {
			return m
		}
	}
	return nil
}

// mainNode returns the node of the main op if it computes the first output of a match's replacement, otherwise nil.
func mainNode(m *Match) *onnx.Node {
	v := m.Replacement.Outputs[0]
	if n := v.Producer; n != nil && n.Domain == m.Domain && n.OpType == m.Op && len(v.Uses()) == 0 {
		return n
	}
	return nil
}

// normalizesLastAxis checks the attribute axis. Patterns capture it as a float.
func normalizesLastAxis(n *onnx.Node) bool {
	a := n.Attr("axis")
	return a != nil && a.RefName == "" &&
		(a.Type == onnx.AttrInt && a.Int == -1 || a.Type == onnx.AttrFloat && a.Float == -1)
}

// copied returns copies of the attributes of both nodes, except the one named without.
func copied(a, b *onnx.Node, without string) []*onnx.Attribute {
	var list []*onnx.Attribute
	for _, attr := range slices.Concat(a.Attributes, b.Attributes) {
		if attr.Name != without {
			c := *attr
			list = append(list, &c)
		}
	}
	return list
}

// movedRows goes back over transpositions that keep the last axis, and returns them in order.
func movedRows(g *match.View, v *onnx.Value) (from *onnx.Value, moves []*onnx.Node) {
	for v = g.Resolve(v); len(moves) < match.MaxDetour; v = g.Resolve(v.Producer.Inputs[0]) {
		n := v.Producer
		if !n.Is("Transpose") {
			break
		}
		perm := n.AttrInts("perm")
		if len(perm) == 0 || perm[len(perm)-1] != int64(len(perm)-1) {
			break
		}
		moves = append(moves, n)
	}
	slices.Reverse(moves)
	return v, moves
}

// maxReaders bounds the values that leadsOnlyTo follows.
const maxReaders = 256

// leadsOnlyTo reports whether v is only used to compute the values of to. Then the nodes that read v are removed when
// another node computes these.
func leadsOnlyTo(g *match.View, v *onnx.Value, to ...*onnx.Value) bool {
	left := maxReaders
	for w := range onnx.Downstream(func(v *onnx.Value) bool { return slices.Contains(to, v) }, v) {
		if left--; left < 0 || w.IsOutput() ||
			slices.ContainsFunc(w.Uses(), func(u onnx.Use) bool { return u.Node.Graph != g.Graph }) {
			return false
		}
	}
	return true
}
