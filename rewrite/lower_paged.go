package rewrite

import (
	"fmt"
	"slices"

	"github.com/mojo-patch/mojo-patch/fused"
	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/patterns/reason"
	"github.com/mojo-patch/mojo-patch/reference/infer"
	"github.com/mojo-patch/mojo-patch/rewrite/edit"
	"github.com/mojo-patch/mojo-patch/rewrite/pass"
	"github.com/mojo-patch/mojo-patch/rewrite/prove"
	"github.com/mojo-patch/mojo-patch/rewrite/sites"
	"github.com/mojo-patch/mojo-patch/rewrite/target"
)

// lowerPaged replaces attention on pools by the target's op. Only a model that was paged before contains it, because no
// pattern finds it. A node that the target cannot express stays as it is, with its definition.
func (p *Plan) lowerPaged() error {
	t, m := p.request.Target, p.run.Model
	if t == nil || !t.Takes(fused.PagedAttentionName) {
		return nil
	}
	facts, prover, changed := infer.Analyze(m), p.run.NewProver(), 0
	for _, n := range slices.Clone(m.Graph.Nodes) {
		if n.Domain != fused.Domain || n.OpType != fused.PagedAttentionName {
			continue
		}
		s := pass.FusedSite(m, facts, n)
		site := SiteReport{ID: pass.SiteID(n.OpType, "", n.Outputs), Pattern: n.OpType, Op: n.OpType,
			Nodes: []string{n.Label()}, Node: n.Label(), Status: Fused}
		count := p.Report.pattern(n.OpType)
		count.Found++
		check, err := provePaged(prover, t, m.IRVersion, s)
		emits := ""
		if err == nil {
			emits, err = t.Write(target.NewCall(n, s))
		}
		if err == nil {
			count.Fused++
			site.Emits, site.Check = []string{emits}, check
			changed++
		} else {
			count.Open++
			site.explain(reason.New(reason.Target, n, "%w", err).With("target", t.Name))
		}
		p.Report.Sites = append(p.Report.Sites, site)
	}
	if p.Report.Assumed = append(p.Report.Assumed, prover.Assumed...); changed == 0 {
		return nil
	}
	p.Report.Changed = true
	c := new(edit.Change)
	c.DropDefinitions(m, fused.PagedAttentionName)
	c.ImportOpset(m, nil, onnx.Microsoft, 1)
	c.DropImport(m, fused.Domain)
	return nil
}

// provePaged proves that the target's nodes compute the same as the op with a site's attributes, blocks and up to two
// heads of keys, on sequences of unequal lengths.
func provePaged(prover *prove.Prover, t *target.Target, ir int64, s fused.Site) (*CheckReport, error) {
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
