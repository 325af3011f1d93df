package rewrite

import (
	"errors"
	"maps"
	"slices"

	"github.com/mojo-patch/mojo-patch/fused"
	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/patterns"
	"github.com/mojo-patch/mojo-patch/patterns/reason"
	"github.com/mojo-patch/mojo-patch/rewrite/edit"
	"github.com/mojo-patch/mojo-patch/rewrite/pass"
	"github.com/mojo-patch/mojo-patch/rewrite/quantized"
	"github.com/mojo-patch/mojo-patch/rewrite/registry"
	"github.com/mojo-patch/mojo-patch/rewrite/sites"
)

// candidate is a match that may be replaced.
type candidate struct {
	*sites.Site
	// emits lists the target's ops that replace the calls.
	emits     []string
	constants map[*onnx.Value]*constant // of the replacement
	// variants maps ops to the overloads that a site in a function's body calls as the overload "".
	variants map[string]string
}

// kernelOf returns the kernel for a match, or the entry that the report names instead; ok is false if it was not
// requested.
func (p *Plan) kernelOf(m *patterns.Match) (k *registry.Kernel, ok bool) {
	if m.Domain == fused.Domain {
		if k := p.kernels.ForOp(m.Op); k != nil {
			return k, true
		}
		return &registry.Kernel{}, fused.Lookup(m.Op) == nil // an unknown op is refused with a reason
	}
	if k, selected := p.kernels.ForPattern(m.Pattern); k != nil {
		return k, selected
	}
	switch {
	case onnx.IsStandardDomain(m.Domain):
		return &registry.Kernel{ID: byStandard}, true
	case m.Domain == onnx.Microsoft:
		return &registry.Kernel{ID: byOnnxruntime}, true
	}
	return &registry.Kernel{ID: byFunction}, true
}

// judgeWhole judges a match, or its parts if it has some and cannot be replaced as a whole.
func (p *Plan) judgeWhole(s *pass.Scope, m *patterns.Match, check *sites.Checker) []*candidate {
	whole := len(m.Parts) == 0 || p.takesWhole(s, m)
	if whole {
		if c := p.judge(s, m, check); c != nil {
			return []*candidate{c}
		}
	}
	var list []*candidate
	for _, part := range m.Parts {
		if whole && part.Pattern == m.Pattern {
			continue // it was judged with the whole
		}
		list = append(list, p.judgeWhole(s, part, check)...)
	}
	return list
}

// takesWhole reports whether a match may replace its parts: it and the kernels of its parts were requested, and all
// parts would run on the same device. Parts that become standard ops do not matter.
func (p *Plan) takesWhole(s *pass.Scope, m *patterns.Match) bool {
	whole, asked := p.kernelOf(m)
	if t := p.request.Target; t != nil && !t.Takes(m.Op) {
		return false
	}
	return asked && p.keeps(s, m) && !slices.ContainsFunc(m.Parts, func(part *patterns.Match) bool {
		k, asked := p.kernelOf(part)
		return k.Device != registry.DeviceAny && (!asked || k.Device != whole.Device)
	})
}

// keeps reports whether the filters keep a match.
func (p *Plan) keeps(s *pass.Scope, m *patterns.Match) bool {
	c := p.request
	return c.KeepPattern(m.Pattern) && c.KeepNode(m.Root) && (c.ids == nil || c.ids[s.ID(m)])
}

// judge examines a match and, if it is refused, its smaller readings in turn. It adds a line to the report, and returns
// the candidate to replace, or nil.
func (p *Plan) judge(s *pass.Scope, m *patterns.Match, check *sites.Checker) *candidate {
	count := p.Report.pattern(m.Pattern)
	count.Found++
	kernel, asked := p.kernelOf(m)
	for i := range p.Report.Kernels {
		k := &p.Report.Kernels[i]
		k.Met = k.Met || k.ID == kernel.ID || m.Domain == fused.Domain && slices.Contains(k.Ops, m.Op)
	}
	if !asked || !p.keeps(s, m) {
		return nil
	}
	c, site, err := p.attempt(s, m, check)
	for largest := m; err != nil && m.Smaller != nil; {
		if m = m.Smaller(); m == nil {
			m = largest
			break
		}
		smaller, line, why := p.attempt(s, m, check)
		if why == nil || codeOf(why) != codeOf(err) { // otherwise the larger one's line covers both
			site, err = line, why
		}
		c = smaller
	}
	if err != nil {
		if site.explain(err); site.Status == Open {
			count.Open++
		} else {
			count.Refused++
		}
		c = nil
	} else {
		site.Emits = c.emits
		site.Kernel, site.Device = kernel.ID, kernel.Device
		if c.constants == nil { // missing weights prevented the check
			c.constants = c.fold(p.run.Model.Opset(""))
		}
		site.Weights = c.weights()
		maps.Copy(p.definitions.inBodies, c.variants)
		count.Fused++
		if site.Check != nil && slices.ContainsFunc(m.Inputs, func(v *onnx.Value) bool {
			return check.Draws(v.Constant())
		}) {
			p.Report.Drawn++
		}
		p.Report.kernel(kernel.ID).Sites++
	}
	p.Report.Sites = append(p.Report.Sites, site)
	return c
}

