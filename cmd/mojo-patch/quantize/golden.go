package quantize

import (
	"fmt"
	"slices"

	"github.com/mojo-patch/mojo-patch/cmd/mojo-patch/cli"
	"github.com/mojo-patch/mojo-patch/cmd/mojo-patch/compare"
	"github.com/mojo-patch/mojo-patch/cmd/mojo-patch/feeds"
	"github.com/mojo-patch/mojo-patch/cmd/mojo-patch/session"
	"github.com/mojo-patch/mojo-patch/golden"
	"github.com/mojo-patch/mojo-patch/onnx"
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
func (f *options) record(a *cli.App, m *onnx.Model, p *quantize.Plan) (*recordedRun, error) {
	cases, err := feeds.RecordedCases(f.golden, m)
	if err != nil {
		return nil, err
	}
	again, err := a.Read(m.Path) // gets more outputs than the model has
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
		if c.Inputs, err = feeds.AsDeclared(again.Graph.Inputs, c.Inputs); err != nil {
			return nil, fmt.Errorf("case %d of %s: %w", i, f.golden, err)
		}
		got, err := run.Run(c.Inputs)
		if err != nil {
			return nil, cli.Failed(fmt.Errorf("case %d of %s: %w", i, f.golden, err))
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
func (f *options) open(a *cli.App, m *onnx.Model) (session.Runner, string, error) {
	b := session.Backend{Evaluator: f.evaluator, Kernels: session.KernelsAuto, KernelsLib: f.library,
		Onnxruntime: f.onnxruntime,
		Optimize:    "all"}
	if err := b.Place(); err != nil {
		return nil, "", err
	}
	b.Fallback = f.onnxruntime == ""
	b.OpenModel = func(m *onnx.Model, options ...ort.Option) (*ort.Session, error) {
		encoded, err := onnx.Marshal(m)
		if err != nil {
			return nil, err
		}
		return ort.OpenBytes(encoded, m.Path, options...)
	}
	return b.Open(a, m)
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
func (f *options) compare(a *cli.App, path string, r *Report, before *recordedRun) (failure, err error) {
	m, err := a.Read(path)
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
			return nil, cli.Failed(fmt.Errorf("case %d of %s: %w", i, f.golden, err))
		}
	}
	k := &compare.Criteria{LimitFlags: f.LimitFlags, Vocabulary: before.vocabulary}
	k.Tolerances = golden.Tolerances{} // differences of other outputs are reported, without a limit
	all := &compare.Comparison{Model: f.out, Against: r.Model, Backend: what}
	if err := k.Compare(all, got, before.cases, nil); err != nil {
		return nil, err
	}
	r.Backend = what
	for _, c := range all.Cases {
		c.Error = ""
		c.Outputs = slices.DeleteFunc(c.Outputs, func(s golden.Stats) bool { return s.Logits == nil })
		for _, s := range c.Outputs {
			if !s.Logits.Passed && failure == nil {
				failure = cli.Failed(fmt.Errorf("case %d of %s: %w: nothing is written", c.Case, f.golden,
					f.Limits.Check(s.Logits)))
			}
		}
		r.Cases = append(r.Cases, c)
	}
	return failure, nil
}
