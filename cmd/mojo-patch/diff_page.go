package main

import (
	"errors"
	"fmt"

	"github.com/mojo-patch/mojo-patch/internal/atomicfile"
	"github.com/mojo-patch/mojo-patch/page"
	"github.com/spf13/cobra"
)

// pageFlag is --html of diff, or "".
type pageFlag struct{ html string }

func (f *pageFlag) flags(c *cobra.Command) {
	c.Flags().StringVar(&f.html, "html", "",
		"also write the comparison as one page: first difference, worst values, routers (implies --layers)")
	completeFile(c, "html", "html")
}

// check returns an error if the page cannot be written or would overwrite a model. The page covers one comparison.
func (f *pageFlag) check(models []string, recorded bool) error {
	if f.html == "" {
		return nil
	}
	if recorded && len(models) > 1 {
		return errors.New("--html reports on one compared model: name only one")
	}
	for _, path := range models {
		if same(path, f.html) {
			return fmt.Errorf("--html %s is the model: choose another file", f.html)
		}
	}
	if err := writable(f.html); err != nil {
		return fmt.Errorf("--html: %w", err)
	}
	return nil
}

// write writes the page about one comparison.
func (f *pageFlag) write(a *app, all []comparison, most int64) error {
	if f.html == "" {
		return nil
	}
	r := all[0]
	p := &page.Diff{Tool: toolVersion(), Model: r.Model, Against: r.Against, Backend: r.Backend, Passed: r.Passed,
		Verdict: "FAILED", MaxMemory: most}
	if r.Passed {
		p.Verdict = r.verdict()
	}
	for _, c := range r.Cases {
		for _, s := range c.Outputs {
			p.Outputs = append(p.Outputs, page.Output{Case: c.Case, Stats: s})
		}
		if c.Error != "" {
			p.Problems = append(p.Problems, fmt.Sprintf("case %d: %s", c.Case, c.Error))
		}
	}
	if r.Layers != nil {
		p.Inside, p.Runners = r.Layers.Values, r.Layers.Backends
	}
	for _, s := range r.Sensitivity {
		p.Moved = append(p.Moved, page.Moved{Case: s.Case, Output: s.Output, Other: s.Other.String(),
			Itself: s.Nudged.String(), Within: s.Within, Passed: s.Passed})
	}
	if err := atomicfile.WriteFile(f.html, p.Write); err != nil {
		return err
	}
	a.say("wrote %s: open it in a browser", f.html)
	return nil
}
