// Package inline replaces calls of a model's functions by their bodies if blocks would otherwise be split between them.
package inline

import (
	"fmt"
	"maps"
	"slices"

	"github.com/mojo-patch/mojo-patch/internal/english"
	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/patterns"
	"github.com/mojo-patch/mojo-patch/reference/infer"
	"github.com/mojo-patch/mojo-patch/rewrite/convert"
	"github.com/mojo-patch/mojo-patch/rewrite/edit"
)

// Mode selects the model-local functions that are replaced by their bodies before the search for patterns. Some
// exporters write a module as a function that calls a function for each op, so that no body contains a whole pattern.
type Mode string

// Auto inlines functions that call others of the model, functions called by these, functions that may contain parts of
// a mixture of experts, and functions that are a block or contain part of one. It leaves the others, and the domains ""
// and com.microsoft, because a runtime may have kernels for them. All inlines every function, None no function. Fused
// ops are never inlined.
const (
	Auto Mode = "auto"
	All  Mode = "all"
	None Mode = "none"
)

// ParseMode parses the name of a mode.
func ParseMode(s string) (Mode, error) {
	switch i := Mode(s); i {
	case Auto, All, None:
		return i, nil
	}
	return "", fmt.Errorf("unknown inline mode %q; there are %s, %s, %s", s, Auto, All, None)
}

// A Report counts inlined functions, calls and branches.
type Report struct {
	Functions int `json:"functions"`
	Calls     int `json:"calls"`              // including nested calls
	Branches  int `json:"branches,omitempty"` // If nodes with known condition
}

// Text describes the report in words.
func (r *Report) Text() string {
	text := fmt.Sprintf("inlined %s (%s)", english.Counted(r.Functions, "function"), english.Counted(r.Calls, "call"))
	if r.Branches > 0 {
		text += fmt.Sprintf(" and the branches of %s", english.Counted(r.Branches, "If node"))
	}
	return text
}

// An Inliner inlines the functions of a model.
type Inliner struct {
	Model *onnx.Model
	Mode  Mode
	// Find looks for blocks in a graph.
	Find func(*onnx.Graph, *infer.Facts) ([]*patterns.Match, []*patterns.Miss)
	// Skips reports whether a function is the target of a rewrite. It is never inlined or searched.
	Skips func(*onnx.Function) bool
}

// Result describes the effect of inlining on a model.
type Result struct {
	Report  *Report      // nil if nothing was inlined
	Facts   *infer.Facts // of the model; nil unless they were inferred and still hold
	Restore func() error // undoes it; nil if it must stay
}

// Run inlines functions, and then the branches of If nodes with known condition.
func (a *Inliner) Run() (done Result, err error) {
	m, c := a.Model, new(edit.Change)
	r := &Report{}
	for _, choose := range []func() map[*onnx.Function]bool{a.toInline, a.withExperts, a.withParts} {
		inline := choose()
		if len(inline) == 0 {
			continue
		}
		if done.Restore == nil && a.Mode == Auto {
			done.Restore = edit.Whole(m).Undo
		}
		calls, err := c.InlineFunctions(m, func(f *onnx.Function) bool { return !inline[f] })
		if err != nil {
			return done, fmt.Errorf("%w\n(use --inline none to keep functions)", err)
		}
		r.Functions += len(inline)
		r.Calls += calls
	}
	if r.Functions == 0 {
		return done, nil
	}
	done.Report = r
	facts := infer.Analyze(m)
	taken := func(n *onnx.Node) *onnx.Graph { return takenBranch(n, facts) }
	if r.Branches, err = c.InlineBranches(m, taken); err != nil {
		return done, err
	}
	if r.Branches == 0 {
		done.Facts = facts
	}
	// the conditions, and unused results of calls
	if err := c.RemoveUnreadNodes(m.Graphs()...); err != nil {
		return done, fmt.Errorf("cannot remove the unread nodes after inlining: %w", err)
	}
	return done, nil
}

func (a *Inliner) toInline() map[*onnx.Function]bool {
	m, chosen := a.Model, map[*onnx.Function]bool{}
	if a.Mode == None || a.Mode == "" {
		return nil
	}
	byID := functionsOf(m)
	calls := map[*onnx.Function][]*onnx.Function{}
	for _, f := range m.Functions {
		calls[f] = calledIn(f.Body, byID)
	}
	kept := map[*onnx.Function]bool{} // including callees, so that nothing is inlined into them
	var keep func(f *onnx.Function)
	keep = func(f *onnx.Function) {
		if kept[f] {
			return
		}
		kept[f] = true
		if a.Mode == Auto {
			for _, c := range calls[f] {
				keep(c)
			}
		}
	}
	for _, f := range m.Functions {
		if a.stays(f) {
			keep(f)
		}
	}
	reached := map[*onnx.Function]bool{}
	for queue := calledIn(m.Graph, byID); len(queue) > 0; {
		f := queue[len(queue)-1]
		queue = queue[:len(queue)-1]
		if reached[f] {
			continue
		}
		reached[f] = true
		queue = append(queue, calls[f]...)
		if !kept[f] && (a.Mode == All || holds(f.Body, isChoice)) {
			chosen[f] = true
		}
		for _, c := range calls[f] {
			if !kept[f] && !kept[c] {
				chosen[f], chosen[c] = true, true
			}
		}
	}
	return chosen
}

