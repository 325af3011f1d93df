package planning

import (
	"errors"
	"fmt"
	"io"

	"github.com/mojo-patch/mojo-patch/cmd/mojo-patch/cli"
	"github.com/mojo-patch/mojo-patch/internal/atomicfile"
	"github.com/mojo-patch/mojo-patch/patterns"
	"github.com/mojo-patch/mojo-patch/rewrite"
	"github.com/spf13/cobra"
)

// learnFlag is --learn: the file for patterns of blocks that no pattern matched.
type learnFlag struct{ path string }

// AddTo adds the flag to a command.
func (f *learnFlag) AddTo(c *cobra.Command) {
	c.Flags().StringVar(&f.path, "learn", "",
		"write a pattern to this file for each spelling that no pattern matched but that was fitted to an op, for "+
			"--patterns (see docs/patterns.md)")
	cli.CompleteFile(c, "learn", "pat")
}

// Check returns an error if the file cannot be written or is another file of the command.
func (f *learnFlag) Check(c *cobra.Command, model, out, html string, loaded []string) error {
	if f.path == "" {
		if c.Flags().Changed("learn") {
			return errors.New("the path after --learn is empty")
		}
		return nil
	}
	for _, other := range []string{model, out, html} {
		if other != "" && cli.Same(other, f.path) {
			return fmt.Errorf("--learn %s is the model or the page: choose another file", f.path)
		}
	}
	files, err := patterns.Files(loaded...)
	if err != nil {
		return fmt.Errorf("--patterns: %w", err)
	}
	for _, file := range files {
		if cli.Same(file, f.path) {
			return fmt.Errorf("--learn %s is also a file of --patterns and would be overwritten: choose another file",
				f.path)
		}
	}
	if err := cli.Writable(f.path); err != nil {
		return fmt.Errorf("--learn: %w", err)
	}
	return nil
}

// Prepare writes the learned patterns to a temporary file.
func (f *learnFlag) Prepare(r *rewrite.LearnReport) (*atomicfile.Prepared, error) {
	if f.path == "" || r == nil {
		return nil, nil
	}
	p, err := atomicfile.Prepare(f.path, func(w io.Writer) error {
		_, err := io.WriteString(w, r.Text)
		return err
	})
	if err != nil {
		err = fmt.Errorf("cannot write the learned patterns: %w", err)
	}
	return p, err
}

// Say reports the file that was written.
func (f *learnFlag) Say(a *cli.App, r *rewrite.LearnReport) {
	if f.path != "" && r != nil {
		a.Say("wrote %s: %s", f.path, cli.Counted(len(r.Patterns), "pattern"))
	}
}
