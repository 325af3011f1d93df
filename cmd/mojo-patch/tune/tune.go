// Package tune is the command tune.
package tune

import (
	"errors"
	"fmt"
	"os/exec"
	"slices"
	"strconv"
	"strings"

	"github.com/mojo-patch/mojo-patch/cmd/mojo-patch/cli"
	"github.com/mojo-patch/mojo-patch/cmd/mojo-patch/prober"
	"github.com/mojo-patch/mojo-patch/cmd/mojo-patch/session"
	"github.com/mojo-patch/mojo-patch/ort"
	"github.com/mojo-patch/mojo-patch/tune"
	"github.com/spf13/cobra"
)

type options struct {
	out, node, layout    string
	shape                tune.Shape
	tokens               []int64
	onnxruntime, library string
}

// New returns the command tune.
func New(a *cli.App) *cobra.Command {
	f := &options{}
	c := &cobra.Command{
		Use:   "tune [MODEL] -o TABLE",
		Short: "Measure the fastest configuration of the CUDA kernels for experts",
		Long: `tune measures every configuration of the CUDA kernels of mojo.MoE and mojo.QMoE for a model's experts
(kernel, tile size, blocks that share a tile) with each of several numbers of tokens, on the local GPU,
and writes the fastest to a table in JSON, keyed by the number of tokens. The model must be patched by
apply; it needs no weights, since tune uses random ones. Without a model, --experts, --top-k, --hidden,
--inner and --format describe the experts.

The kernel library reads the tables that $` + tune.Variable + ` names when a session is opened, separated by
colons, and uses the entry with the nearest number of tokens. It also reads tables of Alpha-MoE.
Tables for Qwen3-30B-A3B, DeepSeek-V3, gpt-oss-20b and Mixtral-8x7B are part of the library. A table
changes results only by the order in which sums are added: tune compares each configuration with the
library's default before it times it.

Each configuration runs as a CUDA graph of several nodes that choose different experts, so that weights
come from the device's memory. All configurations run in turn in each round, and the median of the
rounds counts. The CPU's kernels use no tables. Without CUDA the exit code is 4.`,
		Example: `  mojo-patch tune patched.onnx -o table.json
  mojo-patch tune --experts 128 --top-k 8 --hidden 2048 --inner 768 --format bfloat16 -o table.json
  ` + tune.Variable + `=table.json mojo-patch generate patched.onnx --provider cuda --prompt 'Hello'`,
		Args:              cobra.MaximumNArgs(1),
		ValidArgsFunction: cli.CompleteModels(1),
		RunE: func(c *cobra.Command, args []string) error {
			experts, err := f.experts(a, c, args)
			if err != nil {
				return err
			}
			return f.tune(a, experts)
		},
	}
	fl := c.Flags()
	fl.StringVarP(&f.out, "output", "o", "", "table to write")
	fl.StringVar(&f.node, "node", "", "the node whose experts to measure, if the model has several shapes")
	fl.Int64Var(&f.shape.Experts, "experts", 0, "without a model: the number of experts")
	fl.Int64Var(&f.shape.TopK, "top-k", 0, "without a model: the number of experts per token")
	fl.Int64Var(&f.shape.Hidden, "hidden", 0, "without a model: the hidden size")
	fl.Int64Var(&f.shape.Inner, "inner", 0, "without a model: the inner size of an expert")
	fl.StringVar(&f.shape.Format, "format", "", "without a model: "+strings.Join(tune.Formats(), ", "))
	fl.StringVar(&f.layout, "layout", "out_in",
		"without a model: the layout of matrices that are not quantized, out_in or in_out")
	fl.Int64SliceVar(&f.tokens, "tokens", tune.DefaultTokens(), "numbers of tokens to measure")
	session.LibraryFlags(c, &f.onnxruntime, &f.library)
	cli.CompleteFile(c, "output", "json")
	cli.CompleteValues(c, "format", tune.Formats, false)
	cli.CompleteValues(c, "layout", func() []string { return []string{"out_in", "in_out"} }, false)
	a.JSONFlag(c, "tune")
	return c
}