// withExperts selects the functions called between a choice and the sum, once the choices are in the graphs.
func (a *Inliner) withExperts() map[*onnx.Function]bool {
	chosen := map[*onnx.Function]bool{}
	if a.Mode != Auto {
		return chosen
	}
	functions := functionsOf(a.Model)
	maps.DeleteFunc(functions, func(_ functionID, f *onnx.Function) bool {
		return !holds(f.Body, (*onnx.Node).IsProduct)
	})
	for _, g := range a.Model.Graphs() {
		for _, f := range calledForExperts(g, functions) {
			if !a.stays(f) {
				chosen[f] = true
			}
		}
	}
	return chosen
}

// stays reports whether a function must not be inlined.
func (a *Inliner) stays(f *onnx.Function) bool {
	return a.Skips(f) ||
		a.Mode == Auto && (onnx.IsStandardDomain(f.Domain) || f.Domain == onnx.Microsoft ||
			!agrees(a.Model, f))
}

func functionsOf(m *onnx.Model) map[functionID]*onnx.Function {
	byID := map[functionID]*onnx.Function{}
	for _, f := range m.Functions {
		byID[idOf(f.Domain, f.Name, f.Overload)] = f
	}
	return byID
}

type functionID struct{ domain, name, overload string }

func idOf(domain, name, overload string) functionID {
	if onnx.IsStandardDomain(domain) {
		domain = ""
	}
	return functionID{domain, name, overload}
}

// calledIn lists the functions called by a graph and its subgraphs, each once.
func calledIn(g *onnx.Graph, functions map[functionID]*onnx.Function) []*onnx.Function {
	var list []*onnx.Function
	seen := map[*onnx.Function]bool{}
	g.Walk(func(g *onnx.Graph) {
		for _, n := range g.Nodes {
			if f := functions[idOf(n.Domain, n.OpType, n.Overload)]; f != nil && !seen[f] {
				seen[f] = true
				list = append(list, f)
			}
		}
	})
	return list
}

// Called returns the functions that the model calls, directly or indirectly.
func Called(m *onnx.Model) map[*onnx.Function]bool {
	byID, list := functionsOf(m), map[*onnx.Function]bool{}
	var add func(g *onnx.Graph)
	add = func(g *onnx.Graph) {
		for _, f := range calledIn(g, byID) {
			if !list[f] {
				list[f] = true
				add(f.Body)
			}
		}
	}
	add(m.Graph)
	return list
}

// agrees reports whether the function imports the same versions as the model.
func agrees(m *onnx.Model, f *onnx.Function) bool {
	return !slices.ContainsFunc(f.Opsets, func(o onnx.Opset) bool {
		have := m.Opset(o.Domain)
		return have != 0 && have != o.Version
	})
}

// takenBranch returns the branch that an If node always takes, or nil if it depends on more than constants, ranks and
// fixed dimensions. (Functions for every rank test the rank.)
func takenBranch(n *onnx.Node, facts *infer.Facts) *onnx.Graph {
	if !isStatic(n.Input(0), facts, 0) {
		return nil
	}
	return convert.TakenBranch(n, facts)
}

// isStatic reports whether a value depends only on constants and fixed dimensions. A value that is only equal in all
// worlds may be a comparison with a symbolic dimension.
func isStatic(v *onnx.Value, facts *infer.Facts, depth int) bool {
	const deepest = 16
	switch {
	case v == nil || depth > deepest:
		return false
	case v.Constant() != nil:
		return true
	case v.Producer == nil || !onnx.IsStandardDomain(v.Producer.Domain) || len(v.Producer.Subgraphs()) > 0:
		return false
	}
	n := v.Producer
	if n.Is("Shape") || n.Is("Size") {
		rank, ok := facts.Rank(n.Input(0))
		for i := 0; ok && i < rank; i++ {
			_, ok = facts.Dim(n.Input(0), i)
		}
		return ok
	}
	return !slices.ContainsFunc(n.Inputs, func(in *onnx.Value) bool {
		return in != nil && !isStatic(in, facts, depth+1)
	})
}
