package main

import (
	"errors"
	"fmt"
	"math"
	"regexp"
	"slices"
	"strings"

	"github.com/mojo-patch/mojo-patch/golden"
	"github.com/mojo-patch/mojo-patch/internal/english"
	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/rewrite"
	"github.com/mojo-patch/mojo-patch/rewrite/products"
	"github.com/mojo-patch/mojo-patch/rewrite/quantize"
	"github.com/mojo-patch/mojo-patch/rewrite/streams"
	"github.com/spf13/cobra"
)

type quantizeFlags struct {
	out, format          string
	head, experts        string
	only, skip           string
	activations          string
	golden               string
	keepAbove            float64
	evaluator            bool
	merge                bool
	externalOver         int64
	dataWritten          onnx.DataWritten // how the output got its data file
	onnxruntime, library string
	limitFlags
	dtype   string
	safe    safeFlags
	safely  *streams.Options // of --safe
	options quantize.Options
}

func newQuantize(a *app) *cobra.Command {
	f := &quantizeFlags{}
	c := &cobra.Command{
		Use:   "quantize MODEL -o OUT",
		Short: "Round a model's weights to 4, 8 or 16 bits",
		Long: `quantize rounds the weights of a model's products and the tables it gathers rows from to blocks of
32: q4_0, q4_1, q8_0 or mxfp4, as in GGUF files; or to fp8-block, floats of 8 bits (E4M3) with a scale
for 128 x 128 elements, as in DeepSeek's files. mojo.Linear replaces MatMul, Gemm and FusedMatMul,
mojo.Embedding replaces Gather, and mojo.QMoE replaces mojo.MoE; a table that is also the head is
stored once. The model may be an export or patched by apply: a mixture of experts must be patched.

f16 and bf16 round weights of float32 to floats of 16 bits. The model still computes in float32:
mojo.HalfLinear widens the weights of a product in registers, a Cast the rows of a Gather, and
mojo.MoE reads experts as they are stored.

It rounds to the nearest, with the same bits as ggml, and does not use data: the same model always
becomes the same bytes. Each block is decoded again by the op's definition, and each kind of site is
checked as apply checks it. Weights are streamed: memory holds about a tile of one weight.

Unless --only names them, it does not round gates of routers, tables of positions, and weights of less
than 4096 elements. It never rounds norms and biases, which are not matrices. --only and --skip are
regular expressions that match names of weights and of the nodes that read them.

--head is the format of matrices with a row for each token of the vocabulary: the product that computes
the logits, and the table of the tokens. --experts is the format of the experts of a mixture. The format
"float" leaves weights unchanged.

The report lists bytes, bits per weight, the ten worst weights by relative RMS error, with the cosine,
and the reasons why other weights are not rounded. With --golden the model runs on recorded inputs,
before and after: the report then also has the error of the products of each weight, and the KL
divergence and most probable tokens as in diff. --golden also reads a recorded generation (arrays
prompt0, greedy0 and so on, as for generate --golden). --max-kl and --min-top1 limit the loss; beyond
the limit quantize writes nothing and exits with 1. --keep-above keeps weights in float whose error is
greater; with --golden it is the error of their products.

--dtype converts the model before its weights are rounded, as apply --dtype does; with --safe nothing
overflows in float16. --golden then compares with the converted model.`,
		Example: `  mojo-patch quantize model.onnx -o small.onnx
  mojo-patch quantize patched.onnx --format q4_1 --head q8_0 -o small.onnx --golden recorded.npz --max-kl 0.5
  mojo-patch quantize model.onnx --format q4_0 --only 'mlp' -o small.onnx --json
  mojo-patch quantize model.onnx --dtype float16 --safe --golden recorded.npz -o small.onnx`,
		Args:              modelArgs(1, 1),
		ValidArgsFunction: completeModels(1),
		RunE: func(c *cobra.Command, args []string) error {
			if err := f.check(c, args[0]); err != nil {
				return err
			}
			return f.quantize(a, args[0])
		},
	}
	fl := c.Flags()
	formats := strings.Join(quantize.Formats(), ", ")
	fl.StringVar(&f.format, "format", quantize.Formats()[0],
		"format to round weights to: "+formats+", or float with --head")
	fl.StringVar(&f.head, "head", "", "format of matrices with a row for each token (default: the value of --format)")
	fl.StringVar(&f.experts, "experts", "", "format of the experts of mojo.MoE (default: the value of --format)")
	fl.StringVar(&f.only, "only", "", "round only weights whose name, or the name of a node that reads them, matches "+
		"this regular expression")
	fl.StringVar(&f.skip, "skip", "", "do not round weights whose name, or the name of a node that reads them, "+
		"matches this regular expression")
	fl.StringVar(&f.activations, "activations", activationKinds[0],
		"type that products round activations to, in blocks of 32: int16, int8 (faster, but other tokens) or float; "+
			"for fp8-block: float, or fp8 in blocks of 128")
	fl.StringVarP(&f.out, "output", "o", "", "file to write")
	fl.StringVar(&f.golden, "golden", "", "recorded inputs to run the model on before and after: .npz, or a folder of "+
		"ONNX test data")
	fl.BoolVar(&f.evaluator, "evaluator", false, "with --golden: run in the built-in evaluator")
	fl.Float64Var(&f.keepAbove, "keep-above", 0, "keep weights whose error is greater in float (default: round all)")
	f.limitFlags.flags(c)
	dtypeFlag(c, &f.dtype, "convert the model first: float32, float16 or bfloat16 (default: keep its type)")
	f.safe.flags(c, "the cases of --golden, or random inputs")
	fl.BoolVar(&f.merge, "merge-products", true,
		"merge the quantized products of one value, such as q, k and v, into one")
	fl.Int64Var(&f.externalOver, "external-data-over", defaultExternalOver,
		"put weights of more than this many bytes into OUT.data")
	libraryFlags(c, &f.onnxruntime, &f.library)
	completeFile(c, "output", "onnx")
	completeFile(c, "golden", "npz")
	choices := func() []string { return append(quantize.Formats(), quantize.Float) }
	completeValues(c, "format", choices, false)
	completeValues(c, "head", choices, false)
	completeValues(c, "experts", choices, false)
	completeValues(c, "activations", func() []string { return activationKinds }, false)
	headings(c, "output format experts head only skip golden json",
		"Weights: keep-above merge-products external-data-over", "Numbers: activations dtype", safeHeading,
		"Checks: evaluator max-kl min-top1", pathsHeading)
	a.jsonFlag(c, "quantize")
	return c
}

