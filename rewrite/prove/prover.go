package prove

import (
	"errors"

	"github.com/mojo-patch/mojo-patch/onnx"
)

// Prover proves claims. The zero value proves each kind of claim once.
type Prover struct {
	// Off has the prover assume what it is asked to prove.
	Off bool
	// Every has the prover prove claims with equal keys each for itself.
	Every bool
	// Unverified has the prover assume claims about weights whose elements are missing.
	Unverified bool
	// Most bounds the kinds of claims that Check tries, unless it is 0. It returns TooMany for those beyond.
	Most    int
	TooMany error
	// Assumed lists the claims that were assumed.
	Assumed []string
	// Report holds the figures of the worst comparison.
	Report CheckReport

	outcomes map[string]outcome
}

// outcome is what came of the claims with one key.
type outcome struct {
	report CheckReport // of Check
	err    error
}

// Settled reports whether a claim with this What and Key needs no evaluation, and whether it holds: it is assumed, and
// listed so, or it was tried before. Callers ask first if a claim takes long to describe.
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

// settle keeps what came of a claim.
func (p *Prover) settle(key string, o outcome) {
	if p.outcomes == nil {
		p.outcomes = map[string]outcome{}
	}
	if key != "" {
		p.outcomes[key] = o
	}
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

// Check returns the figures of one claim, nil if it is assumed, and whether it holds. It calls try, which evaluates the
// claim, unless one with an equal key was tried; then the figures are marked as shared.
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

// Once is Check without figures, for what is assumed and listed elsewhere.
func (p *Prover) Once(key string, try func() error) error {
	_, err := p.Check("", func() string { return key }, func(*CheckReport) error { return try() })
	return err
}

// Prove evaluates both sides of a claim. The error says why the claim does not hold, or, as an *EvalError, why it could
// not be evaluated.
func (p *Prover) Prove(c *Claim) error { return p.Before(c).Holds() }

// Pending is a claim whose Before was evaluated.
type Pending struct {
	prover *Prover
	claim  *Claim
	runs   []*run
	done   bool // without evaluation
	err    error
}

// Before evaluates how a claim's outputs are computed before the change. Between it and Holds the graph that both sides
// read may change.
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

// Holds evaluates how the outputs are computed after the change, and compares them.
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
