package patterns

import (
	"cmp"
	"slices"

	"github.com/mojo-patch/mojo-patch/fused"
	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/patterns/attention"
	"github.com/mojo-patch/mojo-patch/patterns/fit"
	"github.com/mojo-patch/mojo-patch/patterns/match"
	"github.com/mojo-patch/mojo-patch/patterns/moe"
	"github.com/mojo-patch/mojo-patch/patterns/notation"
	"github.com/mojo-patch/mojo-patch/patterns/reason"
	"github.com/mojo-patch/mojo-patch/patterns/router"
	"github.com/mojo-patch/mojo-patch/patterns/site"
)

// form is a pattern that text cannot say: sites found by what nodes compute, or made of the matches of other patterns.
// It is in a Set as a Pattern without text.
type form struct{ name, op string }

var (
	skipNormForm      = &form{"AddRMSNorm", "AddRMSNorm"}
	skipLayerForm     = &form{"AddLayerNorm", "AddLayerNorm"}
	normRotaryForm    = &form{"NormRotary", "NormRotary"}
	attentionForm     = &form{"Attention", "Attention"}
	moeForm           = &form{"MoE", "MoE"}
	routerForm        = &form{"TopKRouter", "TopKRouter"}
	fitRotaryForm     = &form{"fit:RotaryEmbedding", "RotaryEmbedding"}
	fitNormForm       = &form{"fit:RMSNorm", "RMSNorm"}
	fitAddNormForm    = &form{"fit:AddRMSNorm", "AddRMSNorm"}
	fitAddLayerForm   = &form{"fit:AddLayerNorm", "AddLayerNorm"}
	fitLayerForm      = &form{"fit:LayerNorm", "LayerNormalization"}
	fitGateForm       = &form{"fit:GLU", "GLU"}
	fitNormRotaryForm = &form{"fit:NormRotary", "NormRotary"}
	mixtureForm       = &form{"MoE", "MoE"} // only where asked for: see WithMixtures

	// forms are the built-in ones in the order in which reports and the digests of plan files have them.
	forms = []*form{skipNormForm, normRotaryForm, attentionForm, moeForm, routerForm, fitRotaryForm, fitNormForm,
		fitAddNormForm, fitLayerForm, fitGateForm, fitNormRotaryForm, skipLayerForm, fitAddLayerForm}
)

// search lists who looks for matches, in this order. What one finds the later ones leave alone, or make part of theirs.
var search = []struct {
	form *form // runs if the set has it; nil: always
	find func(f *finder)
}{
	// One node of onnxruntime's, which no other pattern has. Its sum is written before others take it for theirs.
	{skipNormForm, func(f *finder) { f.sites(findSkipNorms, skipNormForm, skipLayerForm) }},
	// Experts before routers: what experts write is not read as the scores of a router.
	{moeForm, func(f *finder) { f.sites(moe.Find, moeForm) }},
	// Routers before text, which would take the softmax, gates and norms inside of them for blocks.
	{routerForm, func(f *finder) { f.sites(router.Find, routerForm) }},
	{nil, (*finder).texts},
	// Pairs of the text's matches, before attention asks whose matches reach across its border.
	{normRotaryForm, func(f *finder) { f.joins(f.normRotaries(normRotaryForm)) }},
	// Attention after text: what text found in a block, such as the transposition of keys, becomes part of it.
	{attentionForm, func(f *finder) { f.joins(f.attentions()) }},
	// Fits after all of these: they look for seeds among the nodes that nobody has, of which few are left.
	// Rotations before norms, which take an addition before them for their sum: it may be that of a rotation.
	{fitRotaryForm, func(f *finder) { f.sites(fit.Rotations, fitRotaryForm) }},
	{fitNormForm, func(f *finder) { f.sites(fit.Norms, fitNormForm, fitAddNormForm, fitLayerForm, fitAddLayerForm) }},
	// Gated units after norms, so that a norm keeps the product with its scale.
	{fitGateForm, func(f *finder) { f.sites(fit.Gates, fitGateForm) }},
	// Pairs again, now that a norm or a rotation may be a fitted one.
	{fitNormRotaryForm, func(f *finder) { f.joins(f.normRotaries(fitNormRotaryForm)) }},
	// Routers and experts as one match, when nothing else can change either.
	{mixtureForm, func(f *finder) { f.joins(f.mixtures()) }},
}

// pattern returns the entry of a Set for the form.
func (d *form) pattern() *Pattern {
	target := notation.Target{Op: d.op}
	if fused.Lookup(d.op) != nil {
		target.Domain = fused.Domain
	}
	return &Pattern{Name: d.name, Target: target}
}