func (f *quantizeFlags) check(c *cobra.Command, path string) error {
	if err := f.limitFlags.parse(c); err != nil {
		return err
	}
	switch {
	case f.format == "":
		return fmt.Errorf("--format is empty: choose from %s", strings.Join(quantize.Formats(), ", "))
	case f.out == "":
		return errors.New("-o OUT is missing")
	case same(path, f.out):
		return fmt.Errorf("%s is the input, which is never overwritten: choose another file with -o", f.out)
	case f.externalOver < 0:
		return fmt.Errorf("--external-data-over %d: must be a number of bytes, 0 or more", f.externalOver)
	case !slices.Contains(activationKinds, f.activations):
		return fmt.Errorf("--activations %s: choose %s", f.activations, strings.Join(activationKinds, ", "))
	case f.golden == "" && (f.evaluator || f.limits.Set()):
		return errors.New("--evaluator, --max-kl and --min-top1 require --golden")
	case c.Flags().Changed("keep-above") && (!(f.keepAbove >= 0) || math.IsInf(f.keepAbove, 1)):
		return fmt.Errorf("--keep-above %g: must be a number of 0 or more", f.keepAbove)
	}
	if !c.Flags().Changed("keep-above") {
		f.keepAbove = math.Inf(1)
	}
	dtype, err := dtypeOf(f.dtype)
	if err != nil {
		return err
	}
	if f.safely, err = f.safe.options(dtype, f.golden); err != nil {
		return err
	}
	for _, name := range []struct{ flag, value string }{{"format", f.format}, {"head", f.head},
		{"experts", f.experts}} {
		if name.value == "" {
			continue
		}
		if err := quantize.Check(name.value); err != nil {
			return fmt.Errorf("--%s: %w", name.flag, err)
		}
	}
	f.options = quantize.Options{Format: f.format, Head: f.head, Experts: f.experts, Activations: f.activations}
	for _, x := range []struct {
		flag, value string
		to          **regexp.Regexp
	}{{"only", f.only, &f.options.Only}, {"skip", f.skip, &f.options.Skip}} {
		if x.value == "" {
			continue
		}
		r, err := regexp.Compile(x.value)
		if err != nil {
			return fmt.Errorf("--%s: %w", x.flag, err)
		}
		*x.to = r
	}
	return writable(f.out)
}

