package prove

import (
	"errors"
	"fmt"
	"iter"
	"slices"

	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/reference"
)

// A Trial is one set of inputs for a claim.
type Trial struct {
	Name   string // describes the inputs in messages
	Kind   string // the same for reports that name the trial
	Inputs []*reference.Tensor
	// Pass is Both unless the inputs are for only one of the passes.
	Pass Pass
}

// Pass selects how a trial is evaluated.
type Pass int

// The passes, in order of evaluation.
const (
	Both    Pass = iota
	Exactly      // without rounding
	Rounded      // in the graph's own types
)

// A Bound returns the allowed difference in an output of type t with this largest magnitude.
type Bound func(output int, t onnx.DataType, magnitude float64) float64

// BitForBit allows no difference.
func BitForBit(int, onnx.DataType, float64) float64 { return 0 }

// Structural allows StructuralTolerance.
func Structural(_ int, _ onnx.DataType, magnitude float64) float64 {
	return StructuralTolerance * magnitude
}

// SumOf allows the rounding errors of sums with this many terms.
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

// A Claim states that After computes the same as Before.
type Claim struct {
	What string // the statement, for messages and reports: "the heads of \"q\" stay in place"
	// Key is equal for claims that hold or fail together; only one of them is proven. "" equals no other key.
	Key    string
	Trials iter.Seq2[Trial, error]
	// Outputs names the outputs in messages; nil uses their numbers. By names After; "" means "the change".
	Outputs []string
	By      string
	// Before and After compute the same outputs in two ways.
	Before, After Computation
	// Exact and Typed are the bounds without rounding and in the graph's own types. A pass without a bound is skipped.
	Exact, Typed Bound
	// Policy declares trials and differences that prove nothing.
	Policy Policy
	// Also, if not nil, examines the results of both in the graph's own types and adds to the figures: it may run the
	// kernel, for example.
	Also func(t Trial, want, got []*reference.Tensor, r *CheckReport) error
	// Differs, if not nil, words the error of a failed comparison. It leaves errors of Also unchanged.
	Differs func(t Trial, exact bool, err error) error
}

// A Policy declares which differences do not refute a claim, and how reports mention them. The zero value excuses
// nothing.
type Policy struct {
	// NotFinite selects how infinities and NaN of Before are compared.
	NotFinite NotFinite
	// NoteOverflow makes reports name trials in which Before overflows internally and After returns other numbers.
	NoteOverflow bool
	// Excused are the kinds of trials whose rounded results may differ. Reports mention these.
	Excused []string
	// Undefined, if not nil, reports whether a trial on which Before fails proves nothing.
	Undefined func(err error) bool
	// Settle, if not nil, makes those parts of the outputs equal that the claim leaves open.
	Settle func(t Trial, exact bool, want, got []*reference.Tensor) error
}

// NotFinite selects how infinities and NaN of Before are compared.
type NotFinite int

const (
	// SamePlaces requires that After has the same ones in the same places.
	SamePlaces NotFinite = iota
	// Noted allows any result of After there. Reports name the trials for which it has numbers.
	Noted
	// LeftOpen allows any result of After there.
	LeftOpen
)

// ErrOverflow is returned by a Computation, together with its outputs, if anything overflowed internally. The outputs
// in the graph's own types are then meaningless and are not compared.
var ErrOverflow = errors.New("it overflows")

// run is one evaluation of Before.
type run struct {
	trial      Trial
	exact      bool
	want       []*reference.Tensor
	overflowed bool
}

// tally counts the trials of a claim.
type tally struct {
	runs  int
	typed int // number compared in the graph's own types
}

// Try evaluates both sides of each trial in turn, and adds to the figures. The next trial may depend on the outcome of
// earlier ones. The error says why the claim does not hold or, as an *EvalError, why it could not be evaluated.
func (c *Claim) Try(r *CheckReport) error {
	var n tally
	for x, err := range c.runs() {
		if err == nil {
			err = c.judge(x, r, &n)
		}
		if err != nil {
			return err
		}
	}
	return c.told(n)
}

