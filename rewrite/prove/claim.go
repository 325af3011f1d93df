package prove

import (
	"errors"
	"fmt"
	"iter"
	"math"
	"slices"
	"strconv"

	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/reference"
)

// Trial is one set of inputs that a claim is tried on.
type Trial struct {
	Name   string // what is special about the inputs, for messages
	Inputs []*reference.Tensor
}

// Computation computes outputs from the inputs of a trial.
type Computation func(o reference.Options, in []*reference.Tensor) ([]*reference.Tensor, error)

// Bound returns the difference that is allowed in an output of type t, given its greatest magnitude.
type Bound func(output int, t onnx.DataType, magnitude float64) float64

// BitForBit allows no difference.
func BitForBit(int, onnx.DataType, float64) float64 { return 0 }

// Structural allows StructuralTolerance.
func Structural(_ int, _ onnx.DataType, magnitude float64) float64 {
	return StructuralTolerance * magnitude
}

// SumOf allows the roundings of sums of so many terms.
func SumOf(terms int64) Bound {
	return func(_ int, t onnx.DataType, magnitude float64) float64 {
		return AllowedULPs(t, terms) * Spacing(t, magnitude)
	}
}

// First bounds the first output, and allows no difference in others, such as the rows of caches.
func First(bound Bound) Bound {
	return func(output int, t onnx.DataType, magnitude float64) float64 {
		if output > 0 {
			return 0
		}
		return bound(output, t, magnitude)
	}
}

// Claim says that After computes the same as Before.
type Claim struct {
	What string // is claimed, for messages and reports: "the heads of \"q\" stay in place"
	// Key is equal for claims that hold or fail together; one of them is proven. "" is equal to no other.
	Key    string
	Trials iter.Seq2[Trial, error]
	// Outputs names the outputs in messages; nil for their numbers.
	Outputs []string
	// Before and After are two ways to compute the same outputs. Before is evaluated when the claim is made, After when
	// it is to hold: between the two the graph that both read may change.
	Before, After Computation
	// Exact and Typed are the bounds without rounding and in the graph's own types. A pass without a bound is left out.
	Exact, Typed Bound
	// Also, unless it is nil, looks at what both computed in the graph's own types: the kernel is run, for example.
	Also func(t Trial, want, got []*reference.Tensor) error
}

// Prover proves claims. The zero value proves each kind of claim once.
type Prover struct {
	// Off has the prover assume what it is asked to prove.
	Off bool
	// Every has the prover prove claims with equal keys each for itself.
	Every bool
	// Unverified has the prover assume claims about weights whose elements are missing.
	Unverified bool
	// Assumed lists the claims that were assumed.
	Assumed []string
	// Report holds the figures of the worst comparison.
	Report CheckReport

	outcomes map[string]error
}

// Pending is a claim whose Before was evaluated.
type Pending struct {
	prover *Prover
	claim  *Claim
	runs   []run
	done   bool // without evaluation
	err    error
}

// run is one evaluation of Before.
type run struct {
	trial Trial
	exact bool
	want  []*reference.Tensor
}

// Settled reports whether a claim with this What and Key needs no evaluation, and whether it holds: it is assumed, and
// listed so, or it was tried before. Callers ask first if a claim takes long to describe.
func (p *Prover) Settled(what, key string) (settled bool, err error) {
	if p.Off {
		p.Assumed = append(p.Assumed, what)
		return true, nil
	}
	if p.Every {
		return false, nil
	}
	err, settled = p.outcomes[key]
	return settled, err
}

// Checked returns the figures of the comparisons, nil if there were none because claims were assumed.
func (p *Prover) Checked() *CheckReport {
	if p.Off {
		return nil
	}
	return &p.Report
}

// Other returns a prover that does what this one was told, of claims whose keys mean something else.
func (p *Prover) Other() *Prover {
	return &Prover{Off: p.Off, Every: p.Every, Unverified: p.Unverified}
}

// Assume lists a claim that cannot be evaluated.
func (p *Prover) Assume(what string) { p.Assumed = append(p.Assumed, what) }

// Prove evaluates both sides of a claim. The error says why the claim does not hold, or, as an *EvalError, why it could
// not be evaluated.
func (p *Prover) Prove(c *Claim) error { return p.Before(c).Holds() }

// Before evaluates how a claim's outputs are computed before the change.
func (p *Prover) Before(c *Claim) *Pending {
	w := &Pending{prover: p, claim: c}
	if w.done, w.err = p.Settled(c.What, c.Key); w.done {
		return w
	}
	for trial, err := range c.Trials {
		if err != nil {
			w.err = err
			return w
		}
		for _, exact := range []bool{true, false} {
			if exact && c.Exact == nil || !exact && c.Typed == nil {
				continue
			}
			want, err := c.Before(reference.Options{Exact: exact}, trial.Inputs)
			if err != nil {
				w.err = &EvalError{Err: err}
				return w
			}
			w.runs = append(w.runs, run{trial, exact, want})
		}
	}
	if len(w.runs) == 0 {
		w.err = &EvalError{Err: errors.New("there is nothing to try")}
	}
	return w
}

