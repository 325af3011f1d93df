package rewrite

import (
	"slices"

	"github.com/mojo-patch/mojo-patch/rewrite/registry"

	"github.com/mojo-patch/mojo-patch/onnx"
)

// Patcher patches models, always in this order: prepare the model (logits of the last position, shapes and opset for a
// target, inlining), find matches, check each, replace those that hold, report. It is made once and serves any number
// of models, one at a time.
//
// Run does all of it. Plan stops before anything is replaced, for those who look at the sites first.
type Patcher struct {
	config *config
	chosen []*registry.Kernel // take sites, by priority
	begin  Report             // what every report begins with
}

// New returns a Patcher for the kernels that include names: Auto stands for all that are available (the others are
// named in the report), None (or nothing) for none, and a list of ids separated by commas for just those, each of which
// must be available. The error is an *UnknownKernelError, an *UnavailableError or a *DeviceError. With a target, what
// it takes stands in for kernels, and include plays no part.
func New(include string, options ...Option) (*Patcher, error) {
	p := &Patcher{config: newConfig(options), begin: Report{Schema: Schema}}
	r := &p.begin
	if t := p.config.target; t != nil {
		p.chosen, r.Kernels = chooseTarget(t)
		r.Target = t.Name
		return p, nil
	}
	b := p.config.backend
	chosen, kernels, err := registry.Choose(include, registry.NewEnvironment(p.config.library), b, p.config.assume)
	if err != nil {
		return nil, err
	}
	p.chosen = chosen
	r.Kernels, r.Backend, r.PassedOver = kernels, b.String(), b.PassedOver(kernels)
	return p, nil
}

// Kernels reports on the registered kernels: which can be used here, and which take sites.
func (p *Patcher) Kernels() []registry.KernelReport { return slices.Clone(p.begin.Kernels) }

// Run patches the model. After an error it is of no use.
func (p *Patcher) Run(m *onnx.Model) (*Report, error) {
	plan, err := p.Plan(m)
	if err != nil {
		return nil, err
	}
	return plan.Report, plan.Replace()
}

// ApplyDefaultKernels patches the model with the kernels that include names, as New and Run do.
func ApplyDefaultKernels(m *onnx.Model, include string, options ...Option) (*Report, error) {
	p, err := New(include, options...)
	if err != nil {
		return nil, err
	}
	return p.Run(m)
}

// ApplyKernel patches the model with one kernel. The error is an *UnknownKernelError or an *UnavailableError when the
// kernel does not exist or cannot be used here: it is never passed over.
func ApplyKernel(m *onnx.Model, id string, options ...Option) (*Report, error) {
	if _, err := registry.Lookup(id); err != nil {
		return nil, err
	}
	return ApplyDefaultKernels(m, id, options...)
}
