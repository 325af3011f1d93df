// Package sampling appends the choice of the next token to a language model.
package sampling

import (
	"errors"
	"fmt"
	"iter"
	"math"
	"math/rand/v2"

	"github.com/mojo-patch/mojo-patch/fused"
	"github.com/mojo-patch/mojo-patch/fused/sample"
	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/onnx/roles"
	"github.com/mojo-patch/mojo-patch/reference"
	"github.com/mojo-patch/mojo-patch/rewrite/edit"
	"github.com/mojo-patch/mojo-patch/rewrite/pass"
	"github.com/mojo-patch/mojo-patch/rewrite/prove"
)

// rule is the pattern name in the metadata of the added nodes (MetaRule).
const rule = fused.SampleName

// The names of the added inputs and of the output, unless the model has such names.
const (
	controlsName = "sample_controls"
	randomName   = "sample_random"
	tokensName   = "sample_tokens"
	promptName   = "sample_prompt"
	idsName      = "sample_ids"
	rowsName     = "sample_rows" // a dimension
)

// Report names the output whose rows tokens are chosen from, and the new output with the tokens.
type Report struct {
	Logits string `json:"logits"`
	IDs    string `json:"ids"`
}

// Text returns the report in one line.
func (r *Report) Text() string {
	return fmt.Sprintf("output %q has a token for each row of %q", r.IDs, r.Logits)
}

// Apply adds a node of Sample behind the logits, its inputs, and an output of token ids. The logits stay an output: a
// caller that does not fetch them copies none. Logits (roles.Logits) are [rows, vocabulary] or [batch, tokens,
// vocabulary]. Of the latter shape, a token is chosen for the last position of each sequence.
//
// Each input has a default with one row, greedy decoding, so that the model still runs with the inputs that it had. A
// caller passes one row for all sequences or one for each.
//
// It returns an error, and leaves the model unchanged, if no output has logits, or if the new nodes are not proven to
// choose what the definition of Sample chooses from the last rows.
func Apply(run *pass.Run) (*Report, error) {
	m := run.Model
	logits, dims, err := find(m)
	if err != nil {
		return nil, err
	}
	t, _ := logits.Type()
	s := &sampler{run: run, edit: edit.Change{Undoable: true}, g: m.Graph, logits: logits, dims: dims,
		dataType: t.DataType}
	if err := s.build(); err != nil {
		return nil, errors.Join(err, s.edit.Undo())
	}
	if err := s.prove(); err != nil {
		return nil, errors.Join(fmt.Errorf("tokens cannot be chosen from %q: %w", logits.Name, err), s.edit.Undo())
	}
	return &Report{Logits: logits.Name, IDs: s.ids.Name}, s.edit.Finish()
}

// find returns the logits and their dimensions, -1 for unknown ones.
func find(m *onnx.Model) (*onnx.Value, []int64, error) {
	var found []*onnx.Value
	for _, v := range roles.Logits(m) {
		t, _ := v.Type()
		if n := len(t.Dims); (n == 2 || n == 3) && t.Dims[n-1].Value > 1 && v.Producer != nil {
			found = append(found, v)
		}
	}
	switch {
	case len(found) == 0:
		return nil, nil, errors.New("no output has logits: floats [batch, tokens, vocabulary] or [rows, vocabulary] " +
			"with the vocabulary of the table of token ids, or named logits")
	case len(found) > 1 && roles.NameHas(found[0].Name, "logit") == roles.NameHas(found[1].Name, "logit"):
		return nil, nil, fmt.Errorf("outputs %q and %q could both be the logits", found[0].Name, found[1].Name)
	}
	var dims []int64
	t, _ := found[0].Type()
	for _, d := range t.Dims {
		dims = append(dims, d.Value)
	}
	return found[0], dims, nil
}

type sampler struct {
	run      *pass.Run
	edit     edit.Change
	g        *onnx.Graph
	logits   *onnx.Value
	dims     []int64
	dataType onnx.DataType
	inputs   []*onnx.Value // controls, random, tokens, prompt
	node     *onnx.Node
	function *onnx.Function
	ids      *onnx.Value
}

