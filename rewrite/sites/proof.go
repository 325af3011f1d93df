package sites

import (
	"errors"
	"iter"
	"slices"

	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/patterns/reason"
	"github.com/mojo-patch/mojo-patch/reference"
	"github.com/mojo-patch/mojo-patch/rewrite/prove"
	"github.com/mojo-patch/mojo-patch/rewrite/registry"
)

// proof is the claim of a site during its trials.
type proof struct {
	*Checker
	c     *Site
	yield func(prove.Trial, error) bool
	w     world // of the trial
	// values holds the values of the replacement's nodes in the trial.
	values map[*onnx.Value]*reference.Tensor
	// settle, if not nil, makes equal any results of kernel and definition that the trial leaves open.
	settle func(want, got []*reference.Tensor)
}

// claim claims that the replacement computes the same as the matched nodes, and that the kernels of these calls and the
// runtime do so too. trials calls try for one trial after the other.
func (p *proof) claim(calls []*Call, trials func() error) *prove.Claim {
	c, bound := p.c, p.c.slice.structuralBound()
	return &prove.Claim{What: c.OpName(), By: c.OpName(), Outputs: onnx.Names(c.Match.Outputs),
		Trials: p.trials(trials),
		Before: func(o reference.Options, in []*reference.Tensor) ([]*reference.Tensor, error) {
			return p.original(c, p.w, in, o.Exact)
		},
		After: func(o reference.Options, in []*reference.Tensor) (out []*reference.Tensor, err error) {
			out, p.values, err = p.replacement(c, in, o.Exact)
			return out, err
		},
		Exact:  func(_ int, _ onnx.DataType, magnitude float64) float64 { return bound * magnitude },
		Typed:  c.allowed,
		Policy: prove.Policy{NotFinite: prove.Noted, NoteOverflow: c.narrowest.IsHalf(), Settle: p.settleSteps},
		Also: func(t prove.Trial, want, _ []*reference.Tensor, r *prove.CheckReport) error {
			if err := p.inRuntime(t, want); err != nil {
				return err
			}
			for _, call := range calls {
				if err := p.kernel(call, t.Kind, p.values, r); err != nil {
					return err
				}
			}
			return nil
		},
		Differs: func(t prove.Trial, exact bool, err error) error {
			mode := ""
			if exact {
				mode = " (in float64, without roundings)"
			}
			return reason.New(reason.Differs, nil, "differs from the matched nodes on %s%s: %w", t.Name, mode, err).
				With("inputs", t.Name).With("rounded", !exact)
		}}
}

// settleSteps makes numbers equal that the replacement may round to 8 bits either way (prove.Steps).
func (p *proof) settleSteps(_ prove.Trial, exact bool, want, got []*reference.Tensor) error {
	for _, call := range p.c.Calls {
		at := slices.Index(p.c.Match.Replacement.Outputs, call.Node.Outputs[0])
		if at < 0 {
			continue
		}
		in := make([]*reference.Tensor, len(call.Node.Inputs))
		for i, v := range call.Node.Inputs {
			in[i] = p.values[v]
		}
		steps, err := prove.StepsOf(call.Op, call.Site, in, reference.Options{Exact: exact})
		if err != nil {
			return err
		}
		if steps != nil {
			steps.Settle(at, want, got)
		}
	}
	return nil
}

// errEnough ends the trials if the prover wants no more.
var errEnough = errors.New("enough was tried")

func (p *proof) trials(all func() error) iter.Seq2[prove.Trial, error] {
	return func(yield func(prove.Trial, error) bool) {
		p.yield = yield
		if err := all(); err != nil && !errors.Is(err, errEnough) {
			yield(prove.Trial{}, err)
		}
	}
}

// try passes a trial in a world to the prover, and returns after it was tried. An error ends the trials.
func (p *proof) try(t prove.Trial, w world) error {
	if p.w = w; !p.yield(t, nil) {
		return errEnough
	}
	return nil
}

// kernel compares the kernel of a fused op with its definition's results on the same inputs, of this kind, if the
// caller provided a way to run it.
func (p *proof) kernel(call *Call, kind string, values map[*onnx.Value]*reference.Tensor, r *prove.CheckReport) error {
	if p.run.Kernel == nil || p.Target != nil || registry.IsDefinition(call.Kernel) {
		return nil
	}
	var want []*reference.Tensor
	for _, v := range call.Node.Outputs {
		t := values[v]
		if v != nil && (t == nil || !prove.AllFinite(t.F)) {
			return nil
		}
		want = append(want, t)
	}
	in := make([]*reference.Tensor, len(call.Node.Inputs))
	for i, v := range call.Node.Inputs {
		if v != nil {
			in[i] = values[v]
		}
	}
	run := &prove.KernelRun{Op: call.Op, Site: call.Site, In: in, Want: want, Settle: p.settle}
	if run.Settle == nil {
		run.Settle = prove.SettleRounded(call.Op, call.Site)
	}
	got, err := p.run.CompareKernel(run, r)
	switch {
	case err == nil || errors.As(err, new(*prove.EvalError)):
		return err
	case got == nil:
		return reason.New(reason.Kernel, nil, "kernel %s fails on %s inputs: %w", call.Kernel.ID, kind, err).
			With("kernel", call.Kernel.ID)
	}
	return reason.New(reason.Kernel, nil, "kernel %s differs from the op's definition on %s inputs: %w", call.Kernel.ID,
		kind, err).With("kernel", call.Kernel.ID).With("max_rel", *r.Kernel)
}
