package main

import (
	"encoding/binary"
	"fmt"
	"slices"

	"github.com/mojo-patch/mojo-patch/golden"
	"github.com/mojo-patch/mojo-patch/llm/generate"
	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/onnx/roles"
	"github.com/mojo-patch/mojo-patch/ort"
	"github.com/mojo-patch/mojo-patch/rewrite/edit"
	"github.com/mojo-patch/mojo-patch/rewrite/quantize"
)

// sampleRows is the number of recorded activation rows that a weight is tried with.
const sampleRows = 16

// recordedRun holds a model's results on recorded inputs before quantization.
type recordedRun struct {
	cases       []golden.Case // with the outputs of the model
	activations map[string][][]float32
	vocabulary  int64
	backend     string
}

// samples returns rows of the values that products multiply, by name.
func (r *recordedRun) samples() map[string][][]float32 {
	if r == nil {
		return nil
	}
	return r.activations
}

// record runs the model on the recorded inputs, and keeps rows of the inputs of the plan's products.
func (f *quantizeFlags) record(a *app, m *onnx.Model, p *quantize.Plan) (*recordedRun, error) {
	cases, err := recordedCases(f.golden, m)
	if err != nil {
		return nil, err
	}
	again, err := a.read(m.Path) // gets more outputs than the model has
	if err != nil {
		return nil, err
	}
	defer again.Close()
	var outputs, inputs []string
	for _, v := range again.Graph.Outputs {
		outputs = append(outputs, v.Name)
	}
	for _, v := range p.Inputs() {
		inputs = append(inputs, v.Name)
		if x := again.Graph.Value(v.Name); x != nil && !x.IsInput && !x.IsOutput() {
			new(edit.Change).AddOutput(again.Graph, x)
		}
	}
	run, what, err := f.open(a, again)
	if err != nil {
		return nil, err
	}
	defer run.Close()
	r := &recordedRun{activations: map[string][][]float32{}, vocabulary: golden.Vocabulary(m), backend: what}
	share := (sampleRows + len(cases) - 1) / len(cases)
	for i, c := range cases {
		if c, err = c.Followed(r.cases); err != nil {
			return nil, fmt.Errorf("case %d of %s: %w", i, f.golden, err)
		}
		if c.Inputs, err = asDeclared(again.Graph.Inputs, c.Inputs); err != nil {
			return nil, fmt.Errorf("case %d of %s: %w", i, f.golden, err)
		}
		got, err := run.Run(c.Inputs)
		if err != nil {
			return nil, failed(fmt.Errorf("case %d of %s: %w", i, f.golden, err))
		}
		for _, t := range slices.Concat(got, c.Inputs) {
			if slices.Contains(inputs, t.Name) {
				rows, err := rowsOf(t, share)
				if err != nil {
					return nil, err
				}
				r.activations[t.Name] = append(r.activations[t.Name], rows...)
			}
		}
		c.Outputs = slices.DeleteFunc(got, func(t *onnx.Tensor) bool { return !slices.Contains(outputs, t.Name) })
		r.cases = append(r.cases, c)
	}
	return r, nil
}

// open opens a model in onnxruntime, or in the evaluator if requested or if onnxruntime is missing.
func (f *quantizeFlags) open(a *app, m *onnx.Model) (runner, string, error) {
	b := backend{evaluator: f.evaluator, kernels: kernelsAuto, kernelsLib: f.library, onnxruntime: f.onnxruntime,
		optimize: "all"}
	if err := b.place(); err != nil {
		return nil, "", err
	}
	b.fallback = f.onnxruntime == ""
	b.openModel = func(m *onnx.Model, options ...ort.Option) (*ort.Session, error) {
		encoded, err := onnx.Marshal(m)
		if err != nil {
			return nil, err
		}
		return ort.OpenBytes(encoded, m.Path, options...)
	}
	return b.open(a, m)
}

