// Package apply is the command apply.
package apply

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/mojo-patch/mojo-patch/cmd/mojo-patch/cli"
	"github.com/mojo-patch/mojo-patch/cmd/mojo-patch/planning"
	"github.com/mojo-patch/mojo-patch/cmd/mojo-patch/precision"
	"github.com/mojo-patch/mojo-patch/cmd/mojo-patch/session"
	"github.com/mojo-patch/mojo-patch/golden"
	"github.com/mojo-patch/mojo-patch/internal/atomicfile"
	"github.com/mojo-patch/mojo-patch/llm/generate"
	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/rewrite"
	"github.com/mojo-patch/mojo-patch/rewrite/pagedcache"
	"github.com/spf13/cobra"
)

type options struct {
	planning.PlanFlags
	crosscheckFlags
	out          string
	evaluator    bool
	dryRun       bool
	keepFailed   bool
	externalOver int64
	linkWeights  bool

	data        []string         // the files with the output's external data, once it is written
	dataWritten onnx.DataWritten // how OUT.data got its bytes
}

// New returns the command apply.
func New(a *cli.App) *cobra.Command {
	f := &options{}
	c := &cobra.Command{
		Use:   "apply MODEL [OUT]",
		Short: "Find, check and rewrite blocks into fused ops",
		Long: `apply finds the blocks that the kernels support. It evaluates each block and its replacement on the
same hard inputs, rewrites the blocks that agree, and writes a new model. If the results of a site
differ, or the kernel does not support its types, apply leaves the site unchanged and reports it. If
onnxruntime is found, the kernel itself, or the ops of the target ort or onnx, also runs on each
distinct site, and onnxruntime opens the patched model before it is written. If onnxruntime opens the
given model but not the patched one, apply writes nothing and exits with 1. It does not open a model
of more than 30,000 nodes. --check-kernels off skips both.

Some exporters spread a block over functions that call functions, or a mixture of experts over
functions and the graph. apply inlines these functions first (--inline), and replaces If nodes that
ranks decide by the chosen branch. If nothing is fused then, it undoes both.

With --target, apply writes the ops of another runtime instead of fused ops (docs/targets.md). If the
target has no ops for a site, the site stays open: apply leaves it unchanged and reports it.

` + planning.PresetsHelp() + `

With --cache static, past and present of a decoder become one buffer that attention writes into,
instead of a copy that grows (docs/generate.md). If a cache of the model cannot be kept this way,
apply fails. With --past-length too, the number of cached tokens is an input, and no shape changes
between steps. With --past-length=rows each sequence of a batch has a separate number and needs no
padding before it.

With --cache paged, a server can run many sequences in one step without padding: their tokens are
packed, and keys and values are in blocks of pools that all sequences share (docs/serving.md). With
--last-logits too, the model returns a row of logits for each sequence instead of each token. A model
in which anything besides attention looks along the sequence or the batch is refused. With
--cache-type int8 or fp8, the pools hold codes of 8 bits, with a scale for each block and head. This
changes the numbers of the model by the rounding of keys and values; the report says by how much.

With --mla-cache, latent attention as in DeepSeek caches latents, from which it computes the keys and
values of all heads: the two caches of a layer become one, with the name of the keys' cache
(docs/generate.md). If a cache of the model cannot be kept this way, apply fails. With --cache static
the latents are in buffers.

With --quantized mojo, products and tables that another tool quantized in blocks become mojo.Linear
and mojo.Embedding, and experts become mojo.QMoE, with the same numbers. The others stay unchanged,
and the report lists the reasons.

With --backend +CPU, products with weights in float16 or bfloat16 become mojo.HalfLinear, which reads
the weights as they are stored.

With --plan, apply replaces only the sites in a plan that match -o wrote. It writes nothing if one of
them is not a site any more, is refused, or has other nodes, or if the plan was made for another file,
with other patterns or by another version.

With --learn, apply writes a pattern for each spelling that no pattern matched but that was fitted to
an op. It tries each pattern on the model. The next run finds such blocks with --patterns, which is
faster than a fit: the report shows by how much. If nothing was fitted, the file contains no pattern.

With --dtype, the model is converted first. In float16 and bfloat16, norms' statistics, softmax, routers
and rotary tables stay in float32, as in PyTorch. A model in bfloat16 computes in float32 on the CPU,
unless CUDA is the only device of --backend: then it computes in bfloat16, and does not load on the CPU.
The conversion is checked: without roundings the model computes the same as before, from rounded
weights. (A model of more than 2^26 weights is too large to check: the report lists the conversion as
assumed.) Cases of --golden are converted and compared within the precision of the narrower type.

With --safe as well, nothing overflows in float16. A value that would overflow, such as a residual
stream, is multiplied by a power of two. Weights, biases and epsilons compensate, so the model is the
same function. The only added nodes are products at which a stream meets an input, an output or an op
that does not scale. Magnitudes are measured on recorded cases or, less reliably, on random inputs.
Values that cannot be scaled stay in float32, and the report lists them with the reasons; with
--strict they are an error. The report compares the model, plain float16 and bfloat16 with float32.

With --free batch,sequence, a model that was exported for one batch or length accepts any: constants
that depend on these sizes are computed from the inputs. Equal numbers do not decide which constants
depend on a size: apply runs the model at other sizes, and accepts a choice of constants only if it
agrees with the original at the exported size and with the cases of --golden. If a choice stays open,
apply writes nothing, and the error names the node and the reason. A mask that was folded into a table
needs recorded outputs of a larger size, or --extend-masks if you know that the model has no window.
batch is axis 0 of the inputs, sequence is axis 1 of inputs with 2 or 3 dimensions, and past is axis 2
of inputs with 4, unless the model declares these names elsewhere.

With --runs-on, apply rewrites nodes that a provider of onnxruntime has no kernel for into ops that it
supports, by a list of the kernels of several versions: arithmetic in bfloat16 runs in float32 between
casts, Swish and SwiGLU become their definitions, and a model of an opset that the version does not
open is lowered to one that it opens. apply proves that each kind of node computes the same. If a node
cannot be rewritten, apply writes nothing, reports the reason and exits with 1. Other nodes stay
unchanged.

With --last-logits, a model that computes logits for every position computes them only for the last
one, [batch, 1, vocabulary]: generation needs no others. In a padded batch the last position is a
token only if the padding is on the left. Cases of --golden are compared at their last positions.

With --sample, the model also returns the next token of each sequence, as generate chooses it: mojo.Sample
applies penalties, temperature, top-k, top-p and min-p, and draws by a random number of the sequence.
docs/generate.md describes the new inputs, whose defaults are greedy decoding. The logits stay an
output, which costs no copy unless it is fetched.

apply never writes to its input. It writes the weights of a model over 2 GB to OUT.data. It does the
same for a model with external data, unless OUT is in the same folder: then OUT needs the same data
files, and OUT.data holds only stacked weights. OUT appears when it is complete, and replaces an older
OUT and its data at once. apply removes an OUT.data that is not needed any longer, unless another
model in the folder refers to it.

On file systems with reflinks (Btrfs, XFS and others, on Linux), OUT.data shares the weights with the
input's data file until one of the files is changed. Elsewhere apply copies them and reports the
number of bytes. With --link-weights, OUT.data is a hard link to the input's data file, if both would
have the same bytes. Use it only for a data file that no program writes to again: a program that
writes to it in place, as cp does when it copies over it, also changes the patched model.`,
		Example: `  mojo-patch apply model.onnx patched.onnx
  mojo-patch apply model.onnx -o patched.onnx --include cpu_fused_rmsnorm,cpu_fused_rope
  mojo-patch apply model.onnx -o patched.onnx --golden recorded.npz --require
  mojo-patch apply model.onnx -o standard.onnx --target onnx
  mojo-patch apply model.onnx -o wide.onnx --dtype float32
  mojo-patch apply model.onnx -o half.onnx --dtype float16 --safe --safe-inputs recorded.npz
  mojo-patch apply model.onnx -o anywhere.onnx --runs-on cpu@1.29
  mojo-patch apply model.onnx -o decoder.onnx --for cpu
  mojo-patch apply fixed.onnx -o any.onnx --free batch,sequence --golden longer.npz
  mojo-patch apply model.onnx --html report.html
  mojo-patch apply model.onnx --plan plan.json -o patched.onnx
  mojo-patch apply model.onnx --dry-run --json`,
		Args:              modelAndOut,
		ValidArgsFunction: cli.CompleteModels(2),
		RunE: func(c *cobra.Command, args []string) error {
			if f.out == "" && c.Flags().Changed("output") {
				return errors.New("the path after -o is empty")
			}
			if err := f.outOf(args); err != nil {
				return err
			}
			typed := planning.Changed(c)
			if err := f.Planned.Read(c); err != nil {
				return err
			}
			if err := f.Preset.Expand(a, c, args[0], typed, f.dryRun); err != nil {
				return err
			}
			if err := cli.CheckRules(c); err != nil {
				return err
			}
			return f.apply(a, c, args[0])
		},
	}
	fl := c.Flags()
	fl.StringVarP(&f.out, "output", "o", "", "file to write, instead of OUT (default: MODEL with .mojo.onnx for .onnx)")
	f.PlanFlags.AddTo(c)
	f.Planned.AddTo(c)
	f.Learn.AddTo(c)
	f.crosscheckFlags.flags(c)
	fl.StringVar(&f.Golden, "golden", "", "recorded cases; apply writes the patched model only if it reproduces them")
	fl.BoolVar(&f.evaluator, "evaluator", false, "run the patched model in the built-in evaluator")
	fl.StringSliceVar(&f.Free, "free", nil,
		"dimensions of inputs to make dynamic, whose sizes at export are baked into constants: NAME, NAME=SIZE or "+
			"NAME=INPUT.AXIS+INPUT.AXIS (inspect --dims lists them)")
	fl.BoolVar(&f.ExtendMasks, "extend-masks", false,
		"assume that masks folded into tables continue as they begin, although the mask of a longer "+
			"window looks the same")
	fl.StringVar(&f.Cache, "cache", "",
		"static: keep keys and values in buffers that grow; static=M: in buffers of M tokens; paged, paged=N: in "+
			"blocks of 256 or N tokens that sequences share (default: as exported)")
	fl.StringVar(&f.CacheType, "cache-type", "",
		"type of keys and values in --cache paged: int8 or fp8 (float8e4m3fn), rounded with a scale for each block "+
			"and head (default: as computed)")
	cli.CompleteValues(c, "cache-type", pagedcache.Types, false)
	fl.StringVar(&f.PastLength, "past-length", "",
		"read the number of cached tokens from an input past_length instead of the length "+
			"of the mask; =rows: one number for each sequence")
	fl.Lookup("past-length").NoOptDefVal = planning.PastLengthOne
	fl.BoolVar(&f.MLACache, "mla-cache", false,
		"cache the latents of DeepSeek's attention: 576 numbers per token in one cache instead of 40,960 in two")
	fl.BoolVar(&f.Sample, "sample", false,
		"also choose the next tokens, by options and a random number of each sequence: an output sample_ids")
	fl.BoolVar(&f.Merge, "merge-products", false,
		"merge the products of one value with several weights into one (for decoding on a GPU; stacks the weights)")
	fl.StringVar(&f.Quantized, "quantized", planning.QuantizedKeep,
		"products and tables that other tools quantized (MatMulNBits, GatherBlockQuantized, "+
			"QMoE, DequantizeLinear): keep them, or mojo to convert them to mojo.Linear, mojo.Embedding and mojo.QMoE")
	fl.StringVar(&f.Activations, "activations", "",
		"type that products round activations to, in blocks of 32: int16 (default: same "+
			"tokens), int8 or float")
	cli.CompleteValues(c, "quantized", func() []string {
		return []string{planning.QuantizedKeep,
			planning.QuantizedMojo}
	}, false)
	cli.CompleteValues(c, "activations", func() []string { return precision.ActivationKinds }, false)
	fl.BoolVar(&f.dryRun, "dry-run", false, "find, check and report as match does; write nothing")
	fl.BoolVar(&f.keepFailed, "keep-failed", false, "keep the output if it fails")
	fl.Int64Var(&f.externalOver, "external-data-over", 0,
		"put weights of more than this many bytes into OUT.data (0: only if needed)")
	fl.BoolVar(&f.linkWeights, "link-weights", false,
		"make OUT.data a hard link to the input's data file instead of a copy, if both would have the same bytes")
	cli.CompleteFile(c, "output", "onnx")
	cli.CompleteFile(c, "golden", "npz")
	cli.Rules(c, "keep-failed evaluator requires golden", "past-length requires cache=static",
		"cache-type requires cache=paged",
		"extend-masks requires free", "activations requires quantized=mojo",
		"target excludes cache=static mla-cache sample quantized=mojo runs-on: only fused ops do this",
		"dry-run excludes golden cache free link-weights quantized=mojo mla-cache crosscheck: "+
			"--dry-run writes no model",
		"golden excludes cache=paged: recorded cases have no blocks")
	cli.Headings(c, "output for target dtype backend golden html dry-run require json",
		"Decoders: last-logits cache cache-type past-length mla-cache sample merge-products free extend-masks",
		"Targets: shape accuracy-level runs-on", "Weights: quantized activations external-data-over link-weights",
		cli.SafeHeading, "Sites: only skip node site include patterns learn inline plan force",
		"Checks: verify check-kernels crosscheck evaluator keep-failed",
		"Trouble: assume-available allow-missing-weights", cli.PathsHeading)
	a.JSONFlag(c, "report")
	return c
}