// codeOf returns the code of the reason in an error, or "".
func codeOf(err error) reason.Code {
	if r := reason.As(err); r != nil {
		return r.Code
	}
	return ""
}

// attempt examines and checks one reading of a site. The error is the reason to refuse it.
func (p *Plan) attempt(s *pass.Scope, m *patterns.Match, check *sites.Checker) (*candidate, SiteReport, error) {
	site := SiteReport{ID: s.ID(m), Match: m, Pattern: m.Pattern, Op: m.Op, Nodes: nodeNames(m.Nodes),
		Node: m.Root.Label(), Status: Fused}
	delete(p.asked, site.ID)
	c, err := p.examine(s, m)
	for _, v := range m.Inputs {
		site.Types = append(site.Types, p.run.Facts.DataType(v).String())
	}
	if err == nil {
		err = p.floats.Keep(c.Site)
	}
	if err == nil {
		if err = p.checkRouter(s, m, check); err == nil {
			site.Check, err = check.Check(c.Site)
		}
	}
	if err == nil {
		c.constants = c.fold(p.run.Model.Opset(""))
		err = p.floats.Take(c.Site, func(v *onnx.Value) quantized.Constant {
			if k := c.constants[v]; k != nil {
				return k
			}
			return nil
		})
	}
	if p.request.AllowUnverified && errors.Is(err, onnx.ErrMissingData) {
		site.Check, err = nil, nil
		p.Report.Unverified++
	}
	return c, site, err
}

// examine collects the facts about a match without evaluating it, and lowers its ops to the target. Its errors are
// reasons to refuse the match.
func (p *Plan) examine(s *pass.Scope, m *patterns.Match) (*candidate, error) {
	c, err := p.candidate(s, m)
	if err == nil {
		err = p.lower(c)
	}
	if err == nil {
		err = c.CheckOrder()
	}
	return c, err
}

// candidate is examine without a target.
func (p *Plan) candidate(s *pass.Scope, m *patterns.Match) (*candidate, error) {
	site, err := sites.NewSite(m, s, p.run.Facts)
	if err != nil {
		return nil, err
	}
	c := &candidate{Site: site}
	known := map[string]*onnx.Function{}
	for _, f := range m.Functions {
		known[edit.FunctionName(f)] = f
	}
	for _, n := range m.Replacement.Nodes {
		var f *onnx.Function
		var err error
		switch {
		case n.Domain == fused.Domain:
			f, err = p.fused(c, n)
		case onnx.IsStandardDomain(n.Domain) || n.Domain == onnx.Microsoft:
			continue
		default:
			if f = known[n.Domain+"."+n.OpType+"."+n.Overload]; f == nil {
				return nil, reason.New(reason.Undefined, nil,
					"the pattern rewrites to %s, which no pattern file defines", onnx.OpName(n.Domain, n.OpType))
			}
			f, err = p.definitions.of(f)
		}
		if err != nil {
			return nil, err
		}
		if s.Function != nil && p.request.Target == nil {
			if f, err = p.definitions.inBody(c, f); err != nil {
				return nil, err
			}
		}
		new(edit.Change).SetDomain(n, n.Domain, f.Overload)
		c.Functions = append(c.Functions, f)
	}
	return c, c.Cut(p.run.Facts)
}

// fused examines one fused op of a replacement and returns its definition.
func (p *Plan) fused(c *candidate, n *onnx.Node) (*onnx.Function, error) {
	op := fused.Lookup(n.OpType)
	if op == nil {
		return nil, reason.New(reason.Undefined, nil,
			"the pattern rewrites to %s.%s, which is not in the catalogue of fused ops", n.Domain, n.OpType)
	}
	kernel := p.kernels.ForOp(op.Name)
	if kernel == nil {
		return nil, reason.New(reason.NotAsked, nil, "it also needs mojo.%s, whose kernel was not selected",
			op.Name).With("op", op.Name)
	}
	call, err := c.AddCall(n, kernel, p.run.Model.Opset(""))
	if err != nil {
		return nil, err
	}
	name := fused.Domain + "." + op.Name + "." + op.Overload(call.Site)
	if f := p.definitions.functions[name]; f != nil {
		return f, nil
	}
	f, err := op.Function(call.Site)
	if err != nil {
		return nil, err
	}
	return p.definitions.of(f)
}
