package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/mojo-patch/mojo-patch/internal/progress"
	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/reference/infer"
	"github.com/spf13/cobra"
	"golang.org/x/term"
)

// jsonSchema is the version of the commands' JSON, which docs/schemas describes; reports of packages have other
// versions. Added fields keep the version; a removed field or a changed meaning raises it.
const jsonSchema = 1

// app holds the state that all commands share: the outputs and their verbosity.
type app struct {
	out, err io.Writer // results, and messages for people
	verbose  bool
	quiet    bool
	json     bool
	// lines prints each progress step on a new line, for a parent program.
	lines bool
	// allowLinks permits external data behind symbolic links.
	allowLinks bool
}

// ownName begins the line of every error.
const ownName = "mojo-patch:"

// run executes one command line and returns the exit code.
func run(args []string, out, err io.Writer) int {
	err = shown{err}
	if isTerminal(out) {
		out = shown{out}
	}
	results := &results{Writer: out}
	a := &app{out: results, err: err}
	root := newRoot(a)
	root.SetArgs(args)
	root.SetOut(results)
	root.SetErr(err)
	e := guarded(root.Execute)
	if results.err != nil && (e == nil || errors.Is(e, results.err)) {
		e = fmt.Errorf("cannot write the result: %w", results.err)
	}
	if e != nil && e.Error() != "" {
		fmt.Fprintln(err, a.paint(err, red, ownName), e)
	}
	return exitCode(e)
}

// results is stdout. It remembers write errors: a list that a full disk cut off must not look like success.
type results struct {
	io.Writer
	err error
}

func (r *results) Write(b []byte) (int, error) {
	n, err := r.Writer.Write(b)
	if r.err == nil {
		r.err = err
	}
	return n, err
}

func newRoot(a *app) *cobra.Command {
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
		Version:           toolVersion(),
		PersistentPreRunE: noStdout,
	}
	root.SetFlagErrorFunc(unknownFlag)
	root.SetHelpFunc(help)
	root.SetUsageFunc(usage)
	root.CompletionOptions.SetDefaultShellCompDirective(cobra.ShellCompDirectiveNoFileComp)
	root.SetVersionTemplate("mojo-patch {{.Version}}\n")
	flags := root.PersistentFlags()
	flags.BoolVarP(&a.verbose, "verbose", "v", false, "print more: every site, every op")
	flags.BoolVarP(&a.quiet, "quiet", "q", false, "print only errors on stderr")
	flags.BoolVar(&a.allowLinks, "allow-links", false,
		"follow symbolic links to external data, as in caches of model hubs")
	flags.BoolVar(&a.lines, "progress-lines", false, "write progress to stderr in machine-readable lines")
	flags.MarkHidden("progress-lines")
	root.AddCommand(newInspect(a), newMatch(a), newApply(a), newRevert(a), newAudit(a), newRun(a), newGenerate(a),
		newDiff(a), newBisect(a), newExtract(a), newBench(a), newGolden(a), newWeights(a), newQuantize(a), newExport(a),
		newTune(a), newKernels(a), newDoctor(a), newTokenize(a), newCompletion(a), newVersion(a), newDocs(a))
	return root
}

// schemasOf is the annotation of a command with the schemas of its JSON: names of files in docs/schemas.
const schemasOf = "schemas"

func (a *app) jsonFlag(c *cobra.Command, schemas ...string) {
	c.Flags().BoolVar(&a.json, "json", false, "print the result as JSON on stdout")
	if c.Annotations == nil {
		c.Annotations = map[string]string{}
	}
	c.Annotations[schemasOf] = strings.Join(schemas, " ")
}

// say prints a message to stderr, unless --quiet.
func (a *app) say(format string, args ...any) {
	if !a.quiet {
		fmt.Fprintf(a.err, format+"\n", args...)
	}
}

// detail prints a message under --verbose.
func (a *app) detail(format string, args ...any) {
	if a.verbose {
		a.say(format, args...)
	}
}

// human returns the writer of reports for people: stderr, or none under --quiet.
func (a *app) human() io.Writer {
	if a.quiet {
		return io.Discard
	}
	return a.err
}

// result prints v to stdout under --json.
func (a *app) result(v any) error {
	if !a.json {
		return nil
	}
	return a.printJSON(v)
}

func (a *app) printJSON(v any) error {
	e := json.NewEncoder(a.out)
	e.SetIndent("", "  ")
	e.SetEscapeHTML(false)
	return e.Encode(v)
}

// The colors in use, as ANSI codes.
const (
	red   = "31"
	green = "32"
	plain = "0"
)

// paint colors text for a terminal, unless NO_COLOR is set.
func (a *app) paint(w io.Writer, colour, text string) string {
	if os.Getenv("NO_COLOR") != "" || os.Getenv("TERM") == "dumb" || !isTerminal(w) {
		return text
	}
	return "\x1b[" + colour + "m" + text + "\x1b[0m"
}

func isTerminal(w io.Writer) bool {
	if r, ok := w.(*results); ok {
		w = r.Writer
	}
	if s, ok := w.(shown); ok {
		w = s.Writer
	}
	f, ok := w.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

// raw returns the writer that does not escape control characters.
func raw(w io.Writer) io.Writer {
	if s, ok := w.(shown); ok {
		return s.Writer
	}
	return w
}

// progress returns a function that shows the progress of a long job, and one that clears it.
func (a *app) progress(what string) (step func(done, total int), end func()) {
	if a.lines {
		return func(done, total int) { fmt.Fprintf(a.err, "progress %d %d %s\n", done, total, what) }, func() {}
	}
	if a.quiet || !isTerminal(a.err) {
		return func(int, int) {}, func() {}
	}
	bar := progress.New(raw(a.err), what)
	return bar.Set, bar.Clear
}

// read reads a model with the options of the flags.
func (a *app) read(path string, options ...onnx.ReadOption) (*onnx.Model, error) {
	if a.allowLinks {
		options = append(options, onnx.AllowLinks())
	}
	m, err := onnx.Read(path, options...)
	if err == nil {
		infer.DeclareFixed(m)
	}
	return m, err
}
