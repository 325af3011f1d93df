package prober

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"

	"github.com/mojo-patch/mojo-patch/fused"
	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/ort"
	"github.com/mojo-patch/mojo-patch/reference"
	"github.com/mojo-patch/mojo-patch/rewrite/prove"
	"github.com/mojo-patch/mojo-patch/rewrite/sites"
)

// TryForms runs the kernel at all sites on hard inputs (few kinds for wide sites) and compares it with the op's
// definition. The sites share a session, since opening one takes long. If they do not run together, each is tried
// separately to find the failing one.
func (p *Prober) TryForms(op *fused.Op, sites []fused.Site, wide bool) (maxRel float64, err error) {
	encoded, err := onnx.Marshal(probe(op, sites...))
	if err != nil {
		return 0, err
	}
	session, err := ort.OpenBytes(encoded, "", p.Options...)
	if err == nil {
		defer session.Close()
		maxRel, err = tryKinds(session, op, sites, wide)
	}
	if err == nil || len(sites) == 1 {
		return maxRel, err
	}
	for _, s := range sites {
		rel, err := p.TryForms(op, []fused.Site{s}, wide)
		if maxRel = max(maxRel, rel); err != nil {
			return maxRel, fmt.Errorf("%s: %w", op.Overload(s), err)
		}
	}
	return maxRel, fmt.Errorf("each form runs by itself, but not together with the others: %w", err)
}

// inputKind is one kind of inputs for an op's kernel.
type inputKind struct {
	name string
	of   func(s fused.Site, input int) (*reference.Tensor, error)
	// numbers returns an id of an input's numbers. Kinds that return the same id share the numbers.
	numbers func(s fused.Site, input int) string
}

// inputKinds returns the kinds that apply checks sites with. Ops with stored weights, which no pattern finds, have
// other kinds.
func inputKinds(op *fused.Op, s fused.Site) []inputKind {
	var list []inputKind
	if !op.Family.Stored {
		for _, h := range sites.HardInputsOf(op, s) {
			list = append(list, inputKind{h.Name, func(s fused.Site, input int) (*reference.Tensor, error) {
				return h.Tensor(op, s, input)
			}, func(s fused.Site, input int) string { return h.Numbers(op, s, input) }})
		}
		return list
	}
	tried := activationsTried
	if s.Types[0].IsInteger() { // ids of rows, which are equal in all kinds
		tried = tried[:1]
	}
	for _, a := range tried {
		list = append(list, inputKind{a.name, func(s fused.Site, input int) (*reference.Tensor, error) {
			return storedInput(op, s, input, a.change), nil
		}, func(_ fused.Site, input int) string {
			if input > 0 { // weights
				return ""
			}
			return a.name
		}})
	}
	return list
}

// fewKinds are the kinds for wide sites, besides an op's first kind.
var fewKinds = []string{"one-hot", "one outlier in a block of"}

// tryKinds runs all sites, whose inputs have the same types, on all kinds of inputs, or on few.
func tryKinds(session *ort.Session, op *fused.Op, sites []fused.Site, few bool) (maxRel float64, err error) {
	definitions := make([]*definition, len(sites))
	for i, s := range sites {
		if definitions[i], err = define(op, s); err != nil {
			return 0, err
		}
	}
	for i, kind := range inputKinds(op, sites[0]) {
		if few && i > 0 && !slices.Contains(fewKinds, kind.name) {
			continue
		}
		rel, err := tryKind(session, sites, definitions, kind)
		if maxRel = max(maxRel, rel); err != nil {
			return maxRel, fmt.Errorf("%s inputs: %w", kind.name, err)
		}
	}
	return maxRel, nil
}

func tryKind(session *ort.Session, sites []fused.Site, definitions []*definition, kind inputKind) (maxRel float64,
	err error) {
	var given []*onnx.Tensor
	in, want := make([][]*reference.Tensor, len(sites)), make([][]*reference.Tensor, len(sites))
	for i, d := range definitions {
		inputs, tensors, err := d.inputs(sites[i], i, kind)
		if err != nil {
			return 0, err
		}
		if want[i], err = d.outputs(inputs); err != nil {
			return 0, fmt.Errorf("the op's definition cannot be evaluated: %w", err)
		}
		in[i], given = inputs, append(given, tensors...)
	}
	made, err := session.Run(given)
	if err != nil {
		return 0, err
	}
	named := map[string]*onnx.Tensor{}
	for _, t := range made {
		named[t.Name] = t
	}
	for i, s := range sites {
		if want[i] == nil {
			continue
		}
		op := definitions[i].op
		got := make([]*reference.Tensor, len(op.Outputs))
		for k, p := range op.Outputs {
			if got[k], err = reference.FromONNX(named[probeName(p.Name, i)]); err != nil {
				return maxRel, err
			}
		}
		rel, err := prove.CompareKernel(op, s, in[i], want[i], got)
		if maxRel = max(maxRel, rel); err != nil {
			return maxRel, fmt.Errorf("it differs from the op's definition: %w", err)
		}
	}
	return maxRel, nil
}

