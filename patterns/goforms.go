package patterns

import (
	"cmp"
	"maps"
	"slices"

	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/patterns/match"
	"github.com/mojo-patch/mojo-patch/patterns/notation"
	"github.com/mojo-patch/mojo-patch/patterns/reason"
)

// goForm is a pattern that text cannot say: a Go function that finds its sites in a graph. It stands in a Set as a
// Pattern without text, and is tried before those that have one, so that no part of its sites is taken for another
// block.
type goForm struct {
	name     string
	op       string // of domain mojo, or of the standard
	find     func(f *finder, d *goForm) []*Match
	standard bool
	// joins says that its sites are made of those of other patterns: it is tried when these are found, whose matches
	// its own hold as Parts.
	joins bool
}

// goForms are the built-in ones, in the order they are tried. What is fitted to an op is looked for in what is left.
var goForms = []*goForm{skipNormForm, normRotaryForm, attentionForm, moeForm, routerForm, fitRotaryForm, fitNormForm,
	fitAddNormForm, fitLayerForm, fitGateForm, fitNormRotaryForm}

// pattern returns the entry of a Set that stands for the form.
func (d *goForm) pattern() *Pattern {
	return &Pattern{Name: d.name, Target: notation.Target{Domain: d.domain(), Op: d.op}}
}

func (d *goForm) domain() string {
	if d.standard {
		return ""
	}
	return "mojo"
}

// findForms finds the sites of the set's Go patterns, those that join others' or the rest.
func (f *finder) findForms(s *Set, joins bool) {
	for _, p := range s.Patterns {
		form := s.forms[p]
		if form == nil || form.joins != joins {
			continue
		}
		parts := map[*Match]bool{} // of what is found
		for _, m := range form.find(f, form) {
			if joins {
				for _, p := range m.Parts {
					parts[p] = true
				}
			} else if slices.ContainsFunc(m.Outputs, func(v *onnx.Value) bool { return f.written[v] }) {
				continue // a value that is computed twice, and read as one: the first match makes it
			}
			f.take(m)
		}
		if len(parts) > 0 {
			f.matches = slices.DeleteFunc(f.matches, func(m *Match) bool { return parts[m] })
		}
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

// note records why something that looks like the pattern is none; anchor is where somebody would ask.
func (f *finder) note(pattern string, anchor *onnx.Node, why *reason.Reason) {
	why.Node = cmp.Or(why.Node, anchor)
	f.notes = append(f.notes, &match.Miss{Pattern: pattern, Anchor: anchor, Reason: why})
}

// replacementBuilder makes the Replacement of a Match in Go.
type replacementBuilder struct {
	*builder
	f *finder
	m *Match

	stands map[*onnx.Value]*onnx.Value
}

// newReplacement starts the match of a form: root makes the first output.
func (f *finder) newReplacement(d *goForm, root *onnx.Node) *replacementBuilder {
	opset := f.view.Facts.Opset()
	m := &Match{Pattern: d.name, Op: d.op, Domain: d.domain(), Root: root, Alike: f.view.Alike, Repeats: f.repeats,
		Replacement: onnx.NewFunction("", "", "", opset).Body}
	return &replacementBuilder{f: f, m: m, builder: &builder{g: m.Replacement, opset: opset},
		stands: map[*onnx.Value]*onnx.Value{}}
}

// input returns the value of the replacement that stands for v, a value of the model's graph, whose role is what.
// Weights come in this way as well.
func (r *replacementBuilder) input(what Role, name string, v *onnx.Value) *onnx.Value {
	if what != NoRole {
		r.m.setRole(v, what)
	}
	if r.stands[v] == nil {
		r.m.Inputs = append(r.m.Inputs, v)
		r.stands[v] = r.m.Replacement.AddInput(name, onnx.Type{})
	}
	return r.stands[v]
}

// place adds the nodes of a part's replacement but for main, and returns what stands for its values; those of given are
// there already.
func (r *replacementBuilder) place(part *Match, main *onnx.Node,
	given map[*onnx.Value]*onnx.Value) map[*onnx.Value]*onnx.Value {
	stands := maps.Clone(given)
	for i, v := range part.Replacement.Inputs {
		if stands[v] == nil {
			stands[v] = r.input(part.Roles[part.Inputs[i]], v.Name, part.Inputs[i])
		}
	}
	g := r.m.Replacement
	for _, n := range part.Replacement.Nodes {
		if n == main {
			continue
		}
		inputs, outputs := make([]*onnx.Value, len(n.Inputs)), make([]*onnx.Value, len(n.Outputs))
		for i, v := range n.Inputs {
			inputs[i] = stands[v]
		}
		for i, v := range n.Outputs {
			outputs[i] = g.NewValue(v.Name)
			stands[v] = outputs[i]
		}
		made := g.AddNode(n.OpType, inputs, outputs, n.Attributes...)
		made.Domain, made.Overload = n.Domain, n.Overload
	}
	r.m.Functions = append(r.m.Functions, part.Functions...)
	return stands
}

// integers is an int64 vector, a Constant node.
func (r *replacementBuilder) integers(name string, values ...int64) *onnx.Value {
	return r.constant(name, onnx.NewInt64s("", values))
}

// fused adds the fused op with these outputs; one without a name is omitted, as an input may be (nil). attrs must be
// complete.
func (r *replacementBuilder) fused(inputs []*onnx.Value, outputs []string, attrs ...*onnx.Attribute) []*onnx.Value {
	g := r.m.Replacement
	outs := make([]*onnx.Value, len(outputs))
	for i, name := range outputs {
		if name != "" {
			outs[i] = g.NewValue(name)
		}
	}
	n := g.AddNode(r.m.Op, inputs, outs, attrs...)
	n.Domain = r.m.Domain
	r.m.Attributes = attrs
	return outs
}

// output has the model's value v written by w of the replacement.
func (r *replacementBuilder) output(v, w *onnx.Value) {
	r.m.Outputs = append(r.m.Outputs, v)
	r.m.Replacement.AddOutput(w)
}

// match returns the finished match; nodes are those that it replaces, in any order.
func (r *replacementBuilder) match(nodes []*onnx.Node) *Match {
	r.m.Nodes = inOrder(r.f.view, nodes)
	return r.m
}
