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
	// emits are the ops of a target that stand in place of the calls.
	emits     []string
	constants map[*onnx.Value]*constant // of the replacement
	// variants are the overloads whose definitions a site in a function's body calls as the overload "", by op.
	variants map[string]string
}

// kernelOf returns the kernel that takes a match, or what the report names in its place; ok is false when it was not
// asked for.
func (a *applier) kernelOf(m *patterns.Match) (k *registry.Kernel, ok bool) {
	if m.Domain == fused.Domain {
		if k := a.byOp[m.Op]; k != nil {
			return k, true
		}
		return &registry.Kernel{}, fused.Lookup(m.Op) == nil // an op that is not there is a reason to refuse
	}
	if a.takers == nil {
		a.takers = map[string]*registry.Kernel{}
		for _, k := range registry.ScanAllKernels() {
			for _, name := range k.Patterns {
				a.takers[name] = k
			}
		}
	}
	if k := a.takers[m.Pattern]; k != nil {
		return k, a.chosen[k]
	}
	switch {
	case onnx.IsStandardDomain(m.Domain):
		return &registry.Kernel{ID: byStandard}, true
	case m.Domain == onnx.Microsoft:
		return &registry.Kernel{ID: byOnnxruntime}, true
	}
	return &registry.Kernel{ID: byFunction}, true
}

// judgeWhole judges a match, or its parts where it is made of some and is not to be replaced as a whole.
func (a *applier) judgeWhole(s *pass.Scope, m *patterns.Match, check *sites.Checker) []*candidate {
	whole := len(m.Parts) == 0 || a.takesWhole(s, m)
	if whole {
		if c := a.judge(s, m, check); c != nil {
			return []*candidate{c}
		}
	}
	var list []*candidate
	for _, p := range m.Parts {
		if whole && p.Pattern == m.Pattern {
			continue // what was said of both holds for it
		}
		list = append(list, a.judgeWhole(s, p, check)...)
	}
	return list
}

// takesWhole reports whether a match may take the place of its parts: it was asked for, as were the kernels of the
// parts, and no part would run on another device. Parts that become ops of the standard do not matter.
func (a *applier) takesWhole(s *pass.Scope, m *patterns.Match) bool {
	whole, asked := a.kernelOf(m)
	if t := a.request.Target; t != nil && !t.Takes(m.Op) {
		return false
	}
	return asked && a.keeps(s, m) && !slices.ContainsFunc(m.Parts, func(p *patterns.Match) bool {
		part, asked := a.kernelOf(p)
		return part.Device != registry.DeviceAny && (!asked || part.Device != whole.Device)
	})
}

// keeps reports whether the filters leave a match in.
func (a *applier) keeps(s *pass.Scope, m *patterns.Match) bool {
	c := a.request
	return c.KeepPattern(m.Pattern) && c.KeepNode(m.Root) && (c.ids == nil || c.ids[s.ID(m)])
}

// judge examines one match and, where it is refused, its smaller readings in turn. It writes one line of the report,
// and returns the candidate to replace, nil when there is none.
func (a *applier) judge(s *pass.Scope, m *patterns.Match, check *sites.Checker) *candidate {
	count := a.report.pattern(m.Pattern)
	count.Found++
	kernel, asked := a.kernelOf(m)
	for i := range a.report.Kernels {
		k := &a.report.Kernels[i]
		k.Met = k.Met || k.ID == kernel.ID || m.Domain == fused.Domain && slices.Contains(k.Ops, m.Op)
	}
	if !asked || !a.keeps(s, m) {
		return nil
	}
	c, site, err := a.attempt(s, m, check)
	for largest := m; err != nil && m.Smaller != nil; {
		if m = m.Smaller(); m == nil {
			m = largest
			break
		}
		smaller, line, why := a.attempt(s, m, check)
		if why == nil || codeOf(why) != codeOf(err) { // else the line of the larger one says it of both
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
		if c.constants == nil { // for want of weights nothing was checked
			c.constants = a.fold(c)
		}
		site.Weights = c.weights()
		maps.Copy(a.bodies, c.variants)
		count.Fused++
		if site.Check != nil && slices.ContainsFunc(m.Inputs, func(v *onnx.Value) bool {
			return check.Draws(v.Constant())
		}) {
			a.report.Drawn++
		}
		a.report.kernel(kernel.ID).Sites++
	}
	a.report.Sites = append(a.report.Sites, site)
	return c
}

// codeOf is the code of the reason that an error holds, "" for none.
func codeOf(err error) reason.Code {
	if r := reason.As(err); r != nil {
		return r.Code
	}
	return ""
}

// attempt examines and checks one reading of a site. The error is the reason to refuse it.
func (a *applier) attempt(s *pass.Scope, m *patterns.Match, check *sites.Checker) (*candidate, SiteReport, error) {
	site := SiteReport{ID: s.ID(m), Match: m, Pattern: m.Pattern, Op: m.Op, Nodes: nodeNames(m.Nodes),
		Node: m.Root.Label(), Status: Fused}
	delete(a.asked, site.ID)
	c, err := a.examine(s, m)
	for _, v := range m.Inputs {
		site.Types = append(site.Types, a.Facts.DataType(v).String())
	}
	if err == nil {
		err = a.floats.Keep(c.Site)
	}
	if err == nil {
		if err = a.checkRouter(s, m, check); err == nil {
			site.Check, err = check.Check(c.Site)
		}
	}
	if err == nil {
		c.constants = a.fold(c)
		err = a.floats.Take(c.Site, func(v *onnx.Value) quantized.Constant {
			if k := c.constants[v]; k != nil {
				return k
			}
			return nil
		})
	}
	if a.request.AllowUnverified && errors.Is(err, onnx.ErrMissingData) {
		site.Check, err = nil, nil
		a.report.Unverified++
	}
	return c, site, err
}

// examine gathers what is known of a match without evaluating it, and has the target write its ops. Its errors are
// reasons to refuse.
func (a *applier) examine(s *pass.Scope, m *patterns.Match) (*candidate, error) {
	c, err := a.candidate(s, m)
	if err == nil {
		err = a.lower(c)
	}
	if err == nil {
		err = c.CheckOrder()
	}
	return c, err
}

// candidate is examine without a target.
func (a *applier) candidate(s *pass.Scope, m *patterns.Match) (*candidate, error) {
	site, err := sites.NewSite(m, s, a.Facts)
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
			f, err = a.fused(c, n)
		case onnx.IsStandardDomain(n.Domain) || n.Domain == onnx.Microsoft:
			continue
		default:
			if f = known[n.Domain+"."+n.OpType+"."+n.Overload]; f == nil {
				return nil, reason.New(reason.Undefined, nil,
					"the pattern rewrites to %s, which no pattern file defines", onnx.OpName(n.Domain, n.OpType))
			}
			f, err = a.define(f)
		}
		if err != nil {
			return nil, err
		}
		if s.Function != nil && a.request.Target == nil {
			if f, err = a.inBody(c, f); err != nil {
				return nil, err
			}
		}
		n.Overload = f.Overload
		c.Functions = append(c.Functions, f)
	}
	return c, c.Cut(a.Facts)
}

