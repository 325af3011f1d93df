package planning

import (
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/mojo-patch/mojo-patch/cmd/mojo-patch/cli"
	"github.com/mojo-patch/mojo-patch/internal/atomicfile"
	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/rewrite"
	"github.com/spf13/cobra"
)

// Match plans and reports, for match and for apply --dry-run. If keep is not nil, it writes the plan to a temporary
// file.
func (f *PlanFlags) Match(a *cli.App, c *cobra.Command, path string,
	keep func(*rewrite.PlanFile) (*atomicfile.Prepared, error)) error {
	if f.HTML != "" && cli.Same(path, f.HTML) {
		return fmt.Errorf("--html %s is the model: choose another file", f.HTML)
	}
	var found *rewrite.Plan
	p, m, r, err := f.Find(a, c, path, func(p *Plan, m *onnx.Model) (*rewrite.Report, error) {
		var err error
		if found, err = p.Plan(m); err != nil {
			return nil, err
		}
		p.Draw(found)
		return found.Report, nil
	})
	if err != nil {
		return err
	}
	defer p.End()
	defer m.Close()
	var files cli.Outputs
	defer files.Discard()
	if keep != nil {
		if err := files.Add(keep(found.PlanFile())); err != nil {
			return err
		}
	}
	if err := files.Add(f.Learn.Prepare(r.Learnt)); err != nil {
		return err
	}
	r.PeakRSSBytes = cli.PeakRSS()
	if err := a.Result(Reported(r)); err != nil {
		return err
	}
	WriteSites(a.Human(), r, a.Verbose)
	if err := r.WriteCounts(a.Human(), a.Verbose); err != nil {
		return err
	}
	if n := r.Missed(); n > 0 && !a.Verbose {
		a.Say("%s (use -v to list where and why)", Near(n))
	}
	if err := files.Add(p.previewPage(m, found)); err != nil {
		return errors.Join(p.Enough(r), err)
	}
	if err := atomicfile.Commit(files.Rename); err != nil {
		return errors.Join(p.Enough(r), err)
	}
	f.Learn.Say(a, r.Learnt)
	p.SayPage()
	return p.Enough(r)
}

// WriteSites lists the sites with their status, and near misses if requested.
func WriteSites(w io.Writer, r *rewrite.Report, misses bool) {
	t := cli.NewTable("pattern", "op", "node", "kernel", "device", "status", "reason")
	n := 0
	for _, s := range r.Sites {
		if s.Status == rewrite.Missed && !misses {
			continue
		}
		kernel := s.Kernel
		if len(s.Emits) > 0 {
			kernel += ": " + strings.Join(s.Emits, ", ")
		}
		t.Add(s.Pattern, s.Op, s.Node, kernel, s.Device, s.Status, s.Reason)
		n++
	}
	if n > 0 {
		t.Write(w)
	}
}

// Near counts near misses for people.
func Near(n int) string {
	if n == 1 {
		return "1 near miss"
	}
	return fmt.Sprintf("%d near misses", n)
}

// Reported returns the result for a report.
func Reported(r *rewrite.Report) ReportResult { return ReportResult{r, r.Blocks(), r.Refused()} }

// ReportResult is the result of apply and match.
type ReportResult struct {
	*rewrite.Report
	// sites that became one op, or would; a moved transposition (KeyTranspose) does not count
	Fused   int `json:"fused"`
	Refused int `json:"refused"` // sites that failed a check and stay as they are
}