// experts returns the experts to measure.
func (f *options) experts(a *cli.App, c *cobra.Command, args []string) (*tune.Experts, error) {
	if f.out == "" {
		return nil, errors.New("-o TABLE is missing")
	}
	if len(f.tokens) == 0 || slices.Min(f.tokens) < 1 || slices.Max(f.tokens) > 1<<20 {
		return nil, errors.New("--tokens must list whole numbers from 1 to 1048576")
	}
	var given []string
	for _, name := range []string{"experts", "top-k", "hidden", "inner", "format", "layout"} {
		if c.Flags().Changed(name) {
			given = append(given, "--"+name)
		}
	}
	if len(args) == 0 {
		if f.node != "" {
			return nil, errors.New("--node requires a model")
		}
		if len(given) == 0 {
			return nil, errors.New("name a model, or describe the experts with --experts, --top-k, --hidden, --inner " +
				"and --format")
		}
		if f.layout != "out_in" && f.layout != "in_out" {
			return nil, fmt.Errorf("--layout %s: must be out_in or in_out", f.layout)
		}
		if f.layout == "in_out" {
			f.shape.Layout = f.layout
		}
		return tune.New(f.shape)
	}
	if len(given) > 0 {
		return nil, fmt.Errorf("%s: the experts come from %s, so these flags cannot be combined with "+
			"it", strings.Join(given, ", "), args[0])
	}
	m, err := a.Read(args[0])
	if err != nil {
		return nil, err
	}
	defer m.Close()
	list, others := tune.Find(m)
	for _, o := range others {
		a.Detail("%s", o)
	}
	if f.node != "" {
		list = slices.DeleteFunc(list, func(e *tune.Experts) bool { return e.Node != f.node })
	}
	switch {
	case len(list) == 1:
		return list[0], nil
	case len(list) > 1:
		var names []string
		for _, e := range list {
			names = append(names, fmt.Sprintf("%s (%s)", e.Node, e.Shape))
		}
		return nil, fmt.Errorf("%s has experts of several shapes: choose one with --node: %s", args[0],
			strings.Join(names, "; "))
	case len(others) > 0:
		return nil, fmt.Errorf("%s has no experts that tables support: %s", args[0], strings.Join(others, "; "))
	}
	return nil, fmt.Errorf("%s has no node mojo.MoE or mojo.QMoE%s: patch the model first with mojo-patch "+
		"apply", args[0], named(f.node))
}

// named adds a node's name to a message.
func named(node string) string {
	if node == "" {
		return ""
	}
	return fmt.Sprintf(" named %q", node)
}

// tune measures the experts and writes the table.
func (f *options) tune(a *cli.App, e *tune.Experts) (err error) {
	options, err := f.options()
	if err != nil {
		return cli.Environment(fmt.Errorf("tune measures CUDA kernels, but cannot run CUDA kernels here (the CPU's "+
			"kernels use no tables): %w", err))
	}
	e.Shape.Device, e.Shape.Capability = cudaDevice()
	a.Say("%s on %s", e.Shape, e.Shape.Device)
	sessions, err := tune.NewSessions(e, options...)
	if err != nil {
		return cli.Failed(err)
	}
	defer func() { err = errors.Join(err, sessions.Close()) }()
	step, end := a.Progress("number of tokens")
	var all []tune.Measured
	table, err := tune.Search(e.Shape, f.tokens, sessions, func(m tune.Measured) {
		all = append(all, m)
		step(len(all), len(f.tokens))
	})
	end()
	if err != nil {
		return cli.Failed(err)
	}
	if err := table.WriteFile(f.out); err != nil {
		return err
	}
	t := cli.NewTable(">tokens", "fastest", ">us", ">library's own", ">ratio", ">tried")
	for _, m := range all {
		t.Add(m.Tokens, m.Best.Config.String(), fmt.Sprintf("%.1f", m.Best.Micros), fmt.Sprintf("%.1f", m.Chosen),
			fmt.Sprintf("%.2f", m.Best.Micros/m.Chosen), m.Tried)
	}
	t.Write(a.Human())
	a.Say("wrote %s: to use it, set %s to its path", f.out, tune.Variable)
	return a.Result(Result{cli.JSONSchema, e.Shape, f.out, all})
}

// options returns the options of a session that records CUDA graphs, or an error if a GPU or a library is missing.
func (f *options) options() ([]ort.Option, error) {
	p, err := prober.New(f.onnxruntime, f.library, session.ProviderCUDA)
	if err != nil {
		return nil, err
	}
	if err := p.Close(); err != nil {
		return nil, err
	}
	lib, err := ort.Find(f.onnxruntime)
	if err != nil {
		return nil, err
	}
	kernels, err := session.KernelDevices[session.ProviderCUDA].FindLibrary(f.library)
	if err != nil {
		return nil, err
	}
	return []ort.Option{ort.WithThreads(1), session.CUDAOption(map[string]string{"enable_cuda_graph": "1"}),
		ort.WithConfig("session.disable_cpu_ep_fallback", "1"), ort.WithLibrary(lib.Path),
		ort.WithKernelLibrary(kernels)}, nil
}

// cudaDevice returns the name and compute capability of the first GPU, from nvidia-smi. Without it, the table is for
// any device.
func cudaDevice() (name string, capability int) {
	out, err := exec.Command("nvidia-smi", "--query-gpu=name,compute_cap", "--format=csv,noheader", "-i", "0").Output()
	if err != nil {
		return "a GPU", 0
	}
	name, version, _ := strings.Cut(strings.TrimSpace(string(out)), ", ")
	capability, _ = strconv.Atoi(strings.Replace(version, ".", "", 1))
	return name, capability
}

// Result is the result of tune.
type Result struct {
	Schema   int             `json:"schema"`
	Shape    tune.Shape      `json:"shape"`
	Output   string          `json:"output"`
	Measured []tune.Measured `json:"measured"`
}