// modelAndOut requires a model and perhaps an output as arguments.
func modelAndOut(c *cobra.Command, args []string) error {
	if len(args) == 2 && cli.StrayOption(c, args[1]) == nil {
		args = args[:1]
	}
	return cli.ModelArgs(1, 1)(c, args)
}

// outOf takes the output from the second argument. -o replaces a file; an argument does not, because the caller may
// mean a second model.
func (f *options) outOf(args []string) error {
	if len(args) < 2 {
		return nil
	}
	out := args[1]
	switch {
	case f.out != "":
		return fmt.Errorf("two outputs: %s, and %s after -o", out, f.out)
	case out == "" || out == "-":
		return fmt.Errorf("the output %q is not a file", out)
	}
	if _, err := os.Lstat(out); err == nil {
		return fmt.Errorf("%s is there already: apply takes one model; to replace the file, use -o %s", out, out)
	}
	f.out = out
	return nil
}

func (f *options) check() error {
	if f.externalOver < 0 {
		return fmt.Errorf("--external-data-over %d: must be a number of bytes, 0 or more", f.externalOver)
	}
	return f.possible()
}

func (f *options) apply(a *cli.App, c *cobra.Command, path string) error {
	if err := f.check(); err != nil {
		return err
	}
	out := f.out
	if out == "" {
		out = strings.TrimSuffix(path, ".onnx") + ".mojo.onnx"
	}
	if err := f.Learn.Check(c, path, out, f.HTML, f.Patterns.Paths); err != nil {
		return err
	}
	if f.dryRun {
		return f.Match(a, c, path, nil)
	}
	f.Recorded = f.cases
	if cli.Same(path, out) {
		return fmt.Errorf("%s is the input, which is never overwritten: choose another file with -o", out)
	}
	if f.HTML != "" && (cli.Same(path, f.HTML) || cli.Same(out, f.HTML)) {
		return fmt.Errorf("--html %s is the model: choose another file", f.HTML)
	}
	if err := cli.Writable(out); err != nil {
		return err
	}
	var cases []golden.Case
	p, m, r, err := f.Find(a, c, path, func(p *planning.Plan, m *onnx.Model) (*rewrite.Report, error) {
		var err error
		if cases, err = f.cases(m); err != nil {
			return nil, err
		}
		plan, err := p.Plan(m)
		if err != nil {
			return nil, err
		}
		p.Draw(plan)
		return plan.Report, plan.Replace()
	})
	if err != nil {
		return err
	}
	defer p.End()
	defer m.Close()
	var failure error
	var check *cli.ExitError
	written := p.Enough(r) == nil
	if written {
		failure = p.Opens(m, path, r)
		if written = failure == nil; !written && !errors.As(failure, &check) {
			return failure
		}
	}
	var staged *onnx.Staged
	if written {
		start := time.Now()
		staged, failure = f.stage(a, m, out, cases)
		if staged != nil {
			defer staged.Close()
		}
		r.Crosscheck = f.agreed
		if failure != nil && !errors.As(failure, &check) {
			return failure
		}
		written = failure == nil || f.keepFailed
		if written {
			r.Output = rewrite.DescribeModel(m, out)
			r.CountOps(m)
			r.Input.Bytes, _ = m.Size()
			r.Output.Bytes = staged.Size()
			if p.Digests() {
				r.Output.SHA256, _ = onnx.SHA256(staged.File())
			}
		}
		r.TimeMS.Write = cli.Milliseconds(start)
	}
	r.PeakRSSBytes = cli.PeakRSS()
	if failure == nil {
		failure = p.Enough(r)
	}
	if !written {
		staged = nil
	}
	if err := f.put(p, m, r, staged, failure); err != nil {
		return errors.Join(failure, err)
	}
	if written {
		f.Learn.Say(a, r.Learnt)
	}
	if err := f.report(a, m, r, written); err != nil {
		return err
	}
	if written {
		session.SayWidened(a, m, f.KernelsLib)
	}
	p.SayPage()
	return failure
}

