package main

import (
	"fmt"
	"math/rand/v2"
	"strings"

	"github.com/mojo-patch/mojo-patch/fused"
	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/ort"
	"github.com/mojo-patch/mojo-patch/reference"
)

// kernelTolerance is the difference that a kernel may show, as a part of the greatest magnitude: a few units in the
// last place of the type.
var kernelTolerance = map[onnx.DataType]float64{onnx.Float: 1e-5, onnx.Float16: 4.0 / 1024, onnx.BFloat16: 4.0 / 128,
	onnx.Int64: 0}

// tryForms runs the kernel at all sites on random inputs and compares it with the op's definition. Ops that round their
// activations by blocks are tried on those that are hard to round, as well. The sites share one session: to open one
// takes longer than the rest. Only where they do not run together is each tried alone, to find the one at fault.
func (p *prober) tryForms(op *fused.Op, sites []fused.Site) (maxRel float64, err error) {
	encoded, err := onnx.Marshal(probe(op, sites...))
	if err != nil {
		return 0, err
	}
	session, err := ort.OpenBytes(encoded, "", p.options...)
	if err == nil {
		defer session.Close()
		maxRel, err = tryKinds(session, op, sites)
	}
	if err == nil || len(sites) == 1 {
		return maxRel, err
	}
	for _, s := range sites {
		rel, err := p.tryForms(op, []fused.Site{s})
		if maxRel = max(maxRel, rel); err != nil {
			return maxRel, fmt.Errorf("%s: %w", op.Overload(s), err)
		}
	}
	return maxRel, fmt.Errorf("each form runs alone, but not beside the others: %w", err)
}

func tryKinds(session *ort.Session, op *fused.Op, sites []fused.Site) (maxRel float64, err error) {
	kinds := activationKindsTried[:1]
	if op.Family.Stored {
		kinds = activationKindsTried
	}
	for _, kind := range kinds {
		rel, err := tryKind(session, op, sites, kind.change)
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

func tryKind(session *ort.Session, op *fused.Op, sites []fused.Site, change func(i int, x float64) float64) (
	maxRel float64, err error) {
	var given []*onnx.Tensor
	want := make([][]*reference.Tensor, len(sites))
	for i, s := range sites {
		inputs, tensors, err := probeInputs(op, s, i, change)
		if err != nil {
			return 0, err
		}
		if want[i], err = define(op, s, inputs); err != nil {
			return 0, fmt.Errorf("the op's definition cannot be evaluated: %w", err)
		}
		given = append(given, tensors...)
	}
	got, err := session.Run(given)
	if err != nil {
		return 0, err
	}
	for i, s := range sites {
		for k, output := range op.Outputs {
			t := got[i*len(op.Outputs)+k]
			w, err := want[i][k].ToONNX(t.Name)
			if err != nil {
				return 0, err
			}
			distance, err := apart([]*onnx.Tensor{t}, []*onnx.Tensor{w})
			if err != nil {
				return 0, fmt.Errorf("output %s: %w", output.Name, err)
			}
			rel := float64(distance)
			if maxRel = max(maxRel, rel); rel > max(kernelTolerance[t.DataType], op.Open(s)) {
				return maxRel, fmt.Errorf("output %s differs from the op's definition by %.2g of the greatest "+
					"magnitude", output.Name, rel)
			}
		}
	}
	return maxRel, nil
}

// probeInputs returns the inputs of the i-th site for the definition and, without those left out, for the kernel.
func probeInputs(op *fused.Op, s fused.Site, i int, change func(i int, x float64) float64) ([]*reference.Tensor,
	[]*onnx.Tensor, error) {
	r := rand.New(rand.NewPCG(1, 2))
	inputs := make([]*reference.Tensor, len(op.Inputs))
	var tensors []*onnx.Tensor
	for k := range inputs {
		if s.Types[k] == onnx.Undefined { // left out
			continue
		}
		made := storedTensor(r, op, s, k)
		if made == nil {
			made = randomTensor(r, s.Types[k], s.Dims[k])
		}
		for j := range made.F {
			if k == 0 {
				made.F[j] = change(j, made.F[j])
			}
		}
		t, err := made.ToONNX(probeName(op.Inputs[k].Name, i))
		if err != nil {
			return nil, nil, err
		}
		if inputs[k], err = reference.FromONNX(t); err != nil {
			return nil, nil, err
		}
		tensors = append(tensors, t)
	}
	return inputs, tensors, nil
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
	n := probe(op, s).Graph.Nodes[0]
	n.Overload = f.Overload
	return reference.NewForOpset(s.Opset, []*onnx.Function{f}, reference.Options{}).Op(n, inputs)
}
