package inspect

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/mojo-patch/mojo-patch/cmd/mojo-patch/cli"
	"github.com/mojo-patch/mojo-patch/cmd/mojo-patch/feeds"
	"github.com/mojo-patch/mojo-patch/golden"
	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/rewrite/dims"
	"github.com/spf13/cobra"
)

// allDims is the value of --dims without a list of dimensions.
const allDims = "all"

type dimsFlags struct {
	names       []string
	golden      string
	extendMasks bool
}

func (f *dimsFlags) flags(c *cobra.Command) {
	c.Flags().StringSliceVar(&f.names, "dims", nil,
		"list the constants computed from dimensions of the inputs: --dims=all, or --dims=NAME,… as apply --free "+
			"takes them")
	c.Flags().Lookup("dims").NoOptDefVal = allDims
	c.Flags().StringVar(&f.golden, "golden", "", "recorded cases, which decide between choices that the "+
		"model leaves open")
	c.Flags().BoolVar(&f.extendMasks, "extend-masks", false,
		"assume that masks folded into tables continue as they begin")
	cli.CompleteFile(c, "golden", "npz")
	cli.Rules(c, "golden extend-masks requires dims", "dims excludes why")
}

func (f *dimsFlags) asked() bool { return len(f.names) > 0 }

// DimsReport is the result of --dims, and its JSON form.
type DimsReport struct {
	Schema int    `json:"schema"`
	Path   string `json:"path"`
	dims.Report
}

func (f *dimsFlags) inspect(a *cli.App, path string) error {
	m, err := a.Read(path)
	if err != nil {
		return err
	}
	defer m.Close()
	list, err := f.list(m)
	if err != nil {
		return err
	}
	var cases []golden.Case
	if f.golden != "" {
		if cases, err = feeds.RecordedOf(f.golden, m, list); err != nil {
			return err
		}
	}
	found, err := dims.Inspect(m, list, dims.Options{Recorded: cases, ExtendMasks: f.extendMasks})
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	if a.JSON {
		return a.PrintJSON(DimsReport{Schema: 1, Path: path, Report: *found})
	}
	writeDims(a.Human(), found, a.Verbose)
	return nil
}

func (f *dimsFlags) list(m *onnx.Model) ([]*dims.Dim, error) {
	if slices.Equal(f.names, []string{allDims}) {
		return dims.Known(m), nil
	}
	list, err := dims.FindAll(m, f.names)
	if err != nil {
		return nil, fmt.Errorf("--dims: %w", err)
	}
	return list, nil
}

func writeDims(w io.Writer, r *dims.Report, verbose bool) {
	for _, d := range r.Dims {
		where := ""
		if d.Node != "" {
			where = " at " + d.Node
		}
		size := ""
		if d.Size > 0 {
			size = fmt.Sprintf(", %d at export", d.Size)
		}
		state := "can be freed: "
		if !d.Free {
			state = "cannot be freed" + where + ": "
		}
		fmt.Fprintf(w, "%s (%s%s) %s%s\n", d.Name, strings.Join(d.Inputs, ", "), size, state, d.Reason)
		count := 0
		for _, c := range r.Constants {
			if !slices.Contains(c.Dims, d.Name) {
				continue
			}
			if count++; count <= cli.CommonOps || verbose {
				fmt.Fprintf(w, "  %s %s: %s becomes %s\n", c.Op, c.Node, c.Was, c.Becomes)
			}
		}
		if count > cli.CommonOps && !verbose {
			fmt.Fprintf(w, "  … %d more constants (-v lists them)\n", count-cli.CommonOps)
		}
		if count == 0 && d.Free {
			fmt.Fprintln(w, "  no constant comes from it")
		}
	}
	if len(r.Dims) == 0 {
		fmt.Fprintln(w, "the inputs have no dimension that can be freed")
	}
}
