package main

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"

	"github.com/mojo-patch/mojo-patch/fused"
	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/ort"
)

// The IR version and opset of the one-node models that kernels run in; every supported onnxruntime reads them.
const (
	probeIR    = 10
	probeOpset = 20
)

// prober runs the kernels of fused ops in onnxruntime, each in a model of one node without a function body, so that
// only the kernel can compute the result. Sessions are kept, since many sites differ only in shapes.
type prober struct {
	library  string       // the file of the kernel library
	options  []ort.Option // of every session
	sessions map[string]*ort.Session
}

// mostSessions limits the kept sessions: one on CUDA takes tens of megabytes of device memory.
const mostSessions = 64

// errBrokenKernels is the error for a kernel library that exists but does not load in onnxruntime.
var errBrokenKernels = errors.New("onnxruntime does not load the kernel library")

// newProber finds onnxruntime and the provider's kernel library, and registers the library. Empty paths are searched
// for.
func newProber(onnxruntime, kernels, provider string) (*prober, error) {
	lib, err := ort.Find(onnxruntime)
	if err != nil {
		return nil, err
	}
	options := []ort.Option{ort.WithThreads(1)}
	if provider == providerCUDA {
		// No node may run on the CPU instead of a CUDA kernel.
		options = []ort.Option{cudaOption(nil), ort.WithConfig("session.disable_cpu_ep_fallback", "1")}
	}
	path, err := kernelDevices[provider].FindLibrary(kernels)
	if err != nil {
		return nil, err
	}
	facts := ort.Doctor(lib.Path, path)
	if facts.LibraryError == nil && facts.KernelsError != nil {
		return nil, environment(fmt.Errorf("%w: %w", errBrokenKernels, facts.KernelsError))
	}
	if provider == providerCUDA && !slices.Contains(facts.Providers, ort.FullProvider(providerCUDA)) {
		return nil, environment(fmt.Errorf("onnxruntime %s of %s has no CUDA provider", lib.Version, lib.Path))
	}
	if provider == providerCUDA { // a provider detects its device only with a model
		if err := ort.TryProvider(provider, nil, ort.WithLibrary(lib.Path)); err != nil {
			return nil, environment(fmt.Errorf("onnxruntime's CUDA provider does not start here: %w", err))
		}
	}
	options = append(options, ort.WithLibrary(lib.Path), ort.WithKernelLibrary(path))
	return &prober{library: path, options: options, sessions: map[string]*ort.Session{}}, nil
}

// lacks returns why the library has no kernel of an op for any device, or "" if it has one.
func (p *prober) lacks(o *fused.Op) string {
	if fused.Holds(p.library, o) {
		return ""
	}
	return fmt.Sprintf("%s has no kernel for %s, so sessions run its definition; %s has one",
		filepath.Base(p.library), o.Name, fused.CPU.LibraryName())
}

// close closes the sessions.
func (p *prober) close() error {
	var errs []error
	for _, s := range p.sessions {
		errs = append(errs, s.Close())
	}
	clear(p.sessions)
	return errors.Join(errs...)
}

// run is a rewrite.KernelCheck. An omitted input is nil.
func (p *prober) run(op string, attrs []*onnx.Attribute, inputs []*onnx.Tensor) ([]*onnx.Tensor, error) {
	o := fused.Lookup(op)
	if o == nil {
		return nil, fmt.Errorf("unknown fused op %q", op)
	}
	if reason := p.lacks(o); reason != "" {
		return nil, errors.New(reason)
	}
	site := fused.Site{Attributes: attrs, Opset: probeOpset}
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
	if p.sessions[key] == nil {
		encoded, err := onnx.Marshal(model)
		if err != nil {
			return nil, err
		}
		return p.runModel(key, encoded, named)
	}
	return p.sessions[key].Run(named)
}

// runSite is a rewrite.Runtime.
func (p *prober) runSite(m *onnx.Model, inputs []*onnx.Tensor) ([]*onnx.Tensor, error) {
	encoded, err := onnx.Marshal(m)
	if err != nil {
		return nil, err
	}
	return p.runModel(string(encoded), encoded, inputs)
}

// runModel runs a model. Its session is kept under key.
func (p *prober) runModel(key string, model []byte, inputs []*onnx.Tensor) ([]*onnx.Tensor, error) {
	s := p.sessions[key]
	if s == nil {
		if len(p.sessions) == mostSessions {
			if err := p.close(); err != nil {
				return nil, err
			}
		}
		var err error
		if s, err = ort.OpenBytes(model, "", p.options...); err != nil {
			return nil, err
		}
		p.sessions[key] = s
	}
	return s.Run(inputs)
}

// probe makes a model of one node for each site. The values of the first node have the op's own names.
func probe(o *fused.Op, sites ...fused.Site) *onnx.Model {
	m := onnx.New(probeIR, probeOpset)
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
