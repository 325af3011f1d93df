// Package weights is the command weights.
package weights

import (
	"errors"
	"fmt"

	"github.com/mojo-patch/mojo-patch/cmd/mojo-patch/cli"
	"github.com/mojo-patch/mojo-patch/cmd/mojo-patch/precision"
	"github.com/mojo-patch/mojo-patch/internal/english"
	"github.com/mojo-patch/mojo-patch/llm/weights"
	"github.com/mojo-patch/mojo-patch/llm/weights/checkpoint"
	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/rewrite"
	"github.com/mojo-patch/mojo-patch/rewrite/convert"
	"github.com/mojo-patch/mojo-patch/rewrite/products"
	"github.com/mojo-patch/mojo-patch/rewrite/streams"
	"github.com/spf13/cobra"
)

type weightsLoadFlags struct {
	from         []string
	out          string
	mapFile      string
	dtype        string
	providers    []string
	strict       bool
	replace      bool
	externalOver int64
	keep         keepFlags
	safe         precision.SafeFlags
	options      *streams.Options        // of --safe
	converted    map[string]*onnx.Tensor // by --safe: the initializers
}

func newWeightsLoad(a *cli.App) *cobra.Command {
	f := &weightsLoadFlags{}
	c := &cobra.Command{
		Use:   "load GRAPH --from FILE... -o MODEL",
		Short: "Fill a graph that lacks its weights from GGUF or safetensors files",
		Long: `load searches the files for the tensor of each initializer whose external data are missing (an
expected key), dequantizes it, casts it to the initializer's type, and writes a model with it. It
reads and writes weights one tensor at a time, to MODEL.data; both files appear when they are complete.

--from takes files ending in .gguf or .safetensors, the index of safetensors files, or a folder of
these, such as a Hugging Face checkpoint. A tensor that is in two files is an error.

load looks an initializer up in --map, then by its own name, with or without prefixes such as
"model.", then by the names of the modules whose nodes read it, then by its part in a decoder layer;
in GGUF files by llama.cpp's names. The nodes that read a weight, and shapes, show whether it is
transposed. load undoes the changes of llama.cpp's conversion: the reordered rows of q and k, and the
1 added to norms. -v lists each of these.

A map is JSON, and load guesses nothing for an initializer in it: {"map": {"val_75": {"tensor":
"blk.0.attn_q.weight", "shape": [576, 576], "transposed": true, "rope_unpermute_heads": 9}}}.

Initializers that have their elements stay unchanged, and the report names each one that differs in the
checkpoint. --replace loads them too.

load reports a key that is missing, or whose tensor has another shape, and leaves it a reference to
external data: the model cannot run without it. With --strict load then writes nothing and exits with
1. Unexpected keys, tensors that the graph does not use, do not count.

With --keep-quantized, matrices stored in blocks in a GGUF file (Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, Q4_K,
Q5_K, Q6_K, MXFP4), or in FP8 or MXFP4 with scales in a safetensors file, stay quantized: mojo.Linear
replaces their products, mojo.Embedding their Gather, and mojo.QMoE the experts that apply has found in
the graph. Each kind of site is checked as apply checks it. The report has bits per weight, and the
reasons why other weights become floats; if all do, load writes nothing and exits with 1.
--activations is the type that products round activations to.

--keep also keeps floats of 16 bits: float32 weights that the files store in BF16 or F16 stay in 16
bits. The model still computes in float32: mojo.HalfLinear widens the weights of a product in registers,
a Cast the rows of a Gather, and mojo.MoE reads experts as they are stored.

--dtype converts graph and weights. In float16 and bfloat16, norms' statistics, softmax and rotary
tables stay in float32 after casts, so that the model loads even if a provider lacks kernels for the
half type; --dtype-provider names the providers that it must load in. load then writes nothing if a
key is missing, and warns of weights that a cast makes infinite (over 65504 in float16).

--safe with --dtype float16 loads the weights in float32 and then converts the model as apply --safe
does, so that nothing overflows. It needs disk space for the float32 model beside MODEL, and
--safe-inputs for a model of more than 2^26 weights. With --keep-quantized, the scales and offsets of
weights that stay quantized take the powers of two; their codes do not change.`,
		Example: `  mojo-patch weights load graph.onnx --from model.gguf -o model.onnx
  mojo-patch weights load graph.onnx --from checkpoint/ -o model.onnx --strict
  mojo-patch weights load graph.onnx --from model.gguf -o small.onnx --keep-quantized
  mojo-patch weights load graph.onnx --from checkpoint/ -o half.onnx --keep
  mojo-patch weights load graph.onnx --from model.gguf --map map.json -o model.onnx --json
  mojo-patch weights load graph.onnx --from a.safetensors --from b.safetensors -o model.onnx --dtype float16
  mojo-patch weights load graph.onnx --from checkpoint/ -o half.onnx --dtype float16 --safe --safe-inputs recorded.npz`,
		Args:              cli.ModelArgs(1, 1),
		ValidArgsFunction: cli.CompleteModels(1),
		RunE: func(_ *cobra.Command, args []string) error {
			return f.load(a, args[0])
		},
	}
	fl := c.Flags()
	fl.StringArrayVar(&f.from, "from", nil, "file or folder with weights (repeatable)")
	fl.StringVarP(&f.out, "output", "o", "", "file to write")
	fl.StringVar(&f.mapFile, "map", "", "JSON file that maps initializers to tensors")
	precision.DTypeFlag(c, &f.dtype,
		"convert graph and weights: float32, float16 or bfloat16 (default: the types of the graph, usually float32)")
	fl.StringSliceVar(&f.providers, "dtype-provider", nil,
		"with --dtype: providers that the model has to load in, cpu or cuda (default both)")
	fl.BoolVar(&f.strict, "strict", false, "write nothing if a key is missing or its tensor has another shape")
	fl.BoolVar(&f.replace, "replace", false, "also load initializers that already have their elements")
	fl.Int64Var(&f.externalOver, "external-data-over", precision.DefaultExternalOver,
		"put weights of more than this many bytes into MODEL.data")
	f.keep.flags(c)
	f.safe.AddTo(c, "random inputs")
	cli.CompleteFile(c, "output", "onnx")
	cli.CompleteFile(c, "from", "gguf", "safetensors", "json")
	cli.CompleteFile(c, "map", "json")
	cli.CompleteValues(c, "dtype-provider", func() []string { return []string{"cpu", "cuda"} }, true)
	cli.Rules(c, "dtype-provider requires dtype")
	cli.Headings(c, "output from map keep-quantized dtype json",
		"Weights: keep replace activations merge-products external-data-over", cli.SafeHeading,
		"Paths: onnxruntime kernels-lib dtype-provider")
	a.JSONFlag(c, "weights-load")
	return c
}