// inputs returns the inputs of the i-th site for the definition and, without omitted ones, for the kernel. It keeps
// inputs for the next kind: making them would dominate the time of kernels with wide weights.
func (d *definition) inputs(s fused.Site, i int, kind inputKind) ([]*reference.Tensor, []*onnx.Tensor, error) {
	inputs := make([]*reference.Tensor, len(d.op.Inputs))
	var tensors []*onnx.Tensor
	for k := range inputs {
		if s.Types[k] == onnx.Undefined { // omitted
			continue
		}
		if numbers := kind.numbers(s, k); d.made[k].onnx == nil || d.made[k].numbers != numbers {
			made, err := kind.of(s, k)
			if err != nil {
				return nil, nil, err
			}
			t, err := made.ToONNX(probeName(d.op.Inputs[k].Name, i))
			if err != nil {
				return nil, nil, err
			}
			if made, err = reference.FromONNX(t); err != nil {
				return nil, nil, err
			}
			d.made[k] = madeInput{numbers, made, t}
		}
		inputs[k] = d.made[k].reference
		tensors = append(tensors, d.made[k].onnx)
	}
	return inputs, tensors, nil
}

// randomTensor returns normally distributed numbers. Integers are 0, 1 or 2.
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

// activationsTried are functions of normal numbers, for the first input of an op with stored weights, which may be
// rounded by blocks.
var activationsTried = []struct {
	name   string
	change func(i int, x float64) float64
}{
	{"normal", func(_ int, x float64) float64 { return x }},
	{"zero", func(int, float64) float64 { return 0 }},
	{"one outlier in a block of", func(i int, x float64) float64 {
		if i%32 == i/32%32 {
			return 1000 * x
		}
		return x
	}},
	{"small and zero", func(i int, x float64) float64 { return x * float64(i/32%2) / 4096 }},
}

// storedInput makes an input of an op with stored weights.
func storedInput(op *fused.Op, s fused.Site, input int, change func(i int, x float64) float64) *reference.Tensor {
	r := rand.New(rand.NewPCG(uint64(input)+1, 2))
	made := storedTensor(r, op, s, input)
	if made == nil {
		made = randomTensor(r, s.Types[input], s.Dims[input])
	}
	for j := range made.F {
		if input == 0 {
			made.F[j] = change(j, made.F[j])
		}
	}
	return made
}

// storedTensor returns codes or scales of quantized weights: any codes, with scales of ordinary sizes and either sign.
// It returns nil for other inputs.
func storedTensor(r *rand.Rand, op *fused.Op, s fused.Site, input int) *reference.Tensor {
	name := op.Inputs[input].Name
	if !strings.Contains(name, "codes") && !strings.Contains(name, "scale") && !strings.Contains(name, "minus") {
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
		case t.DataType == onnx.Int8: // multiplies a larger block's factor
			t.I[i] = r.Int64N(127) - 63
		case strings.Contains(name, "scale"): // exponents
			t.I[i] = 118 + r.Int64N(8)
		default:
			if t.I[i] = r.Int64N(256); s.Attr(fused.AttrCode).String == "e4m3" && t.I[i]&127 == 127 {
				t.I[i]-- // avoids NaN
			}
		}
	}
	return t
}

// definition evaluates an op's definition at one site.
type definition struct {
	op        *fused.Op
	graph     *onnx.Graph
	evaluator *reference.Evaluator
	made      []madeInput
}

// madeInput is an input made for the previous kind.
type madeInput struct {
	numbers   string
	reference *reference.Tensor
	onnx      *onnx.Tensor
}

func define(op *fused.Op, s fused.Site) (*definition, error) {
	f, err := op.Function(s)
	if err != nil {
		return nil, err
	}
	d := &definition{op, probe(op, s).Graph,
		reference.NewForOpset(s.Opset, []*onnx.Function{f}, reference.Options{}), make([]madeInput, len(op.Inputs))}
	d.graph.Nodes[0].Overload = f.Overload
	return d, nil
}

// outputs returns the definition's outputs, or nil if intermediate values overflow, which makes the outputs
// meaningless.
func (d *definition) outputs(inputs []*reference.Tensor) ([]*reference.Tensor, error) {
	env := map[*onnx.Value]*reference.Tensor{}
	for k, v := range d.graph.Nodes[0].Inputs {
		if v != nil {
			env[v] = inputs[k]
		}
	}
	overflow, err := d.evaluator.EvalFor(d.graph.Nodes, env, d.graph.Outputs)
	if err != nil || overflow {
		return nil, err
	}
	var list []*reference.Tensor
	for _, v := range d.graph.Outputs {
		list = append(list, env[v])
	}
	return list, nil
}