func (s *sampler) vocabulary() int64 { return s.dims[len(s.dims)-1] }

// build adds the inputs, the nodes and the output.
func (s *sampler) build() error {
	m := s.run.Model
	op := fused.Lookup(fused.SampleName)
	site := fused.Site{Opset: m.Opset(""), Types: []onnx.DataType{s.dataType, onnx.Float, onnx.Int64, onnx.Int64,
		onnx.Int64}, Dims: [][]int64{{-1, s.vocabulary()}, {-1, sample.Controls}, {-1}, {-1, -1}, {-1}}}
	f, err := op.Function(site)
	if err != nil {
		return err
	}
	s.function = f
	s.edit.RaiseIR(m, edit.MinIRVersion) // before inputs have defaults
	s.edit.ImportOpset(m, nil, fused.Domain, fused.Version)
	s.edit.AddFunction(m, f)

	x := s.logits
	if len(s.dims) == 3 {
		if s.dims[1] != 1 {
			x = s.compute("Slice", "last", x, s.numbers(-1), s.numbers(math.MaxInt64), s.numbers(1))
		}
		x = s.compute("Reshape", "logits", x, s.numbers(-1, s.vocabulary()))
	}
	rows := s.compute("Slice", "rows", s.compute("Shape", "shape", x), s.numbers(0), s.numbers(1))
	wide := s.compute("Concat", "rows_of", rows, s.numbers(1))
	s.edit.SetAttr(wide.Producer, onnx.IntAttr("axis", 0))
	row := onnx.Dim{Value: -1, Param: rowsName}
	nothing, err := onnx.NewTensor("", onnx.Int64, []int64{1, 0}, nil)
	if err != nil {
		return err
	}
	inputs := []*onnx.Value{x,
		s.input(controlsName, onnx.NewFloat32s("", []int64{1, sample.Controls}, make([]float32, sample.Controls)), wide,
			row, onnx.Dim{Value: sample.Controls}),
		s.input(randomName, onnx.NewInt64s("", []int64{0}), rows, row),
		s.input(tokensName, nothing, wide, row, onnx.Dim{Value: -1, Param: "sample_length"}),
		s.input(promptName, onnx.NewInt64s("", []int64{0}), rows, row)}
	s.ids = s.g.NewValue(idsName)
	s.node = s.edit.AddNode(s.g, fused.SampleName, inputs, []*onnx.Value{s.ids})
	s.edit.SetDomain(s.node, fused.Domain, f.Overload)
	s.node.Name = s.ids.Name
	s.node.Metadata = s.run.Origin(rule)
	first := onnx.Dim{Value: -1, Param: rowsName}
	if t, _ := s.logits.Type(); t.Dims[0].Value >= 0 || t.Dims[0].Param != "" {
		first = t.Dims[0]
	}
	s.edit.SetType(s.ids, onnx.Type{DataType: onnx.Int64, HasShape: true, Dims: []onnx.Dim{first}})
	s.edit.AddOutput(s.g, s.ids)
	return nil
}

// input adds an input with a default of one row, and returns its rows: as many as shape says.
func (s *sampler) input(name string, one *onnx.Tensor, shape *onnx.Value, dims ...onnx.Dim) *onnx.Value {
	one.Name = name
	v := s.edit.AddDefault(s.g, onnx.Type{DataType: one.DataType, HasShape: true, Dims: dims}, one)
	s.inputs = append(s.inputs, v)
	return s.compute("Expand", name, v, shape)
}

func (s *sampler) numbers(list ...int64) *onnx.Value {
	return s.edit.AddInitializer(s.g, onnx.NewInt64s("sample_numbers", list))
}

func (s *sampler) compute(op, name string, inputs ...*onnx.Value) *onnx.Value {
	v := s.g.NewValue("sample_" + name + "_rows")
	return s.run.AddNode(&s.edit, s.g, rule, op, v, inputs...).Outputs[0]
}