func (f *weightsLoadFlags) check(graph string) error {
	switch {
	case len(f.from) == 0:
		return errors.New("--from FILE is missing: name the file or folder with the weights")
	case f.out == "":
		return errors.New("-o MODEL is missing")
	case cli.Same(graph, f.out):
		return fmt.Errorf("%s is the input, which is never overwritten: choose another file with -o", f.out)
	case f.externalOver < 0:
		return fmt.Errorf("--external-data-over %d: must be a number of bytes, 0 or more", f.externalOver)
	}
	dtype, err := precision.DTypeOf(f.dtype)
	if err != nil {
		return err
	}
	f.safe.Strict = f.safe.Safe && f.strict
	if f.options, err = f.safe.Options(dtype, ""); err != nil {
		return err
	}
	if err := f.keep.check(); err != nil {
		return err
	}
	f.keep.narrow = f.options == nil // floats of 16 bits become float16 with --safe
	return cli.Writable(f.out)
}

var errNothingKept = cli.Failed(errors.New("no weight can stay as the checkpoint stores it, so nothing is written: " +
	"to load float weights, leave out --keep and --keep-quantized"))

func (f *weightsLoadFlags) load(a *cli.App, graph string) error {
	if err := f.check(graph); err != nil {
		return err
	}
	var entries weights.Map
	if f.mapFile != "" {
		var err error
		if entries, err = weights.ReadMap(f.mapFile); err != nil {
			return err
		}
	}
	m, err := a.Read(graph, onnx.AllowMissingData())
	if err != nil {
		return err
	}
	defer m.Close()
	c, err := checkpoint.Open(f.from...)
	if err != nil {
		return err
	}
	defer c.Close()
	p, err := weights.Match(m, c, weights.MatchOptions{Map: entries, Replace: f.replace})
	if err != nil {
		return err
	}
	var failure error
	var converted *convert.PrecisionReport
	var merged *products.MergeReport
	var safe *rewrite.Report
	switch {
	case f.strict && p.Missing() > 0:
		failure = cli.Failed(fmt.Errorf("%s missing, so nothing is written (--strict)", keysAre(p.Missing())))
	case f.dtype != "" && p.Missing() > 0:
		failure = cli.Failed(fmt.Errorf("%s missing, whose external data would be of another type than --dtype %s: "+
			"nothing is written", keysAre(p.Missing()), f.dtype))
	default:
		if f.dtype != "" {
			to := precision.DTypes[f.dtype]
			if f.options != nil {
				to = onnx.Float // until the weights are loaded
			}
			if converted, err = convert.Precision(m, to, f.providers...); err != nil {
				return fmt.Errorf("--dtype %s: %w", f.dtype, err)
			}
		}
		if err := f.keep.keep(a, m, p); err != nil {
			return err
		}
		if f.keep.pattern != "" && p.Kept() == 0 {
			failure = errNothingKept
		} else if merged, safe, err = f.write(a, m, p); err != nil {
			return err
		}
	}
	r := p.Report()
	r.Graph, r.Map, r.DType = graph, f.mapFile, f.dtype
	if failure == nil {
		r.Output, r.Written = f.out, true
	}
	if safe != nil {
		r.Safe = safe.Safe
		for i, k := range r.Keys {
			if t := f.converted[k.Name]; t != nil && !k.Quantized {
				r.Bytes += t.Size() - t.Len()*int64(onnx.Float.Bits()/8)
				r.Keys[i].DataType = t.DataType.String()
			}
		}
	}
	if err := a.Result(r); err != nil {
		return err
	}
	writeLoadReport(a, m, r, f.keep.kernelsLib)
	if merged != nil && merged.Merged > 0 {
		a.Say("products: %s", merged.Text())
	}
	if safe != nil {
		fmt.Fprintf(a.Human(), "%s\n%s", safe.DType.Text(), safe.Safe.Text())
	} else if converted != nil && converted.Initializers > 0 {
		a.Say("converted to %s: %s and %s more, %d nodes in float32 behind %s", f.dtype, cli.Counted(len(r.Keys),
			"key"),
			cli.Counted(max(converted.Initializers-len(r.Keys), 0), "constant"), sum(converted.Float32),
			cli.Counted(converted.Casts, "cast"))
		for _, x := range converted.OutOfRange {
			a.Detail("%s of %s, up to %g, became the greatest number of %s", cli.Counted(int(x.Elements), "element"),
				x.Name, x.Largest, f.dtype)
		}
	}
	if failure == nil {
		a.Say("wrote %s: %s, %s", f.out, cli.Counted(len(r.Keys), "tensor"), english.Bytes(r.Bytes))
	}
	return failure
}

