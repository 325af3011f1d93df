package prove

import (
	"errors"
	"fmt"
	"iter"
	"slices"

	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/reference"
)

// Trial is one set of inputs that a claim is tried on.
type Trial struct {
	Name   string // what is special about the inputs, for messages
	Kind   string // the same for reports, if they name the trial
	Inputs []*reference.Tensor
	// Pass is Both unless the inputs are for one of the passes only.
	Pass Pass
}

// Pass says in which way a trial is evaluated.
type Pass int

// The passes are evaluated in this order.
const (
	Both    Pass = iota
	Exactly      // without rounding
	Rounded      // in the graph's own types
)

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
	// Outputs names the outputs in messages; nil for their numbers. By names After there; "" for "the change".
	Outputs []string
	By      string
	// Before and After are two ways to compute the same outputs.
	Before, After Computation
	// Exact and Typed are the bounds without rounding and in the graph's own types. A pass without a bound is left out.
	Exact, Typed Bound
	// Policy says which trials and differences say nothing.
	Policy Policy
	// Also, unless it is nil, looks at what both computed in the graph's own types, and adds to the figures: the kernel
	// is run, for example.
	Also func(t Trial, want, got []*reference.Tensor, r *CheckReport) error
	// Differs, unless it is nil, words that a comparison failed. Errors of Also are left as they are then.
	Differs func(t Trial, exact bool, err error) error
}

// Policy declares which differences do not refute a claim, and how reports mention them. The zero value
// excuses nothing.
type Policy struct {
	// NotFinite says how infinities and NaN of Before are compared.
	NotFinite NotFinite
	// NoteOverflow has reports name trials on whose way Before overflows and for which After returns other numbers.
	NoteOverflow bool
	// Excused are the kinds of trials whose rounded results may differ, which reports then say.
	Excused []string
	// Undefined, unless it is nil, reports whether a trial that Before fails for says nothing.
	Undefined func(err error) bool
	// Settle, unless it is nil, makes equal in the outputs what the claim leaves open.
	Settle func(t Trial, exact bool, want, got []*reference.Tensor) error
}

// NotFinite says how infinities and NaN of Before are compared.
type NotFinite int

const (
	// SamePlaces wants After to have the same ones in the same places.
	SamePlaces NotFinite = iota
	// Noted leaves open what After has there. Reports name the trials for which it has numbers.
	Noted
	// LeftOpen leaves open what After has there.
	LeftOpen
)

// ErrOverflow is returned by a Computation, beside its outputs, if something overflowed on the way. What it returns
// with the graph's own types means nothing then and is not compared.
var ErrOverflow = errors.New("it overflows")

// run is one evaluation of Before.
type run struct {
	trial      Trial
	exact      bool
	want       []*reference.Tensor
	overflowed bool
}

// tally counts what a claim was tried on.
type tally struct {
	runs  int
	typed int // compared in the graph's own types
}

// Try evaluates both sides of each trial in turn, and adds to the figures. The next trial may depend on what came of
// those before it. The error says why the claim does not hold, or, as an *EvalError, why it could not be evaluated.
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

// before returns nil for a trial that says nothing.
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

// overflows notes a trial on whose way Before overflows if After returns other numbers.
func (c *Claim) overflows(x *run, got []*reference.Tensor, r *CheckReport) {
	if !c.Policy.NoteOverflow || len(x.want) != len(got) {
		return
	}
	how := &Comparison{Bound: c.Typed, Each: func(d *Difference) {
		if d.Far > d.Allowed {
			note(&r.Overflow, x.trial.Kind)
		}
	}}
	_ = how.Compare(x.want, got) // Each hears of it
	r.NumbersForNone(x.trial.Kind, x.want, got)
}

// told errs if the trials said nothing.
func (c *Claim) told(n tally) error {
	switch {
	case n.runs == 0:
		return &EvalError{Err: errors.New("there is nothing to try")}
	case c.Typed != nil && n.typed == 0:
		return &EvalError{Err: errors.New("the matched nodes overflow on all inputs that were tried")}
	}
	return nil
}
