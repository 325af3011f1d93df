// Package quantize is the command quantize.
package quantize

import (
	"errors"
	"fmt"
	"math"
	"regexp"
	"slices"
	"strings"

	"github.com/mojo-patch/mojo-patch/cmd/mojo-patch/cli"
	"github.com/mojo-patch/mojo-patch/cmd/mojo-patch/compare"
	"github.com/mojo-patch/mojo-patch/cmd/mojo-patch/precision"
	"github.com/mojo-patch/mojo-patch/cmd/mojo-patch/prober"
	"github.com/mojo-patch/mojo-patch/cmd/mojo-patch/session"
	"github.com/mojo-patch/mojo-patch/internal/english"
	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/rewrite"
	"github.com/mojo-patch/mojo-patch/rewrite/quantize"
	"github.com/mojo-patch/mojo-patch/rewrite/streams"
	"github.com/spf13/cobra"
)

type options struct {
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
	compare.LimitFlags
	dtype   string
	safe    precision.SafeFlags
	safely  *streams.Options // of --safe
	options quantize.Options
}

// New returns the command quantize.
func New(a *cli.App) *cobra.Command {
	f := &options{}
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
		Args:              cli.ModelArgs(1, 1),
		ValidArgsFunction: cli.CompleteModels(1),
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
	fl.StringVar(&f.activations, "activations", precision.ActivationKinds[0],
		"type that products round activations to, in blocks of 32: int16, int8 (faster, but other tokens) or float; "+
			"for fp8-block: float, or fp8 in blocks of 128")
	fl.StringVarP(&f.out, "output", "o", "", "file to write")
	fl.StringVar(&f.golden, "golden", "", "recorded inputs to run the model on before and after: .npz, or a folder of "+
		"ONNX test data")
	fl.BoolVar(&f.evaluator, "evaluator", false, "run in the built-in evaluator")
	fl.Float64Var(&f.keepAbove, "keep-above", 0, "keep weights whose error is greater in float (default: round all)")
	f.LimitFlags.AddTo(c)
	precision.DTypeFlag(c, &f.dtype, "convert the model first: float32, float16 or bfloat16 (default: keep its type)")
	f.safe.AddTo(c, "the cases of --golden, or random inputs")
	fl.BoolVar(&f.merge, "merge-products", true,
		"merge the quantized products of one value, such as q, k and v, into one")
	fl.Int64Var(&f.externalOver, "external-data-over", precision.DefaultExternalOver,
		"put weights of more than this many bytes into OUT.data")
	session.LibraryFlags(c, &f.onnxruntime, &f.library)
	cli.CompleteFile(c, "output", "onnx")
	cli.CompleteFile(c, "golden", "npz")
	choices := func() []string { return append(quantize.Formats(), quantize.Float) }
	cli.CompleteValues(c, "format", choices, false)
	cli.CompleteValues(c, "head", choices, false)
	cli.CompleteValues(c, "experts", choices, false)
	cli.CompleteValues(c, "activations", func() []string { return precision.ActivationKinds }, false)
	cli.Rules(c, "evaluator max-kl min-top1 requires golden")
	cli.Headings(c, "output format experts head only skip golden json",
		"Weights: keep-above merge-products external-data-over", "Numbers: activations dtype", cli.SafeHeading,
		"Checks: evaluator max-kl min-top1", cli.PathsHeading)
	a.JSONFlag(c, "quantize")
	return c
}

func (f *options) check(c *cobra.Command, path string) error {
	if err := f.LimitFlags.Parse(c); err != nil {
		return err
	}
	switch {
	case f.format == "":
		return fmt.Errorf("--format is empty: choose from %s", strings.Join(quantize.Formats(), ", "))
	case f.out == "":
		return errors.New("-o OUT is missing")
	case cli.Same(path, f.out):
		return fmt.Errorf("%s is the input, which is never overwritten: choose another file with -o", f.out)
	case f.externalOver < 0:
		return fmt.Errorf("--external-data-over %d: must be a number of bytes, 0 or more", f.externalOver)
	case !slices.Contains(precision.ActivationKinds, f.activations):
		return fmt.Errorf("--activations %s: choose %s", f.activations, strings.Join(precision.ActivationKinds, ", "))
	case c.Flags().Changed("keep-above") && (!(f.keepAbove >= 0) || math.IsInf(f.keepAbove, 1)):
		return fmt.Errorf("--keep-above %g: must be a number of 0 or more", f.keepAbove)
	}
	if !c.Flags().Changed("keep-above") {
		f.keepAbove = math.Inf(1)
	}
	dtype, err := precision.DTypeOf(f.dtype)
	if err != nil {
		return err
	}
	if f.safely, err = f.safe.Options(dtype, f.golden); err != nil {
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
	return cli.Writable(f.out)
}

func (f *options) quantize(a *cli.App, path string) error {
	m, err := a.Read(path)
	if err != nil {
		return err
	}
	defer m.Close()
	r := &Report{Model: path, Activations: f.activations}
	if f.dtype == "" {
		return f.round(a, m, r)
	}
	converted, err := f.safe.Convert(m, precision.DTypes[f.dtype], f.safely)
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	r.DType, r.Safe = converted.DType, converted.Safe
	return precision.Through(a, m, f.out, func(m *onnx.Model) error { return f.round(a, m, r) })
}

// round quantizes the weights of a model, writes the model and reports.
func (f *options) round(a *cli.App, m *onnx.Model, r *Report) error {
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
	step, end := a.Progress("rounding weight")
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
		failure = cli.Failed(fmt.Errorf("no weight of %s is rounded, so nothing is written", r.Model))
	} else if failure, err = f.write(a, m, r, before); err != nil {
		return err
	}
	if err := a.Result(r); err != nil {
		return err
	}
	r.write(a)
	session.SayWidened(a, m, f.library)
	if failure == nil {
		a.Say("wrote %s: its weights take %s, before %s", f.out, english.Bytes(r.After), english.Bytes(r.Before))
		cli.SayCarried(a, f.dataWritten)
	}
	return failure
}

// write writes the model. failure is set if its results are too far from those before quantization.
func (f *options) write(a *cli.App, m *onnx.Model, r *Report, before *recordedRun) (failure, err error) {
	if f.merge {
		merged, err := precision.MergeProducts(m)
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

// kernelChecks sets up the checks of sites: with kernels if they and onnxruntime are found.
func kernelChecks(a *cli.App, onnxruntime, library string) (r rewrite.Request, done func(), err error) {
	r = rewrite.Request{Version: cli.Version(), Library: library}
	kernels, err := prober.New(onnxruntime, library, session.ProviderCPU)
	switch {
	case errors.Is(err, prober.ErrBrokenKernels):
		return r, nil, cli.Environment(err)
	case err != nil:
		a.Detail("the check does not run the kernels: %s (run mojo-patch doctor for details)", cli.FirstLine(err))
		return r, func() {}, nil
	}
	r.KernelCheck = kernels.Run
	return r, func() { kernels.Close() }, nil
}
