package patterns

import (
	"cmp"
	"slices"

	"github.com/mojo-patch/mojo-patch/fused"
	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/patterns/attention"
	"github.com/mojo-patch/mojo-patch/patterns/fit"
	"github.com/mojo-patch/mojo-patch/patterns/linear"
	"github.com/mojo-patch/mojo-patch/patterns/match"
	"github.com/mojo-patch/mojo-patch/patterns/moe"
	"github.com/mojo-patch/mojo-patch/patterns/notation"
	"github.com/mojo-patch/mojo-patch/patterns/reason"
	"github.com/mojo-patch/mojo-patch/patterns/router"
	"github.com/mojo-patch/mojo-patch/patterns/site"
)

// form is a pattern that text cannot express: its sites are found by their function, or joined from the matches of
// other patterns. A Set holds it as a Pattern without text.
type form struct{ name, op string }

var (
	skipNormForm      = &form{fused.AddRMSNormName, fused.AddRMSNormName}
	skipLayerForm     = &form{fused.AddLayerNormName, fused.AddLayerNormName}
	normRotaryForm    = &form{fused.NormRotaryName, fused.NormRotaryName}
	normQuantizeForm  = &form{fused.NormQuantizeName, fused.NormQuantizeName}
	fitQuantizeForm   = &form{"fit:NormQuantize", fused.NormQuantizeName}
	attentionForm     = &form{fused.AttentionName, fused.AttentionName}
	moeForm           = &form{fused.MoEName, fused.MoEName}
	routerForm        = &form{fused.TopKRouterName, fused.TopKRouterName}
	fitRotaryForm     = &form{"fit:RotaryEmbedding", fused.RotaryEmbeddingName}
	fitNormForm       = &form{"fit:RMSNorm", fused.RMSNormName}
	fitAddNormForm    = &form{"fit:AddRMSNorm", fused.AddRMSNormName}
	fitAddLayerForm   = &form{"fit:AddLayerNorm", fused.AddLayerNormName}
	fitLayerForm      = &form{"fit:LayerNorm", "LayerNormalization"}
	fitGateForm       = &form{"fit:GLU", fused.GLUName}
	fitNormRotaryForm = &form{"fit:NormRotary", fused.NormRotaryName}
	linearForm        = &form{fused.LinearAttentionName, fused.LinearAttentionName}
	causalConvForm    = &form{fused.CausalConvName, fused.CausalConvName}
	mixtureForm       = &form{fused.MoEName, fused.MoEName} // only on request: see WithMixtures

	// forms are the built-in forms, in the order of reports and of the digests of plan files.
	forms = []*form{skipNormForm, normRotaryForm, attentionForm, moeForm, routerForm, fitRotaryForm, fitNormForm,
		fitAddNormForm, fitLayerForm, fitGateForm, fitNormRotaryForm, skipLayerForm, fitAddLayerForm,
		linearForm, causalConvForm, normQuantizeForm, fitQuantizeForm}
)