// prove proves that the nodes choose what the definition chooses from the last row of each sequence.
func (s *sampler) prove() error {
	r := s.run
	opset, v := r.Model.Opset(""), int(s.vocabulary())
	var report prove.CheckReport
	op := fused.Lookup(fused.SampleName)
	// rowsOf returns the inputs of Sample, from those of the nodes.
	rowsOf := func(in []*reference.Tensor) []*reference.Tensor {
		x, rows := in[0], in[0].Shape[0]
		last := make([]float64, 0, rows*v)
		for i := range rows {
			end := (i + 1) * len(x.F) / rows
			last = append(last, x.F[end-v:end]...)
		}
		out := []*reference.Tensor{reference.NewFloats(x.DataType, []int{rows, v}, last)}
		for _, t := range in[1:] {
			t = &reference.Tensor{DataType: t.DataType, Shape: append([]int{rows}, t.Shape[1:]...), F: t.F, I: t.I}
			if n := t.Len(); t.DataType == onnx.Float {
				t.F = repeated(t.F, n)
			} else {
				t.I = repeated(t.I, n)
			}
			out = append(out, t)
		}
		return out
	}
	claim := &prove.Claim{What: fmt.Sprintf("the tokens chosen from %q", s.logits.Name), Trials: s.trials(),
		Before: func(o reference.Options, in []*reference.Tensor) ([]*reference.Tensor, error) {
			return prove.Op(opset, s.node, s.function)(o, rowsOf(in))
		},
		After:   prove.Region(r.Model, append([]*onnx.Value{s.logits}, s.inputs...), []*onnx.Value{s.ids}),
		Outputs: []string{s.ids.Name}, Typed: prove.BitForBit,
		Also: func(t prove.Trial, want, _ []*reference.Tensor, figures *prove.CheckReport) error {
			_, err := r.CompareKernel(&prove.KernelRun{Op: op, Site: fused.Site{Opset: opset}, In: rowsOf(t.Inputs),
				Want: want}, figures)
			return err
		}}
	if settled, err := r.NewProver().Settled(claim.What, ""); settled {
		return err
	}
	return claim.Try(&report)
}

// repeated returns n elements: the list, over and over.
func repeated[T any](list []T, n int) []T {
	out := make([]T, n)
	for i := range out {
		out[i] = list[i%len(list)]
	}
	return out
}

// trials are the defaults, options for each sequence, and the same options for all.
func (s *sampler) trials() iter.Seq2[prove.Trial, error] {
	return func(yield func(prove.Trial, error) bool) {
		rng := rand.New(rand.NewPCG(7, 0))
		for number, name := range []string{"greedy", "own options", "the same options"} {
			shape := make([]int, len(s.dims))
			for i, d := range s.dims {
				if shape[i] = int(d); d < 0 {
					shape[i] = 3 - i
				}
			}
			x := reference.NewFloats(s.dataType, shape, make([]float64, (&reference.Tensor{Shape: shape}).Len()))
			for i := range x.F {
				x.F[i] = math.Round(rng.NormFloat64()*64) / 16 // the same in 16 bits
			}
			rows, length := 1, 0
			if number == 1 {
				rows = shape[0]
			}
			if number > 0 {
				length = 5
			}
			controls, random := make([]float64, rows*sample.Controls), make([]int64, rows)
			tokens, prompt := make([]int64, rows*length), make([]int64, rows)
			for i := range rows {
				if number > 0 {
					copy(controls[i*sample.Controls:], []float64{0.75, 20, 0.875, 0.015625, 1.25, 0.5, 0.25})
					random[i], prompt[i] = rng.Int64N(sample.Randoms), rng.Int64N(int64(length))
				}
			}
			for i := range tokens {
				tokens[i] = rng.Int64N(s.vocabulary())
			}
			in := []*reference.Tensor{x, reference.NewFloats(onnx.Float, []int{rows, sample.Controls}, controls),
				reference.NewInts(onnx.Int64, []int{rows}, random),
				reference.NewInts(onnx.Int64, []int{rows, length}, tokens),
				reference.NewInts(onnx.Int64, []int{rows}, prompt)}
			if !yield(prove.Trial{Name: name, Kind: name, Inputs: in}, nil) {
				return
			}
		}
	}
}
