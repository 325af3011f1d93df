package main

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"

	"github.com/mojo-patch/mojo-patch/golden"
	"github.com/mojo-patch/mojo-patch/models"
	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/ort"
	"github.com/mojo-patch/mojo-patch/reference"
	"github.com/mojo-patch/mojo-patch/rewrite"
	"github.com/mojo-patch/mojo-patch/rewrite/inline"
)

const header = `Errors are the largest over the outputs, one figure per golden case: absolute for float32, in ulp of the output's
largest magnitude (u) for half types. A model that neither onnxruntime nor the evaluator can run as exported is judged only by
the patched file.

| model | nodes | RMSNorm | LayerNorm | rotary | GLU | router | MoE | sites checked (refused) | onnxruntime, kernels | same, unoptimized | onnxruntime, bodies | same, unoptimized | evaluator, patched | evaluator, original | verdict |
| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |`

type runner struct{ library, kernels, dir string }

type row struct {
	cells      []string
	ok         bool
	fused, all models.Blocks // all is zero without a truth.json
}

func (r row) String() string { return "| " + strings.Join(r.cells, " | ") + " |" }

// model makes the row of one model.
func (r *runner) model(file, name string, truths map[string]models.Blocks) row {
	w := row{cells: []string{name}, ok: true}
	fail := func(err error) row {
		return row{cells: append(w.cells, failed(err).text), all: truths[name]}
	}
	m, err := onnx.Read(file)
	if err != nil {
		return fail(err)
	}
	defer m.Close()
	recorded, err := goldens(file)
	if err != nil {
		return fail(err)
	}
	cases, err := golden.Load(recorded, m)
	if err != nil {
		return fail(err)
	}
	original := evaluate(m, cases)
	before := len(m.Graph.Nodes)
	report, err := rewrite.Apply(m, rewrite.Request{Library: r.kernels, Inline: inline.Auto})
	if err != nil {
		return fail(err)
	}
	patched := filepath.Join(r.dir, name+".onnx")
	if err := onnx.Write(patched, m); err != nil {
		return fail(err)
	}
	defer os.Remove(patched)

	want, known := truths[name]
	got, checked, refused := count(report)
	w.fused, w.all = got, want
	w.cells = append(w.cells, fmt.Sprintf("%d → %d", before, len(m.Graph.Nodes)),
		of(got.RMSNorm, want.RMSNorm, known), of(got.LayerNorm, want.LayerNorm, known), of(got.Rope, want.Rope, known),
		of(got.GLU, want.GLU, known), of(got.Router, want.Router, known), of(got.MoE, want.MoE, known),
		fmt.Sprintf("%d (%d)", checked, refused))
	broken := r.broken(file, cases, original)
	if broken != "" {
		original = result{text: original.text, ok: true}
	}
	results := []result{
		r.session(patched, file, cases, true, ort.OptimizeAll), r.session(patched, file, cases, true, ort.OptimizeNone),
		r.session(patched, file, cases, false, ort.OptimizeAll),
		r.session(patched, file, cases, false, ort.OptimizeNone), evaluate(m, cases), original,
	}
	verdict := "ok"
	for _, x := range results {
		w.cells = append(w.cells, x.text)
		if x.unsupported != "" {
			verdict = "ok; " + x.unsupported
		}
		w.ok = w.ok && x.ok && (broken == "" || x.unsupported == "")
	}
	if broken != "" {
		verdict = "ok; broken as exported: " + broken
	}
	if n := len(report.Repairs); n > 0 {
		verdict += fmt.Sprintf("; %d repaired", n)
	}
	if known {
		left, none := want.Compare(got)
		if w.ok = w.ok && none; left > 0 {
			verdict += fmt.Sprintf("; %d blocks left as they were", left)
		}
	}
	if !w.ok {
		verdict = "DIFFERS"
		if broken != "" {
			verdict += ", and broken as exported: " + broken
		}
	}
	w.cells = append(w.cells, verdict)
	return w
}