func (f *quantizeFlags) quantize(a *app, path string) error {
	m, err := a.read(path)
	if err != nil {
		return err
	}
	defer m.Close()
	r := &quantizeReport{Model: path, Activations: f.activations}
	if f.dtype == "" {
		return f.round(a, m, r)
	}
	converted, err := f.safe.convert(m, dtypes[f.dtype], f.safely)
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	r.DType, r.Safe = converted.DType, converted.Safe
	return a.through(m, f.out, func(m *onnx.Model) error { return f.round(a, m, r) })
}

// round quantizes the weights of a model, writes the model and reports.
func (f *quantizeFlags) round(a *app, m *onnx.Model, r *quantizeReport) error {
	p, err := quantize.Find(m, f.options)
	if err != nil {
		return err
	}
	var before *recordedRun
	if f.golden != "" {
		if before, err = f.record(a, m, p); err != nil {
			return err
		}
	}
	step, end := a.progress("rounding weight")
	p.Measure(before.samples(), step)
	end()
	p.KeepAbove(f.keepAbove)
	checks, done, err := kernelChecks(a, f.onnxruntime, f.library)
	if err != nil {
		return err
	}
	defer done()
	checked, err := p.Apply(checks)
	if err != nil {
		return err
	}
	r.fill(m, p, checked)
	var failure error
	if len(p.Weights) == 0 {
		failure = failed(fmt.Errorf("no weight of %s is rounded, so nothing is written", r.Model))
	} else if failure, err = f.write(a, m, r, before); err != nil {
		return err
	}
	if err := a.result(r); err != nil {
		return err
	}
	r.write(a)
	sayWidened(a, m, f.library)
	if failure == nil {
		a.say("wrote %s: its weights take %s, before %s", f.out, english.Bytes(r.After), english.Bytes(r.Before))
		sayCarried(a, f.dataWritten)
	}
	return failure
}

// write writes the model. failure is set if its results are too far from those before quantization.
func (f *quantizeFlags) write(a *app, m *onnx.Model, r *quantizeReport, before *recordedRun) (failure, err error) {
	if f.merge {
		merged, err := mergeProducts(m)
		if err != nil {
			return nil, err
		}
		if merged.Merged > 0 {
			r.Merged = merged
		}
	}
	staged, err := onnx.Stage(f.out, m, onnx.ExternalDataOver(f.externalOver))
	if err != nil {
		return nil, err
	}
	defer staged.Close()
	if before != nil {
		if failure, err = f.compare(a, staged.Path(), r, before); err != nil || failure != nil {
			return failure, err
		}
	}
	r.Output, r.Written, f.dataWritten = f.out, true, staged.Data()
	return nil, staged.Commit()
}

// mergeProducts merges quantized products of one value. The merged weights are read while the model is written.
func mergeProducts(m *onnx.Model) (*products.MergeReport, error) {
	r, err := onlyChanged(m, rewrite.Request{Merge: rewrite.MergeQuantized})
	if err != nil {
		return nil, err
	}
	return r.Merged, nil
}

// kernelChecks sets up the checks of sites: with kernels if they and onnxruntime are found.
func kernelChecks(a *app, onnxruntime, library string) (r rewrite.Request, done func(), err error) {
	r = rewrite.Request{Version: toolVersion(), Library: library}
	kernels, err := newProber(onnxruntime, library, providerCPU)
	switch {
	case errors.Is(err, errBrokenKernels):
		return r, nil, environment(err)
	case err != nil:
		a.detail("the check does not run the kernels: %s (run mojo-patch doctor for details)", firstLine(err))
		return r, func() {}, nil
	}
	r.KernelCheck = kernels.run
	return r, func() { kernels.close() }, nil
}

// recordedCases returns the inputs of a file: cases of the model, or recorded generations.
func recordedCases(path string, m *onnx.Model) ([]golden.Case, error) {
	if list, err := readRecorded(path); err == nil {
		return promptCases(m, list)
	}
	return loadCases(path, m)
}
