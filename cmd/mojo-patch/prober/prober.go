// Package prober runs single kernels and compares them with the definitions of their ops.
package prober

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"

	"github.com/mojo-patch/mojo-patch/cmd/mojo-patch/cli"
	"github.com/mojo-patch/mojo-patch/cmd/mojo-patch/session"
	"github.com/mojo-patch/mojo-patch/fused"
	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/ort"
	"github.com/mojo-patch/mojo-patch/ort/diagnose"
	"github.com/mojo-patch/mojo-patch/ort/providers"
)

// The IR version and opset of the one-node models that kernels run in; every supported onnxruntime reads them.
const (
	probeIR    = 10
	ProbeOpset = 20
)

// Prober runs the kernels of fused ops in onnxruntime, each in a model of one node without a function body, so that
// only the kernel can compute the result. Sessions are kept, since many sites differ only in shapes.
type Prober struct {
	library  string                  // the file of the kernel library
	Options  []ort.Option            // of every session
	Sessions map[string]*ort.Session // by their models
}

// mostSessions limits the kept sessions: one on CUDA takes tens of megabytes of device memory.
const mostSessions = 64

// ErrBrokenKernels is the error for a kernel library that exists but does not load in onnxruntime.
var ErrBrokenKernels = errors.New("onnxruntime does not load the kernel library")

// New finds onnxruntime and the provider's kernel library, and registers the library. Empty paths are searched
// for.
func New(onnxruntime, kernels, provider string) (*Prober, error) {
	lib, err := ort.Find(onnxruntime)
	if err != nil {
		return nil, err
	}
	options := []ort.Option{ort.WithThreads(1)}
	if provider == session.ProviderCUDA {
		// No node may run on the CPU instead of a CUDA kernel.
		options = []ort.Option{session.CUDAOption(nil), ort.WithConfig("session.disable_cpu_ep_fallback", "1")}
	}
	path, err := session.KernelDevices[provider].FindLibrary(kernels)
	if err != nil {
		return nil, err
	}
	facts := diagnose.Libraries(lib.Path, path)
	if facts.LibraryError == nil && facts.KernelsError != nil {
		return nil, cli.Environment(fmt.Errorf("%w: %w", ErrBrokenKernels, facts.KernelsError))
	}
	if provider == session.ProviderCUDA && !slices.Contains(facts.Providers, providers.Full(session.ProviderCUDA)) {
		return nil, cli.Environment(fmt.Errorf("onnxruntime %s of %s has no CUDA provider", lib.Version, lib.Path))
	}
	if provider == session.ProviderCUDA { // a provider detects its device only with a model
		if err := diagnose.TryProvider(provider, nil, ort.WithLibrary(lib.Path)); err != nil {
			return nil, cli.Environment(fmt.Errorf("onnxruntime's CUDA provider does not start here: %w", err))
		}
	}
	options = append(options, ort.WithLibrary(lib.Path), ort.WithKernelLibrary(path))
	return &Prober{library: path, Options: options, Sessions: map[string]*ort.Session{}}, nil
}

// Lacks returns why the library has no kernel of an op for any device, or "" if it has one.
func (p *Prober) Lacks(o *fused.Op) string {
	if fused.Holds(p.library, o) {
		return ""
	}
	return fmt.Sprintf("%s has no kernel for %s, so sessions run its definition; %s has one",
		filepath.Base(p.library), o.Name, fused.CPU.LibraryName())
}

// Close closes the sessions.
func (p *Prober) Close() error {
	var errs []error
	for _, s := range p.Sessions {
		errs = append(errs, s.Close())
	}
	clear(p.Sessions)
	return errors.Join(errs...)
}

// Run is a rewrite.KernelCheck. An omitted input is nil.
func (p *Prober) Run(op string, attrs []*onnx.Attribute, inputs []*onnx.Tensor) ([]*onnx.Tensor, error) {
	o := fused.Lookup(op)
	if o == nil {
		return nil, fmt.Errorf("unknown fused op %q", op)
	}
	if reason := p.Lacks(o); reason != "" {
		return nil, errors.New(reason)
	}
	site := fused.Site{Attributes: attrs, Opset: ProbeOpset}
	key := ""
	var named []*onnx.Tensor
	for i, t := range inputs {
		if t == nil {
			site.Types, site.Dims = append(site.Types, onnx.Undefined), append(site.Dims, nil)
			continue
		}
		site.Types, site.Dims = append(site.Types, t.DataType), append(site.Dims, t.Dims)
		key += fmt.Sprintf(" %d=%s:%d", i, t.DataType, len(t.Dims))
		c := *t
		c.Name = o.Inputs[i].Name
		named = append(named, &c)
	}
	model := probe(o, site)
	key = model.Graph.Nodes[0].Text() + key
	if p.Sessions[key] == nil {
		encoded, err := onnx.Marshal(model)
		if err != nil {
			return nil, err
		}
		return p.runModel(key, encoded, named)
	}
	return p.Sessions[key].Run(named)
}

// RunSite is a rewrite.Runtime.
func (p *Prober) RunSite(m *onnx.Model, inputs []*onnx.Tensor) ([]*onnx.Tensor, error) {
	encoded, err := onnx.Marshal(m)
	if err != nil {
		return nil, err
	}
	return p.runModel(string(encoded), encoded, inputs)
}

// runModel runs a model. Its session is kept under key.
func (p *Prober) runModel(key string, model []byte, inputs []*onnx.Tensor) ([]*onnx.Tensor, error) {
	s := p.Sessions[key]
	if s == nil {
		if len(p.Sessions) == mostSessions {
			if err := p.Close(); err != nil {
				return nil, err
			}
		}
		var err error
		if s, err = ort.OpenBytes(model, "", p.Options...); err != nil {
			return nil, err
		}
		p.Sessions[key] = s
	}
	return s.Run(inputs)
}

// probe makes a model of one node for each site. The values of the first node have the op's own names.
func probe(o *fused.Op, sites ...fused.Site) *onnx.Model {
	m := onnx.New(probeIR, ProbeOpset)
	m.ImportOpset(fused.Domain, fused.Version)
	m.Graph.Name = "probe"
	for i, site := range sites {
		addProbe(m, o, site, i)
	}
	return m
}

// probeName returns the name of an op's value at the i-th site.
func probeName(value string, i int) string {
	if i == 0 {
		return value
	}
	return fmt.Sprintf("%s_%d", value, i)
}

func addProbe(m *onnx.Model, o *fused.Op, site fused.Site, i int) {
	typed := func(typ onnx.DataType, rank int) onnx.Type {
		t := onnx.Type{DataType: typ, HasShape: true, Dims: make([]onnx.Dim, rank)}
		for k := range t.Dims {
			t.Dims[k] = onnx.Dim{Value: -1}
		}
		return t
	}
	var in, out []*onnx.Value
	for k, p := range o.Inputs[:len(site.Types)] {
		if site.Types[k] == onnx.Undefined {
			in = append(in, nil)
			continue
		}
		in = append(in, m.Graph.AddInput(probeName(p.Name, i), typed(site.Types[k], len(site.Dims[k]))))
	}
	types, shapes := o.OutputTypes(site), o.OutputShapes(site, func(a, _ int64) int64 { return a })
	for k, p := range o.Outputs {
		v := m.Graph.NewValue(probeName(p.Name, i))
		v.SetType(typed(types[k], len(shapes[k])))
		out = append(out, v)
	}
	n := m.Graph.AddNode(o.Name, in, out, site.Attributes...)
	n.Domain = fused.Domain
	for _, v := range out {
		m.Graph.AddOutput(v)
	}
}