// Holds evaluates how the outputs are computed after the change, and compares them.
func (w *Pending) Holds() error {
	if w.done {
		return w.err
	}
	p, c := w.prover, w.claim
	for _, r := range w.runs {
		if w.err != nil {
			break
		}
		w.err = w.compare(r)
	}
	if errors.Is(w.err, onnx.ErrMissingData) && p.Unverified {
		p.Assumed = append(p.Assumed, c.What)
		w.err = nil
	}
	if p.outcomes == nil {
		p.outcomes = map[string]error{}
	}
	if w.done = true; c.Key != "" {
		p.outcomes[c.Key] = w.err
	}
	return w.err
}

func (w *Pending) compare(r run) error {
	c := w.claim
	got, err := c.After(reference.Options{Exact: r.exact}, r.trial.Inputs)
	if err != nil {
		return &EvalError{Err: err}
	}
	bound := c.Typed
	if r.exact {
		bound = c.Exact
	}
	if err := w.prover.Report.Compare(c.Outputs, r.want, got, bound, r.exact); err != nil {
		return fmt.Errorf("%s (%s): %w", c.What, r.trial.Name, err)
	}
	w.prover.Report.Cases++
	if c.Also == nil || r.exact {
		return nil
	}
	if err := c.Also(r.trial, r.want, got); err != nil {
		return fmt.Errorf("%s (%s): %w", c.What, r.trial.Name, err)
	}
	return nil
}

// Compare compares the outputs of two computations, which messages call by these names or by their numbers, and adds to
// the figures. Infinities and NaN must stand in the same
// places.
func (r *CheckReport) Compare(names []string, want, got []*reference.Tensor, bound Bound, exact bool) error {
	if len(want) != len(got) {
		return fmt.Errorf("%d outputs instead of %d", len(got), len(want))
	}
	for i, w := range want {
		name := strconv.Itoa(i)
		if names != nil {
			name = names[i]
		}
		if err := Mismatch(name, "the change", w, got[i], exact); err != nil {
			return err
		}
		if !w.IsFloat() {
			continue
		}
		for j, x := range w.F {
			if y := got[i].F[j]; !IsFinite(x) && x != y && !(math.IsNaN(x) && math.IsNaN(y)) {
				return fmt.Errorf("output %q has %g instead of %g", name, y, x)
			}
		}
		difference, scale := Distance(w.F, got[i].F)
		allowed := bound(i, w.DataType, scale)
		if exact {
			r.Structural = max(r.Structural, Relative(difference, scale))
		} else if r.Tolerance == 0 || difference*r.Tolerance > r.MaxAbs*allowed { // the nearest to its bound
			r.MaxAbs, r.MaxRel = difference, Relative(difference, scale)
			r.Tolerance, r.ToleranceRel = allowed, Relative(allowed, scale)
		}
		if difference > allowed {
			return fmt.Errorf("output %q differs by %.3g, its greatest magnitude being %.3g and %.3g allowed", name,
				difference, scale, allowed)
		}
	}
	return nil
}

// Model computes the model's present outputs from its present inputs, even if some are removed later.
func Model(m *onnx.Model) Computation {
	inputs, outputs := slices.Clone(m.Graph.Inputs), slices.Clone(m.Graph.Outputs)
	return func(o reference.Options, in []*reference.Tensor) ([]*reference.Tensor, error) {
		e, err := reference.New(m, o)
		if err != nil {
			return nil, err
		}
		given := make(map[string]*reference.Tensor, len(in))
		for i, v := range inputs {
			given[v.Name] = in[i]
		}
		computed, err := e.Run(given)
		if err != nil {
			return nil, err
		}
		var out []*reference.Tensor
		for _, v := range outputs {
			out = append(out, computed[v.Name])
		}
		return out, nil
	}
}

// Op computes a node of a fused op by its definition, in an opset of the standard.
func Op(opset int64, n *onnx.Node, functions ...*onnx.Function) Computation {
	return func(o reference.Options, in []*reference.Tensor) ([]*reference.Tensor, error) {
		return reference.NewForOpset(opset, functions, o).Op(n, in)
	}
}

// Region computes values of a graph from others, by the nodes between them when it is evaluated, with the functions
// of m.
func Region(m *onnx.Model, inputs, outputs []*onnx.Value) Computation {
	return func(o reference.Options, in []*reference.Tensor) ([]*reference.Tensor, error) {
		env := make(map[*onnx.Value]*reference.Tensor, len(inputs))
		for i, v := range inputs {
			env[v] = in[i]
		}
		nodes := between(env, outputs)
		e := reference.NewForOpset(m.Opset(""), m.Functions, o)
		if _, err := e.EvalFor(nodes, env, outputs); err != nil {
			return nil, err
		}
		got := make([]*reference.Tensor, len(outputs))
		for i, v := range outputs {
			if got[i] = env[v]; got[i] == nil {
				return nil, fmt.Errorf("nothing computes %q", v.Name)
			}
		}
		return got, nil
	}
}

// between lists the nodes that outputs depend on, in an order in which they can be evaluated. Values that are known cut
// the search off.
func between(known map[*onnx.Value]*reference.Tensor, outputs []*onnx.Value) (nodes []*onnx.Node) {
	seen := map[*onnx.Node]bool{}
	var need func(v *onnx.Value)
	need = func(v *onnx.Value) {
		if v == nil || known[v] != nil || v.Producer == nil || seen[v.Producer] {
			return
		}
		seen[v.Producer] = true
		for _, in := range v.Producer.Reads() {
			need(in)
		}
		nodes = append(nodes, v.Producer)
	}
	for _, v := range outputs {
		need(v)
	}
	return nodes
}