// fused looks at one fused op of a replacement and returns its definition.
func (a *applier) fused(c *candidate, n *onnx.Node) (*onnx.Function, error) {
	op := fused.Lookup(n.OpType)
	if op == nil {
		return nil, reason.New(reason.Undefined, nil,
			"the pattern rewrites to %s.%s, which is not in the catalogue of fused ops", n.Domain, n.OpType)
	}
	kernel := a.byOp[op.Name]
	if kernel == nil {
		return nil, reason.New(reason.NotAsked, nil, "it needs mojo.%s as well, whose kernel was not asked for",
			op.Name).With("op", op.Name)
	}
	call, err := c.AddCall(n, kernel, a.Model.Opset(""))
	if err != nil {
		return nil, err
	}
	name := fused.Domain + "." + op.Name + "." + op.Overload(call.Site)
	if f := a.functions[name]; f != nil {
		return f, nil
	}
	f, err := op.Function(call.Site)
	if err != nil {
		return nil, err
	}
	return a.define(f)
}

// define returns the one definition for all sites that need an equal one.
func (a *applier) define(f *onnx.Function) (*onnx.Function, error) {
	name := edit.FunctionName(f)
	if old := a.functions[name]; old != nil {
		return old, nil
	}
	if old := a.Model.Function(f.Domain, f.Name, f.Overload); old != nil && !old.SameBody(f) {
		return nil, reason.New(reason.Conflict, nil, "the model has another function %s.%s (overload %q)", f.Domain,
			f.Name, f.Overload)
	}
	a.functions[name] = f
	return f, nil
}

// inBody returns the definition as the body of a function can call it. onnxruntime does not look at overloads there
// ("mojo:GLU(-1) is not a registered function/op", 1.31): the one of the overload "" is taken, so that there can be one
// variant of an op for all bodies.
func (a *applier) inBody(c *candidate, f *onnx.Function) (*onnx.Function, error) {
	if f.Overload == "" {
		return f, nil
	}
	op := onnx.OpName(f.Domain, f.Name)
	if have, taken := a.bodies[op]; taken && have != f.Overload {
		return nil, reason.New(reason.InFunction, nil,
			"it stands in function %s.%s, where onnxruntime finds one variant of %s alone, which is %q already and "+
				"not %q: "+
				"inline the functions (--inline all)", c.Scope.Function.Domain, c.Scope.Function.Name, op, have,
			f.Overload)
	}
	if c.variants == nil {
		c.variants = map[string]string{}
	}
	c.variants[op] = f.Overload
	key := edit.FunctionName(f) + " in bodies"
	if a.functions[key] == nil {
		plain := *f
		plain.Overload = ""
		if old := a.Model.Function(f.Domain, f.Name, ""); old != nil && !old.SameBody(&plain) {
			return nil, reason.New(reason.Conflict, nil,
				"the model has another function %s without an overload, the only one that the body of a function can "+
					"call", op)
		}
		a.functions[key] = &plain
	}
	return a.functions[key], nil
}
