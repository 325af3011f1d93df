package rewrite

import (
	"github.com/mojo-patch/mojo-patch/fused"
	"github.com/mojo-patch/mojo-patch/patterns/reason"
	"github.com/mojo-patch/mojo-patch/rewrite/pagedtarget"
)

// waits reports whether a site becomes the target's ops only after the caches are paged (pagedtarget.Apply): attention,
// whose caches become pools, and rotations, which move into it.
func (p *Plan) waits(c *candidate) bool {
	op := c.Match.Op
	return p.request.PagedCache != 0 && p.request.Target.Takes(fused.PagedAttentionName) && c.Scope.Function == nil &&
		(op == fused.AttentionName || op == fused.RotaryEmbeddingName)
}

// lowerPaged writes the target's attention on pools.
func (p *Plan) lowerPaged() error {
	t := p.request.Target
	if t == nil || !t.Takes(fused.PagedAttentionName) {
		return nil
	}
	r, err := pagedtarget.Apply(p.run, t)
	if err != nil {
		return err
	}
	const name = fused.PagedAttentionName
	for _, s := range r.Sites {
		site := SiteReport{ID: s.ID, Pattern: name, Op: name, Nodes: []string{s.Node}, Node: s.Node, Status: Fused,
			Check: s.Check}
		count := p.Report.pattern(name)
		count.Found++
		if s.Err == nil {
			count.Fused++
			site.Emits = []string{s.Emits}
		} else {
			count.Open++
			site.explain(reason.New(reason.Target, nil, "%w", s.Err).With("target", t.Name))
		}
		p.Report.Sites = append(p.Report.Sites, site)
	}
	p.Report.Unproven = append(p.Report.Unproven, r.Unproven...)
	p.Report.Changed = p.Report.Changed || r.Changed
	return nil
}