// search lists the finders in order. Later ones keep the matches of earlier ones, or make them parts of theirs.
var search = []struct {
	form *form // runs if the set has it; nil: always
	find func(f *finder)
}{
	// Single nodes of onnxruntime, which no other pattern has. Their sums must be taken before other finders use them.
	{skipNormForm, func(f *finder) { f.sites(findSkipNorms, skipNormForm, skipLayerForm) }},
	// One node of the standard's or onnxruntime's, which no other pattern has.
	{linearForm, func(f *finder) { f.sites(linear.Find, linearForm, causalConvForm) }},
	// Experts before routers: the results of experts must not be read as the scores of a router.
	{moeForm, func(f *finder) { f.sites(moe.Find, moeForm) }},
	// Routers before text, which would match the softmax, gates and norms inside routers as blocks.
	{routerForm, func(f *finder) { f.sites(router.Find, routerForm) }},
	{nil, (*finder).texts},
	// Pairs of text matches, before attention checks which matches cross its border.
	{normRotaryForm, func(f *finder) { f.joins(f.normRotaries(normRotaryForm)) }},
	{normQuantizeForm, func(f *finder) { f.joins(f.normQuantizes(normQuantizeForm)) }},
	// Attention after text: matches inside a block, such as the transposition of keys, become parts of it.
	{attentionForm, func(f *finder) { f.joins(f.attentions()) }},
	// Convolutions before fits, which would take the activation behind one for their seed.
	{causalConvForm, func(f *finder) { f.sites(linear.Convs, causalConvForm) }},
	{linearForm, func(f *finder) { f.sites(linear.Steps, linearForm) }},
	{linearForm, func(f *finder) { f.sites(linear.WideSteps, linearForm) }},
	{linearForm, func(f *finder) { f.sites(linear.Spans, linearForm) }},
	// Fits last: they look for seeds among the few nodes that no match has. Rotations before norms, which join an
	// addition before them: it may belong to a rotation.
	{fitRotaryForm, func(f *finder) { f.sites(fit.Rotations, fitRotaryForm) }},
	{fitNormForm, func(f *finder) { f.sites(fit.Norms, fitNormForm, fitAddNormForm, fitLayerForm, fitAddLayerForm) }},
	// Fitted norms with the rounding behind them.
	{fitQuantizeForm, func(f *finder) { f.joins(f.normQuantizes(fitQuantizeForm)) }},
	// Gated units after norms, so that a norm keeps the product with its scale.
	{fitGateForm, func(f *finder) { f.sites(fit.Gates, fitGateForm) }},
	// Pairs again, now that norms or rotations may be fitted.
	{fitNormRotaryForm, func(f *finder) { f.joins(f.normRotaries(fitNormRotaryForm)) }},
	// Routers and experts as one match, when neither can change any more.
	{mixtureForm, func(f *finder) { f.joins(f.mixtures()) }},
}

// pattern returns the form's entry of a Set.
func (d *form) pattern() *Pattern {
	target := notation.Target{Op: d.op}
	if fused.Lookup(d.op) != nil {
		target.Domain = fused.Domain
	}
	return &Pattern{Name: d.name, Target: target}
}

// sites takes the sites of a finder. forms lists its patterns, one for each op.
func (f *finder) sites(find site.Finder, forms ...*form) {
	sites, misses := find(f.view, f.others())
	f.miss(misses)
	for _, s := range sites {
		if !slices.ContainsFunc(s.Outputs, func(v *onnx.Value) bool { return f.written[v] }) {
			f.take(f.match(s, forms...)) // if a value is computed twice and read as one, only the first match writes it
		}
	}
}

// joins takes matches that join others, and removes the others.
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

// miss adds misses. Misses of regions are reported at the end, if no other miss explains their nodes.
func (f *finder) miss(list []*match.Miss) {
	for _, m := range list {
		if m.Reason.Node = cmp.Or(m.Reason.Node, m.Anchor); m.Region == nil {
			f.notes = append(f.notes, m)
		} else {
			f.near = append(f.near, m)
		}
	}
}

// note records why something that looks like the pattern is not a site; anchor is the node where users may ask.
func (f *finder) note(pattern string, anchor *onnx.Node, why *reason.Reason) {
	f.miss([]*match.Miss{{Pattern: pattern, Anchor: anchor, Reason: why}})
}

// noteFits adds the misses of fitted ops, except those about which told, or a match, says more.
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

// match converts a site and its parts to a match.
func (f *finder) match(s *site.Site, forms ...*form) *Match {
	d := forms[slices.IndexFunc(forms, func(d *form) bool { return d.op == s.Op })]
	m := &Match{Pattern: d.name, Op: s.Op, Domain: s.Domain, Root: s.Root, Nodes: inOrder(f.view, s.Nodes),
		Inputs: s.Inputs, Outputs: s.Outputs, Roles: s.Roles, Replacement: s.Replacement, Problem: s.Problem,
		Intended:   s.Intended,
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

// attentions finds blocks of attention. Matches of other patterns inside a block become its parts.
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

// around converts a block of attention, with its smaller readings, to a match; nil if a match of another pattern
// crosses its border. matches holds the other patterns' matches by their roots.
func (f *finder) around(s *site.Site, matches map[*onnx.Node][]*Match) *Match {
	m := f.match(s, attentionForm)
	m.Attention = s.Reading.(*attention.Reading)
	for _, root := range s.Nodes {
		for _, part := range matches[root] {
			for _, n := range part.Nodes {
				if !slices.Contains(s.Nodes, n) {
					f.note(attentionForm.name, s.Anchor, reason.New(reason.AttentionOther, n,
						"a match of %s crosses the border of the block", part.Pattern))
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
