package prove

import (
	"errors"

	"github.com/mojo-patch/mojo-patch/onnx"
)

// A Prover proves claims. The zero value proves each kind of claim once.
type Prover struct {
	// Off makes the prover assume all claims.
	Off bool
	// Every makes the prover prove claims with equal keys separately.
	Every bool
	// Unverified makes the prover assume claims about weights whose elements are missing.
	Unverified bool
	// Most bounds the kinds of claims that Check tries, unless it is 0. Beyond it, Check returns TooMany.
	Most    int
	TooMany error
	// Assumed lists the assumed claims.
	Assumed []string
	// Report holds the figures of the worst comparison.
	Report CheckReport

	outcomes map[string]outcome
}

// outcome is the result for the claims with one key.
type outcome struct {
	report CheckReport // of Check
	err    error
}

// Settled reports whether a claim with this What and Key needs no evaluation, because it is assumed (and listed) or was
// tried before, and returns its error. Call it first if a claim takes long to describe.
func (p *Prover) Settled(what, key string) (settled bool, err error) {
	o, settled := p.settled(what, func() string { return key })
	return settled, o.err
}

func (p *Prover) settled(what string, key func() string) (o outcome, settled bool) {
	switch {
	case p.Off:
		p.Assume(what)
		return o, true
	case p.Every:
		return o, false
	}
	o, settled = p.outcomes[key()]
	return o, settled
}

// settle records the outcome of a claim.
func (p *Prover) settle(key string, o outcome) {
	if p.outcomes == nil {
		p.outcomes = map[string]outcome{}
	}
	if key != "" {
		p.outcomes[key] = o
	}
}

// Checked returns the figures of the comparisons, or nil if claims are assumed instead.
func (p *Prover) Checked() *CheckReport {
	if p.Off {
		return nil
	}
	return &p.Report
}

// Other returns a prover with the same settings, for claims whose keys have another meaning.
func (p *Prover) Other() *Prover {
	return &Prover{Off: p.Off, Every: p.Every, Unverified: p.Unverified}
}

// Assume lists a claim that cannot be evaluated.
func (p *Prover) Assume(what string) { p.Assumed = append(p.Assumed, what) }

// Check returns the figures of one claim, nil if it is assumed, and an error if it does not hold. It calls try, which
// evaluates the claim, unless a claim with an equal key was tried; then the figures are marked as shared.
func (p *Prover) Check(what string, key func() string, try func(*CheckReport) error) (*CheckReport, error) {
	switch o, settled := p.settled(what, key); {
	case p.Off:
		return nil, nil
	case settled:
		o.report.Shared = true
		return &o.report, o.err
	case p.Most > 0 && len(p.outcomes) == p.Most:
		return nil, p.TooMany
	}
	var o outcome
	o.err = try(&o.report)
	if !p.Every {
		p.settle(key(), o)
	}
	return &o.report, o.err
}

// Once is Check without figures, for claims that are assumed and listed elsewhere.
func (p *Prover) Once(key string, try func() error) error {
	_, err := p.Check("", func() string { return key }, func(*CheckReport) error { return try() })
	return err
}

// Prove evaluates both sides of a claim. The error says why the claim does not hold or, as an *EvalError, why it could
// not be evaluated.
func (p *Prover) Prove(c *Claim) error { return p.Before(c).Holds() }

// A Pending is a claim whose Before was evaluated.
type Pending struct {
	prover *Prover
	claim  *Claim
	runs   []*run
	done   bool // without evaluation
	err    error
}

// Before evaluates a claim's outputs before the change. The graph that both sides read may change between Before and
// Holds.
func (p *Prover) Before(c *Claim) *Pending {
	w := &Pending{prover: p, claim: c}
	if w.done, w.err = p.Settled(c.What, c.Key); w.done {
		return w
	}
	for x, err := range c.runs() {
		if w.err = err; err == nil {
			w.runs = append(w.runs, x)
		}
	}
	return w
}

// Holds evaluates the outputs after the change and compares them.
func (w *Pending) Holds() error {
	if w.done {
		return w.err
	}
	p, c, n := w.prover, w.claim, tally{}
	for _, x := range w.runs {
		if w.err == nil {
			w.err = c.judge(x, &p.Report, &n)
		}
	}
	if w.err == nil {
		w.err = c.told(n)
	}
	if errors.Is(w.err, onnx.ErrMissingData) && p.Unverified {
		p.Assume(c.What)
		w.err = nil
	}
	w.done = true
	p.settle(c.Key, outcome{err: w.err})
	return w.err
}