// runs evaluates Before on each trial, in each pass.
func (c *Claim) runs() iter.Seq2[*run, error] {
	return func(yield func(*run, error) bool) {
		for trial, err := range c.Trials {
			if err != nil {
				yield(nil, err)
				return
			}
			for _, exact := range []bool{true, false} {
				if exact && (c.Exact == nil || trial.Pass == Rounded) ||
					!exact && (c.Typed == nil || trial.Pass == Exactly) {
					continue
				}
				x, err := c.before(trial, exact)
				if x == nil && err == nil {
					continue
				}
				if !yield(x, err) || err != nil {
					return
				}
			}
		}
	}
}

// before returns nil for a trial that proves nothing.
func (c *Claim) before(t Trial, exact bool) (*run, error) {
	want, err := c.Before(reference.Options{Exact: exact}, t.Inputs)
	x := &run{t, exact, want, errors.Is(err, ErrOverflow)}
	switch {
	case err == nil || x.overflowed:
		return x, nil
	case c.Policy.Undefined != nil && c.Policy.Undefined(err):
		return nil, nil
	}
	return nil, &EvalError{Err: err}
}

// judge evaluates After on a trial and compares.
func (c *Claim) judge(x *run, r *CheckReport, n *tally) error {
	n.runs++
	got, err := c.After(reference.Options{Exact: x.exact}, x.trial.Inputs)
	if x.overflowed && !x.exact {
		if err == nil {
			c.overflows(x, got, r)
		}
		return nil
	}
	if err == nil && c.Policy.Settle != nil {
		err = c.Policy.Settle(x.trial, x.exact, x.want, got)
	}
	if err != nil {
		return &EvalError{Err: err}
	}
	figures := *r
	r.Cases++
	if err := c.comparison(x.exact, r).Compare(x.want, got); err != nil {
		if !x.exact && slices.Contains(c.Policy.Excused, x.trial.Kind) {
			*r = figures
			note(&r.Overflow, x.trial.Kind)
			return nil
		}
		if c.Differs != nil {
			return c.Differs(x.trial, x.exact, err)
		}
		return fmt.Errorf("%s (%s): %w", c.What, x.trial.Name, err)
	}
	if c.Policy.NotFinite == Noted {
		r.NumbersForNone(x.trial.Kind, x.want, got)
	}
	if x.exact {
		return nil
	}
	if n.typed++; c.Also == nil {
		return nil
	}
	if err = c.Also(x.trial, x.want, got, r); err != nil && c.Differs == nil {
		err = fmt.Errorf("%s (%s): %w", c.What, x.trial.Name, err)
	}
	return err
}

// comparison compares outputs and adds to the figures.
func (c *Claim) comparison(exact bool, r *CheckReport) *Comparison {
	how := &Comparison{Names: c.Outputs, By: c.By, Bound: c.Typed, Exact: exact,
		Strict: c.Policy.NotFinite == SamePlaces, Says: c.Differs == nil, Each: r.rounded}
	if how.By == "" {
		how.By = "the change"
	}
	if exact {
		how.Bound, how.Each, how.Terse = c.Exact, r.exact, c.Differs != nil
	}
	return how
}

// overflows notes a trial in which Before overflows internally if After returns other numbers.
func (c *Claim) overflows(x *run, got []*reference.Tensor, r *CheckReport) {
	if !c.Policy.NoteOverflow || len(x.want) != len(got) {
		return
	}
	how := &Comparison{Bound: c.Typed, Each: func(d *Difference) {
		if d.Far > d.Allowed {
			note(&r.Overflow, x.trial.Kind)
		}
	}}
	_ = how.Compare(x.want, got) // Each receives the result
	r.NumbersForNone(x.trial.Kind, x.want, got)
}

// told returns an error if the trials proved nothing.
func (c *Claim) told(n tally) error {
	switch {
	case n.runs == 0:
		return &EvalError{Err: errors.New("no input was tried")}
	case c.Typed != nil && n.typed == 0:
		return &EvalError{Err: errors.New("the matched nodes overflow on all tried inputs")}
	}
	return nil
}
