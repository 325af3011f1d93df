// Package pagedtarget writes a target's attention on pools instead of mojo.PagedAttention. It moves the rotation of
// queries and keys into the target's op, and gives it the product of queries, keys and values as one tensor.
package pagedtarget

import (
	"fmt"
	"slices"

	"github.com/mojo-patch/mojo-patch/fused"
	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/reference"
	"github.com/mojo-patch/mojo-patch/reference/infer"
	"github.com/mojo-patch/mojo-patch/rewrite/edit"
	"github.com/mojo-patch/mojo-patch/rewrite/pass"
	"github.com/mojo-patch/mojo-patch/rewrite/prove"
	"github.com/mojo-patch/mojo-patch/rewrite/sites"
	"github.com/mojo-patch/mojo-patch/rewrite/target"
)

// A Site is a node with attention on pools.
type Site struct {
	ID    string
	Node  string // its label
	Emits string // the ops that replaced it
	Check *prove.CheckReport
	Err   error // why it stays as it is
}

// A Report describes the change of a model.
type Report struct {
	Sites   []*Site
	Changed bool
	// Unproven lists rotations and products that stay outside of the op, with the reasons.
	Unproven []string
}

// Apply replaces mojo.PagedAttention by the target's op. Only a model that was paged before contains it, because no
// pattern finds it. A node that the target cannot express stays as it is, with its definition. Then it moves the
// nodes before the op into it, also in models that have the op already.
func Apply(run *pass.Run, t *target.Target) (*Report, error) {
	m, r := run.Model, &Report{}
	facts, prover := infer.Analyze(m), run.NewProver()
	written := map[*onnx.Value]*Site{} // by the keys that the node writes
	for _, n := range slices.Clone(m.Graph.Nodes) {
		if n.Domain != fused.Domain || n.OpType != fused.PagedAttentionName {
			continue
		}
		s := pass.FusedSite(m, facts, n)
		site := &Site{ID: pass.SiteID(n.OpType, "", n.Outputs), Node: n.Label()}
		r.Sites = append(r.Sites, site)
		if site.Err = keepsSinks(facts, n); site.Err != nil {
			continue
		}
		if site.Check, site.Err = prove1(prover, t, m.IRVersion, s); site.Err != nil {
			continue
		}
		keys := n.OutputValue(1)
		if site.Emits, site.Err = t.Write(target.NewCall(n, s)); site.Err == nil {
			r.Changed, written[keys] = true, site
		}
	}
	f := newFolder(run)
	for _, n := range slices.Clone(m.Graph.Nodes) {
		if n.Domain != onnx.Microsoft || n.OpType != fused.PagedAttentionName {
			continue
		}
		with, err := f.fold(n)
		if err != nil {
			return nil, err
		}
		r.Changed = r.Changed || with != ""
		if site := written[n.OutputValue(1)]; site != nil && with != "" {
			site.Emits += " with " + with
		}
	}
	if r.Unproven = f.unproven; !r.Changed {
		return r, nil
	}
	if err := f.done.Finish(); err != nil {
		return nil, err
	}
	c := new(edit.Change)
	if err := c.RemoveUnread(m.Graph); err != nil {
		return nil, err
	}
	c.DropDefinitions(m, fused.PagedAttentionName)
	c.DropDefinitions(m, fused.RotaryEmbeddingName)
	c.ImportOpset(m, nil, onnx.Microsoft, 1)
	c.DropImport(m, fused.Domain)
	return r, nil
}

// keepsSinks returns an error if the sinks of a node, which are float32, change in the type of its queries.
func keepsSinks(facts *infer.Facts, n *onnx.Node) error {
	t := facts.DataType(n.Input(fused.PagedAttentionQ))
	v := origin(n.Input(fused.PagedAttentionSink))
	if v == nil || t == onnx.Float || v.Producer != nil && v.Producer.Is("Cast") &&
		facts.DataType(v.Producer.Input(0)) == t {
		return nil
	}
	if v.Constant() != nil {
		if x, err := reference.FromONNX(v.Constant()); err == nil &&
			!slices.ContainsFunc(x.F, func(s float64) bool { return prove.RoundTo(t, s) != s }) {
			return nil
		}
	}
	return fmt.Errorf("the target's PagedAttention takes sinks in %s, and %q is not known to be exact in it", t, v.Name)
}

// prove1 proves that the target's nodes compute the same as the op with a site's attributes, blocks and up to two heads
// of keys, on sequences of unequal lengths.
func prove1(prover *prove.Prover, t *target.Target, ir int64, s fused.Site) (*prove.CheckReport, error) {
	op := fused.Lookup(fused.PagedAttentionName)
	s.Dims = slices.Clone(s.Dims)
	// A few tokens of three sequences in up to two blocks each.
	q, pool := s.Dims[fused.PagedAttentionQ], s.Dims[fused.PagedAttentionKeyCache]
	if len(q) == 3 && len(pool) == 4 && pool[2] > 0 {
		heads := min(2, pool[2])
		cache := []int64{7, pool[1], heads, pool[3]}
		for i, dims := range [][]int64{fused.PagedAttentionQ: {11, q[1] / pool[2] * heads, q[2]}, {11, heads, q[2]},
			{11, heads, pool[3]}, cache, cache, {4}, {3}, {3, 2}, {11}} {
			if i < len(s.Dims) && s.Dims[i] != nil {
				s.Dims[i] = dims
			}
		}
	}
	model := func() (*onnx.Model, *onnx.Node, error) {
		m := onnx.New(ir, s.Opset)
		m.ImportOpset(fused.Domain, fused.Version)
		m.ImportOpset(onnx.Microsoft, 1)
		var in, out []*onnx.Value
		for i, t := range s.Types {
			var v *onnx.Value
			if t != onnx.Undefined {
				v = m.Graph.AddInput(op.Inputs[i].Name, onnx.Type{DataType: t})
			}
			in = append(in, v)
		}
		for _, o := range op.Outputs {
			out = append(out, m.Graph.NewValue(o.Name))
			m.Graph.AddOutput(out[len(out)-1])
		}
		f, err := op.Function(s)
		if err != nil {
			return nil, nil, err
		}
		n := m.Graph.AddNode(op.Name, in, out, s.Attributes...)
		n.Domain, n.Overload, m.Functions = fused.Domain, f.Overload, []*onnx.Function{f}
		return m, n, nil
	}
	before, _, err := model()
	if err != nil {
		return nil, err
	}
	after, node, err := model()
	if err != nil {
		return nil, err
	}
	if _, err := t.Write(target.NewCall(node, s)); err != nil {
		return nil, err
	}
	c := &prove.Claim{What: op.Name + " of " + t.Name + " instead of the op",
		Key: onnx.AttributesKey(s.Attributes) + fmt.Sprint(s.Types, s.Dims), Exact: prove.Structural,
		Before: prove.Model(before), After: prove.Model(after), Trials: func(yield func(prove.Trial, error) bool) {
			for _, hard := range sites.HardInputsOf(op, s) {
				trial := prove.Trial{Name: hard.Name, Kind: hard.Name}
				for i, t := range s.Types {
					if t == onnx.Undefined {
						continue
					}
					x, err := hard.Tensor(op, s, i)
					if err != nil {
						yield(trial, err)
						return
					}
					trial.Inputs = append(trial.Inputs, x)
				}
				if !yield(trial, nil) {
					return
				}
			}
		}}
	// Try keeps the pools of one trial at a time.
	return prover.Check(c.What, func() string { return c.Key }, c.Try)
}
