package moe

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"

	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/patterns/match"
	"github.com/mojo-patch/mojo-patch/patterns/probe"
	"github.com/mojo-patch/mojo-patch/patterns/reason"
	"github.com/mojo-patch/mojo-patch/reference/infer"
)

// The layers of a model have experts of one form. Only the first are read.

// reading is the result of reading a region: its experts, or why it has none.
type reading struct {
	experts *Experts
	why     *reason.Reason
	sure    bool              // as in Region
	named   map[string]nameOf // by the quoted names in the reason
}

type (
	// standing returns the value of another region that corresponds to v in the region that was read.
	standing func(v *onnx.Value) *onnx.Value
	// nameOf returns the name of a value or node in another region.
	nameOf func(standing) string
)

// readAlike reads the experts of a region, or reuses the reading of a region of the same form.
func readAlike(g *match.View, reg *Region) (*Experts, *reason.Reason) {
	budget := budgetOf(g)
	w := newWriter(g, reg)
	if w.Value(reg.Result); !budget.Spend(lookSteps * len(w.Values)) {
		return nil, givenUp(reg.Routing)
	}
	known := match.Memo[probe.Readings[reading]](g)
	if *known == nil {
		*known = probe.Readings[reading]{}
	}
	r, _ := known.Of(w.Form, budget, func() (*reading, *reason.Reason) {
		e, why := readExperts(g, reg)
		r := &reading{experts: e, why: why, sure: reg.sure}
		w.Unclear = w.Unclear || !w.holdsFor(r)
		return r, nil
	}, func(of *reading, _ *reason.Reason, stands func(*onnx.Value) *onnx.Value) (*reading, *reason.Reason, bool) {
		r := of.in(reg, stands)
		return r, nil, r != nil
	})
	if r == nil {
		return nil, givenUp(reg.Routing)
	}
	reg.sure = r.sure
	return r.experts, r.why
}

// holdsFor reports whether a reading holds for other regions of this form: it does not depend on numbers that the form
// omits, and every name in a reason is in the form.
func (w *writer) holdsFor(r *reading) bool {
	if r.experts != nil {
		return !slices.ContainsFunc(w.weights, func(v *onnx.Value) bool { return !r.experts.hasMatrix(v) })
	}
	r.named = map[string]nameOf{}
	for _, name := range quoted.FindAllString(r.why.Error(), -1) {
		for _, v := range w.Values {
			switch {
			case v.Producer != nil && strconv.Quote(v.Producer.Label()) == name:
				r.named[name] = func(stands standing) string { return stands(v).Producer.Label() }
			case strconv.Quote(v.Name) == name:
				r.named[name] = func(stands standing) string { return stands(v).Name }
			}
		}
		if r.named[name] == nil {
			return false
		}
	}
	return true
}

// quoted matches the names in a reason.
var quoted = regexp.MustCompile(`"(?:[^"\\]|\\.)*"`)

// in translates a reading to another region of the same form. It returns nil if a weight is unknown there.
func (r *reading) in(reg *Region, stands standing) *reading {
	own := &reading{sure: r.sure}
	if r.experts != nil {
		if own.experts = r.experts.in(reg, stands); own.experts == nil {
			return nil
		}
		return own
	}
	text := quoted.ReplaceAllStringFunc(r.why.Error(), func(name string) string {
		return strconv.Quote(r.named[name](stands))
	})
	own.why = reason.New(r.why.Code, nil, "%s", text)
	own.why.Figures = r.why.Figures
	return own
}

// matrices lists the stacks of matrices; missing ones are nil.
func (e *Experts) matrices() []**Stack { return []**Stack{&e.GateUp, &e.Gate, &e.Up, &e.Down} }

// stacks lists all stacks; missing ones are nil.
func (e *Experts) stacks() []**Stack {
	return append(e.matrices(), &e.GateUpBias, &e.GateBias, &e.UpBias, &e.DownBias)
}

