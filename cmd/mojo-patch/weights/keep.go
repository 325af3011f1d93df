package weights

import (
	"cmp"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/mojo-patch/mojo-patch/cmd/mojo-patch/cli"
	"github.com/mojo-patch/mojo-patch/cmd/mojo-patch/precision"
	"github.com/mojo-patch/mojo-patch/cmd/mojo-patch/prober"
	"github.com/mojo-patch/mojo-patch/cmd/mojo-patch/session"
	"github.com/mojo-patch/mojo-patch/internal/english"
	"github.com/mojo-patch/mojo-patch/llm/weights"
	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/rewrite"
	"github.com/spf13/cobra"
)

// keepFlags select the weights that stay in the checkpoint's format.
type keepFlags struct {
	pattern     string // of --keep-quantized, or --keep
	all         string
	activations string
	merge       bool
	narrow      bool // --keep also keeps floats of 16 bits
	onnxruntime string
	kernelsLib  string
}

func (f *keepFlags) flags(c *cobra.Command) {
	fl := c.Flags()
	fl.StringVar(&f.pattern, "keep-quantized", "",
		"keep quantized weights: all, or those whose key or tensor matches this regular expression")
	fl.Lookup("keep-quantized").NoOptDefVal = "."
	fl.StringVar(&f.all, "keep", "",
		"keep weights as the checkpoint stores them, quantized or in 16 bits: all, or those whose key or tensor "+
			"matches this regular expression")
	fl.Lookup("keep").NoOptDefVal = "."
	fl.StringVar(&f.activations, "activations", "",
		"type that products round activations to, in blocks of 32: int16 "+
			"(default: same tokens), int8 (faster, but other tokens) or float; for FP8 weights: float, or "+
			"fp8 in blocks of 128")
	fl.BoolVar(&f.merge, "merge-products", true,
		"merge products of one value, such as q, k and v, into one as the model is "+
			"written")
	cli.Rules(c, "activations merge-products requires keep keep-quantized",
		"keep excludes keep-quantized: --keep includes --keep-quantized and also keeps floats of 16 bits")
	session.LibraryFlags(c, &f.onnxruntime, &f.kernelsLib)
	cli.CompleteValues(c, "activations", func() []string { return precision.ActivationKinds }, false)
}

func (f *keepFlags) check() error {
	flag := "--keep-quantized"
	if f.all != "" {
		f.pattern, flag = f.all, "--keep"
	}
	if f.activations != "" && !slices.Contains(precision.ActivationKinds, f.activations) {
		return fmt.Errorf("--activations %s: choose %s", f.activations, strings.Join(precision.ActivationKinds, ", "))
	}
	if _, err := regexp.Compile(f.pattern); err != nil {
		return fmt.Errorf("%s: %w", flag, err)
	}
	return nil
}

// keep makes the model read quantized weights as stored, if the flags say so. The check runs the kernels if they and
// onnxruntime are found.
func (f *keepFlags) keep(a *cli.App, m *onnx.Model, p *weights.Plan) error {
	if f.pattern == "" {
		return nil
	}
	checks := rewrite.Request{Version: cli.Version(), Library: f.kernelsLib}
	kernels, err := prober.New(f.onnxruntime, f.kernelsLib, session.ProviderCPU)
	switch {
	case errors.Is(err, prober.ErrBrokenKernels):
		return cli.Environment(err)
	case err != nil:
		a.Detail("the check does not run the kernels: %s (run mojo-patch doctor for details)", cli.FirstLine(err))
	default:
		defer kernels.Close()
		checks.KernelCheck = kernels.Run
	}
	o := f.options()
	o.Rewrite = checks
	return p.KeepQuantized(m, o)
}

func (f *keepFlags) options() weights.KeepOptions {
	names := regexp.MustCompile(f.pattern)
	return weights.KeepOptions{Activations: f.activations, Halves: f.all != "" && f.narrow,
		Keep: func(key, tensor string) bool { return names.MatchString(key) || names.MatchString(tensor) }}
}

// writeQuantized reports which weights stayed quantized, and which did not.
func writeQuantized(a *cli.App, m *onnx.Model, r *weights.Report, kernelsLib string) {
	if r.Check == nil {
		return
	}
	w := a.Human()
	t := cli.NewTable("quantized", ">matrices", ">bits a weight", ">in the file", ">in the model", ">as float32")
	for _, q := range r.Quantized {
		t.Add(q.Format, q.Matrices, fmt.Sprintf("%.2f", q.Bits), english.Bytes(q.File), english.Bytes(q.Bytes),
			english.Bytes(q.Float))
	}
	if len(r.Quantized) > 0 {
		t.Write(w)
		fmt.Fprintf(w, "products with %s activations; checked %s of site: worst difference %.3g of the greatest "+
			"magnitude, structure %.3g%s\n", r.Check.Activations, cli.Counted(r.Check.Kinds, "kind"),
			r.Check.Definition,
			r.Check.Structural, kernelFigure(r.Check))
	}
	for why, list := range cli.Grouped(r.Widened, func(k weights.WidenedKey) string { return k.Reason }) {
		var names []string
		var size int64
		refused := ""
		for _, k := range list {
			names, size = append(names, k.Name), size+k.Bytes
			if k.Refused {
				refused = "warning: becomes float, "
			}
		}
		fmt.Fprintf(w, "%s%s: %s (%s), %s\n", cmp.Or(refused, "stays float, "), why, cli.Counted(len(names), "key"),
			a.Names(names), english.Bytes(size))
	}
	session.SayWidened(a, m, kernelsLib)
}

func kernelFigure(c *weights.QuantizedCheck) string {
	if c.Kernels == 0 {
		return "; no kernel was run"
	}
	return fmt.Sprintf(", kernel %.3g", c.Kernel)
}