// sites takes what a finder finds. forms name its patterns, by op.
func (f *finder) sites(find site.Finder, forms ...*form) {
	sites, misses := find(f.view, f.others())
	f.miss(misses)
	for _, s := range sites {
		if !slices.ContainsFunc(s.Outputs, func(v *onnx.Value) bool { return f.written[v] }) {
			f.take(f.match(s, forms...)) // of a value that is computed twice, and read as one, the first match makes it
		}
	}
}

// joins takes matches that are made of others, which they replace.
func (f *finder) joins(matches []*Match) {
	parts := map[*Match]bool{}
	for _, m := range matches {
		for _, p := range m.Parts {
			parts[p] = true
		}
		f.take(m)
	}
	if len(parts) > 0 {
		f.matches = slices.DeleteFunc(f.matches, func(m *Match) bool { return parts[m] })
	}
}

// take adds a match and claims its nodes.
func (f *finder) take(m *Match) {
	for _, n := range m.Nodes {
		f.claimed[n] = true
	}
	for _, v := range m.Outputs {
		f.written[v] = true
	}
	f.matches = append(f.matches, m)
}

func (f *finder) others() site.Others {
	return site.Others{Have: func(n *onnx.Node) bool { return f.claimed[n] },
		Write: func(v *onnx.Value) bool { return f.written[v] }}
}

// miss adds why what looks like a site is none. Those of regions are told at the end, if nothing else is.
func (f *finder) miss(list []*match.Miss) {
	for _, m := range list {
		if m.Reason.Node = cmp.Or(m.Reason.Node, m.Anchor); m.Region == nil {
			f.notes = append(f.notes, m)
		} else {
			f.near = append(f.near, m)
		}
	}
}

// note records why something that looks like the pattern is not a site; anchor is where somebody would ask.
func (f *finder) note(pattern string, anchor *onnx.Node, why *reason.Reason) {
	f.miss([]*match.Miss{{Pattern: pattern, Anchor: anchor, Reason: why}})
}

// noteFits notes what came near to an op that was fitted, but for what a pattern says more of.
func (f *finder) noteFits(told []*match.Miss) {
	said := map[*onnx.Node]bool{}
	for _, m := range told {
		said[m.Anchor] = true
	}
	for _, m := range f.near {
		if !slices.ContainsFunc(m.Region, func(n *onnx.Node) bool { return f.claimed[n] || said[n] }) {
			f.notes = append(f.notes, m)
		}
	}
}

// match makes a match of a site, with its parts.
func (f *finder) match(s *site.Site, forms ...*form) *Match {
	d := forms[slices.IndexFunc(forms, func(d *form) bool { return d.op == s.Op })]
	m := &Match{Pattern: d.name, Op: s.Op, Domain: s.Domain, Root: s.Root, Nodes: inOrder(f.view, s.Nodes),
		Inputs: s.Inputs, Outputs: s.Outputs, Roles: s.Roles, Replacement: s.Replacement, Problem: s.Problem,
		Attributes: s.Attributes, Alike: f.view.Alike, Repeats: f.repeats}
	if m.Domain == "" {
		m.Problem = cmp.Or(m.Problem, inOpset(m.Op, f.view.Facts.Opset()))
	}
	if m.Problem != nil {
		m.Replacement = nil
	}
	for _, part := range s.Parts {
		m.Parts = append(m.Parts, f.match(part, forms...))
	}
	return m
}

// attentions finds blocks of attention. What other patterns found within one are its parts.
func (f *finder) attentions() []*Match {
	sites, misses := attention.Find(f.view, f.set.added)
	f.miss(misses)
	byRoot := map[*onnx.Node][]*Match{}
	for _, m := range f.matches {
		byRoot[m.Root] = append(byRoot[m.Root], m)
	}
	var found []*Match
	for _, s := range sites {
		if m := f.around(s, byRoot); m != nil {
			found = append(found, m)
		}
	}
	return found
}

// around makes a match of a block of attention, with its smaller readings; nil if a match of another pattern reaches
// across its border. matches are those of other patterns by their roots.
func (f *finder) around(s *site.Site, matches map[*onnx.Node][]*Match) *Match {
	m := f.match(s, attentionForm)
	m.Attention = s.Reading.(*attention.Reading)
	for _, root := range s.Nodes {
		for _, part := range matches[root] {
			for _, n := range part.Nodes {
				if !slices.Contains(s.Nodes, n) {
					f.note(attentionForm.name, s.Anchor, reason.New(reason.AttentionOther, n,
						"%s stands across the border of the block", part.Pattern))
					return nil
				}
			}
			m.Parts = append(m.Parts, part)
		}
	}
	if s.Smaller != nil {
		m.Smaller = func() *Match {
			if smaller := s.Smaller(); smaller != nil {
				return f.around(smaller, matches)
			}
			return nil
		}
	}
	return m
}
