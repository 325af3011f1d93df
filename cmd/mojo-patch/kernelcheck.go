package main

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"

	"github.com/mojo-patch/mojo-patch/fused"
	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/ort"
	"github.com/mojo-patch/mojo-patch/reference"
)

// The IR version and opset of the one-node models that kernels are run in; every onnxruntime that loads here reads
// them.
const (
	probeIR    = 10
	probeOpset = 20
)

// prober runs the kernels of fused ops in onnxruntime, each in a model of one node without a function body, so that
// nothing but the kernel can answer. Sessions are kept: many sites differ in their shapes alone.
type prober struct {
	options  []ort.Option // of every session
	sessions map[string]*ort.Session
}

// mostSessions bounds the sessions that are kept: one on CUDA holds tens of megabytes of the device.
const mostSessions = 64

// errBrokenKernels is the cause of an error about a kernel library that is there and that onnxruntime does not load.
var errBrokenKernels = errors.New("onnxruntime does not load the kernel library")

// newProber finds onnxruntime and the kernel library, and registers the one with the other; empty paths mean that they
// are looked for. The kernels are those for the provider.
func newProber(onnxruntime, kernels, provider string) (*prober, error) {
	lib, err := ort.Find(onnxruntime)
	if err != nil {
		return nil, err
	}
	options := []ort.Option{ort.WithThreads(1)}
	if provider == providerCUDA {
		// Nothing may run on the CPU in place of a CUDA kernel.
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
	if provider == providerCUDA { // a provider finds out with a model whether it has a device
		if err := ort.TryProvider(provider, nil, ort.WithLibrary(lib.Path)); err != nil {
			return nil, environment(fmt.Errorf("onnxruntime's CUDA provider does not start here: %w", err))
		}
	}
	options = append(options, ort.WithLibrary(lib.Path), ort.WithKernelLibrary(path))
	return &prober{options: options, sessions: map[string]*ort.Session{}}, nil
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

// run is a rewrite.KernelCheck. An input that is nil is left out.
func (p *prober) run(op string, attrs []*onnx.Attribute, inputs []*onnx.Tensor) ([]*onnx.Tensor, error) {
	o := fused.Lookup(op)
	if o == nil {
		return nil, fmt.Errorf("there is no fused op %q", op)
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
	model, node := probe(o, site)
	key = node.Text() + key
	s := p.sessions[key]
	if s == nil {
		if len(p.sessions) == mostSessions {
			if err := p.close(); err != nil {
				return nil, err
			}
		}
		encoded, err := onnx.Marshal(model)
		if err != nil {
			return nil, err
		}
		if s, err = ort.OpenBytes(encoded, "", p.options...); err != nil {
			return nil, err
		}
		p.sessions[key] = s
	}
	return s.Run(named)
}

// probe makes the model of one node.
func probe(o *fused.Op, site fused.Site) (*onnx.Model, *onnx.Node) {
	m := onnx.New(probeIR, probeOpset)
	m.ImportOpset(fused.Domain, fused.Version)
	m.Graph.Name = "probe"
	shape := func(rank int) []onnx.Dim {
		dims := make([]onnx.Dim, rank)
		for i := range dims {
			dims[i] = onnx.Dim{Value: -1}
		}
		return dims
	}
	var in, out []*onnx.Value
	for i, p := range o.Inputs[:len(site.Types)] {
		if site.Types[i] == onnx.Undefined {
			in = append(in, nil)
			continue
		}
		in = append(in, m.Graph.AddInput(p.Name,
			onnx.Type{DataType: site.Types[i], HasShape: true, Dims: shape(len(site.Dims[i]))}))
	}
	types, shapes := o.OutputTypes(site), o.OutputShapes(site, func(a, _ int64) int64 { return a })
	for i, p := range o.Outputs {
		v := m.Graph.NewValue(p.Name)
		v.SetType(onnx.Type{DataType: types[i], HasShape: true, Dims: shape(len(shapes[i]))})
		out = append(out, v)
	}
	n := m.Graph.AddNode(o.Name, in, out, site.Attributes...)
	n.Domain = fused.Domain
	for _, v := range out {
		m.Graph.AddOutput(v)
	}
	return m, n
}

// kernelTolerance is the difference that a kernel may show, as a part of the greatest magnitude: a few units in the
// last place of the type.
var kernelTolerance = map[onnx.DataType]float64{onnx.Float: 1e-5, onnx.Float16: 4.0 / 1024, onnx.BFloat16: 4.0 / 128,
	onnx.Int64: 0}

// try runs the kernel at a site on random inputs and compares it with the op's definition. Ops that round their
// activations by blocks are tried on those that are hard to round, as well.
func (p *prober) try(op *fused.Op, s fused.Site) (maxRel float64, err error) {
	kinds := activationKindsTried[:1]
	if op.Family.Stored {
		kinds = activationKindsTried
	}
	for _, kind := range kinds {
		rel, err := p.tryKind(op, s, kind.change)
		if maxRel = max(maxRel, rel); err != nil {
			return maxRel, fmt.Errorf("%s: %w", kind.name, err)
		}
	}
	return maxRel, nil
}

// activationKindsTried are the kinds of numbers that a kernel's first input has: functions of normal ones.
var activationKindsTried = []struct {
	name   string
	change func(i int, x float64) float64
}{
	{"normal inputs", func(_ int, x float64) float64 { return x }},
	{"zeros", func(int, float64) float64 { return 0 }},
	{"one outlier in a block", func(i int, x float64) float64 {
		if i%32 == i/32%32 {
			return 1000 * x
		}
		return x
	}},
	{"small inputs and zeros", func(i int, x float64) float64 { return x * float64(i/32%2) / 4096 }},
}

func (p *prober) tryKind(op *fused.Op, s fused.Site, change func(i int, x float64) float64) (maxRel float64,
	err error) {
	r := rand.New(rand.NewPCG(1, 2))
	inputs := make([]*reference.Tensor, len(op.Inputs))
	tensors := make([]*onnx.Tensor, len(op.Inputs))
	for i := range inputs {
		if s.Types[i] == onnx.Undefined { // left out
			continue
		}
		made := storedTensor(r, op, s, i)
		if made == nil {
			made = randomTensor(r, s.Types[i], s.Dims[i])
		}
		for j := range made.F {
			if i == 0 {
				made.F[j] = change(j, made.F[j])
			}
		}
		if tensors[i], err = made.ToONNX(op.Inputs[i].Name); err != nil {
			return 0, err
		}
		if inputs[i], err = reference.FromONNX(tensors[i]); err != nil {
			return 0, err
		}
	}
	want, err := define(op, s, inputs)
	if err != nil {
		return 0, fmt.Errorf("the op's definition cannot be evaluated: %w", err)
	}
	got, err := p.run(op.Name, s.Attributes, tensors)
	if err != nil {
		return 0, err
	}
	for i, t := range got {
		w, err := want[i].ToONNX(t.Name)
		if err != nil {
			return 0, err
		}
		distance, err := apart([]*onnx.Tensor{t}, []*onnx.Tensor{w})
		if err != nil {
			return 0, fmt.Errorf("output %s: %w", op.Outputs[i].Name, err)
		}
		rel := float64(distance)
		if maxRel = max(maxRel, rel); rel > max(kernelTolerance[t.DataType], op.Open(s)) {
			return maxRel, fmt.Errorf("output %s differs from the op's definition by %.2g of the greatest magnitude",
				op.Outputs[i].Name, rel)
		}
	}
	return maxRel, nil
}

// randomTensor returns normally distributed numbers; integers are experts of the first three.
func randomTensor(r *rand.Rand, typ onnx.DataType, dims []int64) *reference.Tensor {
	t := &reference.Tensor{DataType: typ}
	n := 1
	for _, d := range dims {
		t.Shape = append(t.Shape, int(d))
		n *= int(d)
	}
	for range n {
		if typ == onnx.Int64 {
			t.I = append(t.I, r.Int64N(3))
		} else {
			t.F = append(t.F, float64(float32(r.NormFloat64())))
		}
	}
	return t
}

// storedTensor returns what holds quantised weights: any codes, with scales of ordinary sizes, of either sign. It is
// nil for other inputs.
func storedTensor(r *rand.Rand, op *fused.Op, s fused.Site, input int) *reference.Tensor {
	name := op.Inputs[input].Name
	if !op.Family.Stored || !strings.Contains(name, "codes") && !strings.Contains(name, "scale") &&
		!strings.Contains(name, "minus") {
		return nil
	}
	t := randomTensor(r, s.Types[input], s.Dims[input])
	for i := range t.F {
		t.F[i] /= 64
	}
	if t.F != nil && t.DataType.Bits() > 8 {
		return t
	}
	t.F, t.I = nil, make([]int64, max(len(t.F), len(t.I)))
	for i := range t.I {
		switch {
		case t.DataType == onnx.Int8: // times a factor of a larger block
			t.I[i] = r.Int64N(127) - 63
		case strings.Contains(name, "scale"): // exponents
			t.I[i] = 118 + r.Int64N(8)
		default:
			if t.I[i] = r.Int64N(256); s.Attr("code").String == "e4m3" && t.I[i]&127 == 127 {
				t.I[i]-- // which would be no number
			}
		}
	}
	return t
}

func define(op *fused.Op, s fused.Site, inputs []*reference.Tensor) ([]*reference.Tensor, error) {
	f, err := op.Function(s)
	if err != nil {
		return nil, err
	}
	_, n := probe(op, s)
	n.Overload = f.Overload
	return reference.NewForOpset(s.Opset, []*onnx.Function{f}, reference.Options{}).Op(n, inputs)
}
