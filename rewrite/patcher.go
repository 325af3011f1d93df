// Package rewrite replaces the sites of a model, the subgraphs that match a pattern, by fused ops. A Patcher prepares
// the model, finds matches, checks each, replaces them and reports, in this order.
//
// A match is only a candidate. It is replaced if its nodes depend on no values except the op's inputs, if the kernels
// support its types and shapes, and if the nodes and the op's definition return the same results on hard inputs. All
// other matches stay, with the reason in the Report.
//
//	patcher, err := rewrite.New(rewrite.Request{Inline: inline.Auto})
//	report, err := patcher.Run(model)
//
// or in two steps, with a look at the sites in between:
//
//	plan, err := patcher.Plan(model)
//	for _, site := range plan.Report.Sites {
//		fmt.Println(site.ID, site.Status, site.Reason)
//	}
//	err = plan.Replace()
//
// Apply does it all in one call.
//
// Applying twice changes nothing, and equal models have equal results.
package rewrite

import (
	"slices"

	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/rewrite/registry"
)

// Patcher patches models, always in this order: prepare the model (logits of the last position, shapes and opset for a
// target, inlining), find matches, check each, replace the ones that pass, report. It serves any number of models, one
// at a time.
//
// Run does all of it. Plan stops before the replacement, so that callers can examine the sites.
type Patcher struct {
	request *Request
	kernels *registry.Selection
	begin   Report // the beginning of every report
}

// New returns a Patcher for a request. Kernels requested by id must be available; with Auto, the report names those
// that are not. The error is a *registry.UnknownKernelError, a *registry.UnavailableError or a *registry.DeviceError.
func New(request Request) (*Patcher, error) {
	p := &Patcher{request: request.filled(), begin: Report{Schema: Schema}}
	q, r := p.request, &p.begin
	if q.Target != nil {
		chosen, kernels := chooseTarget(q.Target)
		p.kernels, r.Kernels, r.Target = registry.Select(chosen), kernels, q.Target.Name
		return p, nil
	}
	chosen, kernels, err := registry.Choose(q.Kernels, registry.NewEnvironment(q.Library), q.Backend, q.AssumeAvailable)
	if err != nil {
		return nil, err
	}
	p.kernels = registry.Select(chosen)
	r.Kernels, r.Backend, r.PassedOver = kernels, q.Backend.String(), q.Backend.PassedOver(kernels)
	return p, nil
}

// Kernels lists the registered kernels: whether they can be used here, and whether they take sites.
func (p *Patcher) Kernels() []registry.KernelReport { return slices.Clone(p.begin.Kernels) }

// Run patches the model. If it returns an error, the model must not be used.
func (p *Patcher) Run(m *onnx.Model) (*Report, error) {
	plan, err := p.Plan(m)
	if err != nil {
		return nil, err
	}
	return plan.Report, plan.Replace()
}

// Apply patches the model with New and Run.
func Apply(m *onnx.Model, r Request) (*Report, error) {
	p, err := New(r)
	if err != nil {
		return nil, err
	}
	return p.Run(m)
}