// write writes the model with its weights. Without --safe, safe is nil.
func (f *weightsLoadFlags) write(a *cli.App, m *onnx.Model, p *weights.Plan) (merged *products.MergeReport,
	safe *rewrite.Report, err error) {
	step, end := a.Progress("writing tensor")
	defer end()
	if err := p.Apply(step); err != nil {
		return nil, nil, err
	}
	if f.keep.pattern != "" && f.keep.merge {
		if merged, err = precision.MergeProducts(m); err != nil {
			return nil, nil, err
		}
	}
	if f.options == nil {
		return merged, nil, onnx.Write(f.out, m, onnx.ExternalDataOver(f.externalOver))
	}
	err = precision.Through(a, m, f.out, func(m *onnx.Model) error {
		if safe, err = f.safe.Convert(m, precision.DTypes[f.dtype], f.options); err != nil {
			return err
		}
		f.converted = map[string]*onnx.Tensor{}
		for _, v := range m.Graph.Initializers() {
			f.converted[v.Name] = v.Const
		}
		return onnx.Write(f.out, m, onnx.ExternalDataOver(f.externalOver))
	})
	return merged, safe, err
}

func sum(counts map[string]int) (n int) {
	for _, c := range counts {
		n += c
	}
	return n
}

func keysAre(n int) string {
	if n == 1 {
		return "1 key is"
	}
	return fmt.Sprintf("%d keys are", n)
}

// New returns the command weights.
func New(a *cli.App) *cobra.Command {
	c := &cobra.Command{
		Use:   "weights",
		Short: "Load weights into a graph, remove them, or list tensors",
		Long: `A graph without weights has initializers whose external data are missing. weights load fills them
from GGUF or safetensors files, weights strip makes such a graph, and weights show lists the tensors
of a model or a checkpoint. docs/weights.md shows all three on a model.`,
		Example: `  mojo-patch weights load graph.onnx --from model.gguf -o model.onnx
  mojo-patch weights strip model.onnx -o graph.onnx
  mojo-patch weights show model.gguf`,
		RunE: cli.Group,
	}
	c.AddCommand(newWeightsLoad(a), newWeightsStrip(a), newWeightsShow(a))
	return c
}