// put moves the run's outputs to their places: the learned patterns and the page first, then the model. If the model is
// not written, staged is nil and failure is the reason.
func (f *options) put(p *planning.Plan, m *onnx.Model, r *rewrite.Report, staged *onnx.Staged, failure error) error {
	var others cli.Outputs
	defer others.Discard()
	if staged == nil {
		if err := others.Add(p.PreparePage(m, "", failure)); err != nil {
			return err
		}
		return atomicfile.Commit(others.Rename)
	}
	if err := others.Add(f.Learn.Prepare(r.Learnt)); err != nil {
		return err
	}
	if err := others.Add(p.PreparePage(m, staged.File(), failure)); err != nil {
		return err
	}
	return staged.CommitAfter(others.Rename)
}

func (f *options) report(a *cli.App, m *onnx.Model, r *rewrite.Report, written bool) error {
	if err := a.Result(planning.Reported(r)); err != nil {
		return err
	}
	w := a.Human()
	var err error
	if a.Verbose {
		planning.WriteSites(w, r, true)
		err = errors.Join(r.WritePasses(w), r.WriteCounts(w, true))
	} else {
		err = r.WriteText(w)
	}
	if err != nil {
		return err
	}
	if written {
		data, weights := f.data, ""
		if len(data) > 0 {
			weights = ", weights in " + strings.Join(data[:min(len(data), 3)], ", ")
			if len(data) > 3 {
				weights += fmt.Sprintf(" and %s", cli.Counted(len(data)-3, "other file"))
			}
		}
		a.Say("wrote %s: %d nodes, before %d%s", r.Output.Path, r.Output.Nodes, r.Input.Nodes, weights)
		f.sayData(a)
		f.Preset.SayNext(a, r.Output.Path)
		// bench runs all models on the inputs of the first one, and wants outputs of one shape.
		other := r.Cache != nil || r.Paged != nil || r.Latent != nil || r.Logits == rewrite.LogitsLast
		switch {
		case a.JSON || r.Target != "" || r.Blocks() == 0:
		case !other:
			a.Say("to compare their speed: mojo-patch bench %s %s", r.Input.Path, r.Output.Path)
		case generate.Check(m) == nil:
			a.Say("to compare their tokens: mojo-patch generate %s --ids 1,2,3 --compare %s", r.Input.Path,
				r.Output.Path)
		}
	}
	return nil
}
