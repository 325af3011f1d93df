// Package pass has the common parts of the steps that change a whole model: the model and facts about it, the provers,
// and the kernels for checks.
package pass

import (
	"github.com/mojo-patch/mojo-patch/fused"
	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/reference"
	"github.com/mojo-patch/mojo-patch/reference/infer"
	"github.com/mojo-patch/mojo-patch/rewrite/edit"
	"github.com/mojo-patch/mojo-patch/rewrite/prove"
)

// A Run is one run of all passes over a model.
type Run struct {
	edit.Editor
	// Facts are facts of the model before its sites were replaced; nil if no sites were looked for.
	Facts *infer.Facts
	// Skips reports whether the body of a function stays as it is.
	Skips func(*onnx.Function) bool
	// Off, Every and Unverified are the defaults of provers (prove.Prover).
	Off, Every, Unverified bool
	// Kernel runs the kernel of a fused op on inputs, nil if left out. It is nil if kernels are not checked.
	Kernel Kernel
	// HasKernel reports whether an op has a kernel among the requested ones.
	HasKernel func(op string) bool

	provers []*prove.Prover
}

// A Kernel runs the kernel of a fused op on inputs and returns its outputs. It must not run the op's function body.
type Kernel func(op string, attrs []*onnx.Attribute, inputs []*onnx.Tensor) ([]*onnx.Tensor, error)

// NewProver returns a prover of one kind of edits. The run lists its assumptions.
func (r *Run) NewProver() *prove.Prover {
	p := &prove.Prover{Off: r.Off, Every: r.Every}
	r.provers = append(r.provers, p)
	return p
}

// NewWeightProver returns a prover that assumes claims about weights whose elements are missing, if the run allows it.
func (r *Run) NewWeightProver() *prove.Prover {
	p := r.NewProver()
	p.Unverified = r.Unverified
	return p
}

// Assumed lists the assumptions of the provers.
func (r *Run) Assumed() (list []string) {
	for _, p := range r.provers {
		list = append(list, p.Assumed...)
	}
	return list
}

// Scopes lists the graphs of the model that are searched for blocks, outer ones first.
func (r *Run) Scopes() []*Scope { return Scopes(r.Model, r.Skips) }

// Run runs the kernel of an op on inputs, nil if left out. It returns a *prove.EvalError for tensors that cannot be
// passed on.
func (k Kernel) Run(op *fused.Op, attrs []*onnx.Attribute, in []*reference.Tensor) ([]*reference.Tensor, error) {
	given := make([]*onnx.Tensor, len(in))
	for i, x := range in {
		if x == nil {
			continue
		}
		var err error
		if given[i], err = x.ToONNX(op.Inputs[i].Name); err != nil {
			return nil, &prove.EvalError{Err: err}
		}
	}
	out, err := k(op.Name, attrs, given)
	if err != nil {
		return nil, err
	}
	got := make([]*reference.Tensor, len(out))
	for i, x := range out {
		if got[i], err = reference.FromONNX(x); err != nil {
			return nil, &prove.EvalError{Err: err}
		}
	}
	return got, nil
}

// CompareKernel compares the kernel of a node, if it has one to check, with the result of the op's definition, except
// outputs that want lacks. It returns the kernel's outputs, or nil if no kernel ran.
func (r *Run) CompareKernel(run *prove.KernelRun, report *prove.CheckReport) ([]*reference.Tensor, error) {
	if r.Kernel == nil || !r.HasKernel(run.Op.Name) {
		return nil, nil
	}
	got, err := r.Kernel.Run(run.Op, run.Site.Attributes, run.In)
	if err != nil {
		return nil, err
	}
	figures, err := run.Compare(got)
	report.KernelRan(figures)
	return got, err
}

// FusedSite describes a node of a fused op in a model by the facts about its inputs.
func FusedSite(m *onnx.Model, facts *infer.Facts, n *onnx.Node) fused.Site {
	s := fused.Site{Attributes: n.Attributes, Opset: m.Opset("")}
	for _, v := range n.Inputs {
		dtype, shape := onnx.Undefined, []int64(nil)
		if v != nil {
			dtype, shape = facts.DataType(v), Dims(facts, v)
		}
		s.Types, s.Dims = append(s.Types, dtype), append(s.Dims, shape)
	}
	return s
}

// Dims returns the shape of v with -1 for dimensions that differ or are unknown, nil if the rank is unknown.
func Dims(facts *infer.Facts, v *onnx.Value) []int64 {
	rank, ok := facts.Rank(v)
	if !ok {
		return nil
	}
	dims := make([]int64, rank)
	for i := range dims {
		if dims[i], ok = facts.Dim(v, i); !ok {
			dims[i] = -1
		}
	}
	return dims
}
