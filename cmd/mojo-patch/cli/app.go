// Package cli is shared by all commands: the program with its streams, messages, tables, exit codes and interrupts,
// checks of arguments, completion of flags, and files that appear together.
package cli

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/mojo-patch/mojo-patch/internal/progress"
	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/ort"
	"github.com/mojo-patch/mojo-patch/reference/infer"
	"github.com/spf13/cobra"
	"golang.org/x/term"
)

// JSONSchema is the version of the commands' JSON, which docs/schemas describes; reports of packages have other
// versions. Added fields keep the version; a removed field or a changed meaning raises it.
const JSONSchema = 1

// App holds the state that all commands share: the outputs and their verbosity.
type App struct {
	Out, Err io.Writer // results, and messages for people
	Verbose  bool      // --verbose
	Quiet    bool      // --quiet
	JSON     bool      // --json
	// Lines prints each progress step on a new line, for a parent program.
	Lines bool
	// Rank is the rank of this process among Ranks if it runs a sharded model. Only rank 0 prints.
	Rank, Ranks int
	// AllowLinks permits external data behind symbolic links.
	AllowLinks bool
}

// OwnName begins the line of every error.
const OwnName = "mojo-patch:"

// Execute runs one command line of the program that root makes, and returns the exit code.
func Execute(root func(*App) *cobra.Command, args []string, out, err io.Writer) int {
	err = shown{err}
	if isTerminal(out) {
		out = shown{out}
	}
	results := &results{Writer: out}
	a := &App{Out: results, Err: err}
	c := root(a)
	c.SetArgs(args)
	c.SetOut(results)
	c.SetErr(err)
	e := guarded(c.Execute)
	if results.err != nil && (e == nil || errors.Is(e, results.err)) {
		e = fmt.Errorf("cannot write the result: %w", results.err)
	}
	code := ExitCode(e)
	if a.Ranks > 0 {
		e = a.ofRank(e)
	}
	if e != nil && e.Error() != "" {
		fmt.Fprintln(err, a.Paint(err, Red, OwnName), e)
		endJob(code)
	}
	return code
}

// endJob asks the launcher of MPICH to end all processes that it started with this one. Other launchers do so if one
// fails, but MPICH's only after MPI_Init: before that, the others would wait for this process.
func endJob(code int) {
	fd, err := strconv.Atoi(os.Getenv("PMI_FD"))
	if err != nil || fd < 3 {
		return
	}
	launcher := os.NewFile(uintptr(fd), "PMI_FD")
	if info, err := launcher.Stat(); err != nil || info.Mode()&os.ModeSocket == 0 {
		return
	}
	time.Sleep(300 * time.Millisecond) // the others may be about to print errors
	fmt.Fprintf(launcher, "cmd=abort exitcode=%d\n", code)
}

// ofRank names the rank in an error, and ends the communication with the other ranks, unless an error interrupted it:
// then they notice that this process has ended.
func (a *App) ofRank(e error) error {
	if e != nil && e.Error() != "" {
		ort.LeaveCollectives()
		return fmt.Errorf("rank %d of %d: %w", a.Rank, a.Ranks, e)
	}
	ort.EndCollectives()
	if e != nil && a.Rank > 0 {
		return fmt.Errorf("rank %d of %d: outputs of this rank are out of tolerance", a.Rank, a.Ranks)
	}
	return e
}

// results is stdout. It remembers write errors: a list that a full disk cut off must not look like success.
type results struct {
	io.Writer
	err error
}

// Write implements io.Writer.
func (r *results) Write(b []byte) (int, error) {
	n, err := r.Writer.Write(b)
	if r.err == nil {
		r.err = err
	}
	return n, err
}

// SchemasOf is the annotation of a command with the schemas of its JSON: names of files in docs/schemas.
const SchemasOf = "schemas"

// JSONFlag adds --json to a command, whose JSON has one of the schemas.
func (a *App) JSONFlag(c *cobra.Command, schemas ...string) {
	c.Flags().BoolVar(&a.JSON, "json", false, "print the result as JSON on stdout")
	if c.Annotations == nil {
		c.Annotations = map[string]string{}
	}
	c.Annotations[SchemasOf] = strings.Join(schemas, " ")
}

// Say prints a message to stderr, unless --quiet.
func (a *App) Say(format string, args ...any) {
	if !a.Quiet {
		fmt.Fprintf(a.Err, format+"\n", args...)
	}
}

// Detail prints a message under --verbose.
func (a *App) Detail(format string, args ...any) {
	if a.Verbose {
		a.Say(format, args...)
	}
}

// Human returns the writer of reports for people: stderr, or none under --quiet.
func (a *App) Human() io.Writer {
	if a.Quiet {
		return io.Discard
	}
	return a.Err
}

// Result prints v to stdout under --json.
func (a *App) Result(v any) error {
	if !a.JSON {
		return nil
	}
	return a.PrintJSON(v)
}

// PrintJSON prints v to stdout.
func (a *App) PrintJSON(v any) error {
	e := json.NewEncoder(a.Out)
	e.SetIndent("", "  ")
	e.SetEscapeHTML(false)
	return e.Encode(v)
}

// The colors in use, as ANSI codes.
const (
	Red   = "31"
	Green = "32"
	Plain = "0"
)

// Paint colors text for a terminal, unless NO_COLOR is set.
func (a *App) Paint(w io.Writer, colour, text string) string {
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

// Progress returns a function that shows the progress of a long job, and one that clears it.
func (a *App) Progress(what string) (step func(done, total int), end func()) {
	if a.Lines {
		return func(done, total int) { fmt.Fprintf(a.Err, "progress %d %d %s\n", done, total, what) }, func() {}
	}
	if a.Quiet || !isTerminal(a.Err) {
		return func(int, int) {}, func() {}
	}
	bar := progress.New(raw(a.Err), what)
	return bar.Set, bar.Clear
}

// Read reads a model with the options of the flags.
func (a *App) Read(path string, options ...onnx.ReadOption) (*onnx.Model, error) {
	if a.AllowLinks {
		options = append(options, onnx.AllowLinks())
	}
	m, err := onnx.Read(path, options...)
	if err == nil {
		infer.DeclareFixed(m)
	}
	return m, err
}

// Verdict returns text, or FAILED, in color.
func (a *App) Verdict(passed bool, text string) string {
	if passed {
		return a.Paint(a.Err, Green, text)
	}
	return a.Paint(a.Err, Red, "FAILED")
}

// Milliseconds returns the time since start in milliseconds.
func Milliseconds(start time.Time) float64 { return float64(time.Since(start).Microseconds()) / 1000 }