// broken says why neither onnxruntime nor the evaluator reproduces the goldens with the original model, or returns "".
// evaluated is the evaluator's result.
func (r *runner) broken(file string, cases []golden.Case, evaluated result) string {
	if evaluated.ok {
		return ""
	}
	got, err := runAll(file, cases, []ort.Option{ort.WithLibrary(r.library), ort.WithOptimization(ort.OptimizeNone)})
	switch {
	case err != nil:
		return strings.TrimPrefix(failed(err).text, file+": ")
	case got.ok:
		return ""
	}
	return "errors of " + got.text
}

func count(report *rewrite.Report) (got models.Blocks, checked, refused int) {
	for _, s := range report.Sites {
		if s.Check != nil {
			checked++
		}
		switch {
		case s.Status == rewrite.Refused:
			refused++
		case s.Status == rewrite.Fused:
			got = got.Plus(models.Of(s.Op))
		}
	}
	return got, checked, refused
}

func of(got, want int, known bool) string {
	if !known {
		return fmt.Sprint(got)
	}
	return fmt.Sprintf("%d of %d", got, want)
}

// result is the outcome of one way to run a model on all cases.
type result struct {
	text        string
	unsupported string // why this runtime cannot load the model at all, through no fault of the patch
	ok          bool
}

// session runs the patched model in onnxruntime. If both it and the original fail, the runtime is to blame.
func (r *runner) session(patched, original string, cases []golden.Case, kernels bool, level ort.Optimization) result {
	options := []ort.Option{ort.WithLibrary(r.library), ort.WithOptimization(level), ort.WithThreads(2)}
	plain := options[:len(options):len(options)]
	if kernels && r.kernels != "" {
		options = append(options, ort.WithKernelLibrary(r.kernels))
	} else if kernels {
		options = append(options, ort.WithKernels())
	}
	got, err := runAll(patched, cases, options)
	if err == nil {
		return got
	}
	if _, originalErr := runAll(original, cases, plain); originalErr != nil {
		return result{"not run", "onnxruntime does not run the original either: " +
			strings.TrimPrefix(failed(originalErr).text, original+": "), true}
	}
	return failed(err)
}

func runAll(path string, cases []golden.Case, options []ort.Option) (result, error) {
	s, err := ort.Open(path, options...)
	if err != nil {
		return result{}, err
	}
	defer s.Close()
	return compare(cases, s.Run)
}

// failed turns an error into a cell.
func failed(err error) result {
	line, _, _ := strings.Cut(err.Error(), "\n")
	return result{text: strings.ReplaceAll(line, "|", "/")}
}

func evaluate(m *onnx.Model, cases []golden.Case) result {
	e, err := reference.New(m, reference.Options{})
	if err != nil {
		return failed(err)
	}
	r, err := compare(cases, e.RunTensors)
	if err != nil {
		return failed(err)
	}
	return r
}

// compare runs every case and returns the errors against its recorded outputs.
func compare(cases []golden.Case, run func([]*onnx.Tensor) ([]*onnx.Tensor, error)) (result, error) {
	var texts []string
	ok := true
	for _, c := range cases {
		outs, err := run(c.Inputs)
		if err != nil {
			return result{}, err
		}
		stats, err := golden.CompareAll(outs, c.Outputs, golden.Tolerances{})
		if err != nil {
			return result{}, err
		}
		worst, unit := 0.0, ""
		for _, s := range stats {
			e := float64(s.MaxAbs)
			if s.DataType != onnx.Float.String() && float64(s.MaxULP) > 0 {
				e, unit = float64(s.MaxULP), "u"
			}
			worst = math.Max(worst, e)
		}
		texts = append(texts, fmt.Sprintf("%.1e%s", worst, unit))
		if unit != "" {
			texts[len(texts)-1] = fmt.Sprintf("%.2f u", worst)
		}
		ok = ok && golden.Passed(stats)
	}
	return result{text: strings.Join(texts, ", "), ok: ok}, nil
}
