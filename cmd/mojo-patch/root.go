package main

import (
	"io"

	"github.com/mojo-patch/mojo-patch/cmd/mojo-patch/apply"
	"github.com/mojo-patch/mojo-patch/cmd/mojo-patch/audit"
	"github.com/mojo-patch/mojo-patch/cmd/mojo-patch/bench"
	"github.com/mojo-patch/mojo-patch/cmd/mojo-patch/bisect"
	"github.com/mojo-patch/mojo-patch/cmd/mojo-patch/cli"
	"github.com/mojo-patch/mojo-patch/cmd/mojo-patch/completion"
	"github.com/mojo-patch/mojo-patch/cmd/mojo-patch/diff"
	"github.com/mojo-patch/mojo-patch/cmd/mojo-patch/docs"
	"github.com/mojo-patch/mojo-patch/cmd/mojo-patch/doctor"
	"github.com/mojo-patch/mojo-patch/cmd/mojo-patch/export"
	"github.com/mojo-patch/mojo-patch/cmd/mojo-patch/extract"
	"github.com/mojo-patch/mojo-patch/cmd/mojo-patch/generate"
	"github.com/mojo-patch/mojo-patch/cmd/mojo-patch/golden"
	"github.com/mojo-patch/mojo-patch/cmd/mojo-patch/inspect"
	"github.com/mojo-patch/mojo-patch/cmd/mojo-patch/kernels"
	"github.com/mojo-patch/mojo-patch/cmd/mojo-patch/match"
	"github.com/mojo-patch/mojo-patch/cmd/mojo-patch/quantize"
	"github.com/mojo-patch/mojo-patch/cmd/mojo-patch/revert"
	"github.com/mojo-patch/mojo-patch/cmd/mojo-patch/run"
	"github.com/mojo-patch/mojo-patch/cmd/mojo-patch/shard"
	"github.com/mojo-patch/mojo-patch/cmd/mojo-patch/tokenize"
	"github.com/mojo-patch/mojo-patch/cmd/mojo-patch/tune"
	versioning "github.com/mojo-patch/mojo-patch/cmd/mojo-patch/version"
	"github.com/mojo-patch/mojo-patch/cmd/mojo-patch/weights"
	"github.com/spf13/cobra"
)

func newRoot(a *cli.App) *cobra.Command {
	root := &cobra.Command{
		Use:   "mojo-patch",
		Short: "Fuse norms, gated units, rotary embeddings and mixtures of experts in ONNX language models",
		Long: `mojo-patch finds norms, gated units, rotary embeddings and mixtures of experts in exported ONNX
language models, checks each by evaluating it, and rewrites it into one fused op. The patched model
carries the definition of every fused op as a model-local function: any ONNX runtime runs it, and
onnxruntime with libmojo_ops runs the kernels. Devices and their kernels: mojo-patch kernels --help.

Exit codes: 0 done; 1 a comparison or check failed, or a model could not be run; 2 wrong arguments,
or a file that cannot be read or written; 3 nothing was fused, under --require, or bisect found no
culprit; 4 onnxruntime, the kernel library or the kernels of a device are missing.`,
		Example: `  mojo-patch inspect model.onnx
  mojo-patch match model.onnx
  mojo-patch apply model.onnx -o patched.onnx
  mojo-patch diff model.onnx patched.onnx`,
		SilenceUsage:      true,
		SilenceErrors:     true,
		DisableAutoGenTag: true,
		CompletionOptions: cobra.CompletionOptions{DisableDefaultCmd: true},
		Version:           cli.Version(),
		PersistentPreRunE: cli.CheckCommandLine,
	}
	root.SetFlagErrorFunc(cli.UnknownFlag)
	root.SetHelpFunc(cli.Help)
	root.SetUsageFunc(cli.Usage)
	root.CompletionOptions.SetDefaultShellCompDirective(cobra.ShellCompDirectiveNoFileComp)
	root.SetVersionTemplate("mojo-patch {{.Version}}\n")
	flags := root.PersistentFlags()
	flags.BoolVarP(&a.Verbose, "verbose", "v", false, "print more: every site, every op")
	flags.BoolVarP(&a.Quiet, "quiet", "q", false, "print only errors on stderr")
	flags.BoolVar(&a.AllowLinks, "allow-links", false,
		"follow symbolic links to external data, as in caches of model hubs")
	flags.BoolVar(&a.Lines, "progress-lines", false, "write progress to stderr in machine-readable lines")
	flags.MarkHidden("progress-lines")
	root.AddCommand(inspect.New(a), match.New(a), apply.New(a), revert.New(a), audit.New(a), run.New(a),
		generate.New(a), diff.New(a), bisect.New(a), extract.New(a), bench.New(a), golden.New(a), weights.New(a),
		quantize.New(a), shard.New(a), export.New(a), tune.New(a), kernels.New(a), doctor.New(a), tokenize.New(a),
		completion.New(a), versioning.New(a), docs.New(a))
	return root
}

// execute executes one command line and returns the exit code.
func execute(args []string, out, err io.Writer) int { return cli.Execute(newRoot, args, out, err) }