// hasMatrix reports whether v holds a matrix of an expert.
func (e *Experts) hasMatrix(v *onnx.Value) bool {
	return slices.ContainsFunc(e.matrices(), func(s **Stack) bool {
		return *s != nil && slices.ContainsFunc((*s).Blocks, func(b *probe.Block) bool { return b.Source == v })
	})
}

// in returns the experts of another region of the same form, nil if one of its weights is unknown.
func (e *Experts) in(reg *Region, stands standing) *Experts {
	own := *e
	unit := *e.Unit
	own.Region, own.Unit, own.Shape = reg, &unit, nil
	for _, s := range own.stacks() {
		if *s == nil {
			continue
		}
		stack := **s
		stack.Blocks = slices.Clone(stack.Blocks)
		for i, b := range stack.Blocks {
			block := *b
			if block.Source = stands(b.Source); block.Source == nil {
				return nil
			}
			stack.Blocks[i] = &block
		}
		*s = &stack
	}
	return &own
}

// maxForm bounds the values of a form.
const maxForm = 1 << 14

// writer writes the form of a region.
type writer struct {
	*probe.Form
	g       *match.View
	inside  map[*onnx.Node]bool
	given   []*onnx.Value // the inputs of the region; nil for a missing one
	weights []*onnx.Value // the constants whose numbers are omitted
}

func newWriter(g *match.View, reg *Region) *writer {
	r := reg.Routing
	w := &writer{g: g, inside: onnx.SetOf(slices.Values(reg.Nodes)),
		given: []*onnx.Value{reg.X(), reg.Base(), r.IDs, r.Weights, r.Dense}}
	w.Form = probe.NewForm(g, maxForm, w.leaf)
	fmt.Fprint(w, r.K, " of ", r.Experts, " ", reg.Hidden, "\n")
	for _, v := range w.given {
		w.Value(v)
	}
	return w
}

// leaf writes a value that no node of the region computes.
func (w *writer) leaf(v *onnx.Value) bool {
	c := v.Constant()
	switch {
	case slices.Contains(w.given, v):
	case c != nil && w.isWeight(v):
		w.weights = append(w.weights, v)
	case c != nil:
		w.Tensor(c)
	case w.known(v):
	case w.inside[v.Producer]:
		return false
	default:
		w.Unclear = true
	}
	return true
}

// known writes the elements of a value if they are known in all worlds.
func (w *writer) known(v *onnx.Value) bool {
	_, constant := w.g.Facts.Constant(v)
	fmt.Fprint(w, constant)
	for world := range infer.Worlds {
		t, ok := w.g.Facts.Known(v, world)
		if !ok {
			return false
		}
		fmt.Fprint(w, t.DataType, t.Shape, t.F, t.I)
	}
	return true
}

// isWeight reports whether the region reads a constant only in products with other values: then the reading does not
// depend on its numbers.
func (w *writer) isWeight(v *onnx.Value) bool {
	if c := v.Constant(); !c.DataType.IsFloat() || len(c.Dims) < 2 {
		return false
	}
	moved := onnx.SetOf(onnx.Reach(w.movedTo, v))
	for m := range moved {
		for _, use := range m.Uses() {
			n := use.Node
			if !w.inside[n] || moves(use) {
				continue
			}
			times := 0
			for _, in := range n.Inputs {
				if moved[in] {
					times++
				}
			}
			if !n.IsProduct() || use.Index > 1 || times > 1 {
				return false
			}
		}
	}
	return true
}

// movedTo lists the values into which the region moves a value's elements.
func (w *writer) movedTo(v *onnx.Value) (list []*onnx.Value) {
	for _, use := range v.Uses() {
		if w.inside[use.Node] && moves(use) {
			list = append(list, use.Node.Outputs...)
		}
	}
	return list
}

// moves reports whether a node moves the elements of this input.
func moves(use onnx.Use) bool {
	return use.Node.MovesElements() && (use.Index == 0 || use.Node.Is("Concat"))
}