// rowsOf returns at most most rows of the last axis, evenly spaced.
func rowsOf(t *onnx.Tensor, most int) ([][]float32, error) {
	if len(t.Dims) == 0 || t.Len() == 0 {
		return nil, nil
	}
	all, err := golden.Float64s(t)
	if err != nil {
		return nil, err
	}
	width := int(t.Dims[len(t.Dims)-1])
	count := len(all) / width
	var list [][]float32
	for i := range min(most, count) {
		row := make([]float32, width)
		for j, x := range all[i*count/min(most, count)*width:][:width] {
			row[j] = float32(x)
		}
		list = append(list, row)
	}
	return list, nil
}

// compare runs the quantized model on the same inputs. failure is set if its logits exceed a limit.
func (f *quantizeFlags) compare(a *app, path string, r *quantizeReport, before *recordedRun) (failure, err error) {
	m, err := a.read(path)
	if err != nil {
		return nil, err
	}
	defer m.Close()
	run, what, err := f.open(a, m)
	if err != nil {
		return nil, err
	}
	defer run.Close()
	got := make([]golden.Case, len(before.cases))
	for i, c := range before.cases {
		if c, err = c.Followed(got[:i]); err != nil {
			return nil, fmt.Errorf("case %d of %s: %w", i, f.golden, err)
		}
		if got[i].Outputs, err = run.Run(c.Inputs); err != nil {
			return nil, failed(fmt.Errorf("case %d of %s: %w", i, f.golden, err))
		}
	}
	k := &criteria{limitFlags: f.limitFlags, vocabulary: before.vocabulary}
	k.tolerances = golden.Tolerances{} // differences of other outputs are reported, without a limit
	all := &comparison{Model: f.out, Against: r.Model, Backend: what}
	if err := k.compare(all, got, before.cases, nil); err != nil {
		return nil, err
	}
	r.Backend = what
	for _, c := range all.Cases {
		c.Error = ""
		c.Outputs = slices.DeleteFunc(c.Outputs, func(s golden.Stats) bool { return s.Logits == nil })
		for _, s := range c.Outputs {
			if !s.Logits.Passed && failure == nil {
				failure = failed(fmt.Errorf("case %d of %s: %w: nothing is written", c.Case, f.golden,
					f.limits.Check(s.Logits)))
			}
		}
		r.Cases = append(r.Cases, c)
	}
	return failure, nil
}

// promptCases turns prompts with their generated tokens into inputs of the model: one sequence without a past.
func promptCases(m *onnx.Model, list []generate.Recorded) ([]golden.Case, error) {
	dims, ids := map[string]int64{}, (*roles.Input)(nil)
	inputs := roles.Find(m)
	for _, in := range inputs {
		if in.Role == roles.Index && ids == nil && len(in.Dims) == 2 {
			ids = in
		}
	}
	if ids == nil {
		return nil, fmt.Errorf("%s has no input [batch, sequence] of token ids for a recorded generation", m.Path)
	}
	for _, in := range inputs {
		for i, d := range in.Dims {
			if in.Role == roles.Past && i > 0 && d.Param != "" {
				dims[d.Param] = 0
			}
		}
	}
	var cases []golden.Case
	for _, r := range list {
		all := slices.Concat(r.Prompt, r.IDs)
		for i, size := range []int64{1, int64(len(all))} {
			if d := ids.Dims[i]; d.Value < 0 && d.Param != "" {
				dims[d.Param] = size
			} else if d.Value != size {
				return nil, fmt.Errorf("%s takes token ids of shape %v, but a recorded generation has [1 %d]", m.Path,
					ids.Dims, len(all))
			}
		}
		tensors, err := golden.RandomInputs(m, 0, dims)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", m.Path, err)
		}
		for i, t := range tensors {
			if t.Name != ids.Value.Name {
				continue
			}
			var raw []byte
			for _, id := range all {
				if t.DataType == onnx.Int32 {
					raw = binary.LittleEndian.AppendUint32(raw, uint32(id))
				} else {
					raw = binary.LittleEndian.AppendUint64(raw, uint64(id))
				}
			}
			if tensors[i], err = onnx.NewTensor(t.Name, t.DataType, t.Dims, raw); err != nil {
				return nil, err
			}
		}
		cases = append(cases, golden.Case{Inputs: tensors})
	}
	return cases, nil
}
