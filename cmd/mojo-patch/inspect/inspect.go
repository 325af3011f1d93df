// Package inspect is the command inspect.
package inspect

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/mojo-patch/mojo-patch/cmd/mojo-patch/cli"
	"github.com/mojo-patch/mojo-patch/cmd/mojo-patch/planning"
	"github.com/mojo-patch/mojo-patch/cmd/mojo-patch/plans"
	"github.com/mojo-patch/mojo-patch/fused"
	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/patterns/reason"
	"github.com/mojo-patch/mojo-patch/rewrite"
	"github.com/mojo-patch/mojo-patch/rewrite/shard"
	"github.com/spf13/cobra"
)

type inspectFlags struct {
	patterns planning.PatternFlag
	inline   planning.InlineFlag
	why      whyFlags
	dims     dimsFlags
}

// New returns the command inspect.
func New(a *cli.App) *cobra.Command {
	f := &inspectFlags{}
	c := &cobra.Command{
		Use:   "inspect MODEL",
		Short: "Show the contents of a model: ops, weights, functions, recognized blocks and near misses",
		Long: `inspect counts the ops of a model by domain, its weights by type, its functions, the blocks that
apply would fuse, and the fused ops it already holds. It recognizes blocks but does not evaluate
them; match and apply do. It evaluates only mixtures of experts, and warns if an export works only
for few inputs or lacks experts. It does not need the weights. -v lists every op and every near
miss.

If MODEL is a folder of mojo-patch shard, inspect prints how the model is divided.

--why explains why blocks are not fused. For every node that usually marks a block but is not part of
one, it names the nearest pattern, the first difference of the graph from it, and a hint. It evaluates
sites, so it also lists the sites that apply would refuse. -v lists similar nodes one by one.

--dims lists the constants that an exporter silently computed from the sizes of the inputs, and reports
for each dimension whether apply --free can make it dynamic. It runs the model at other sizes.
--dims=batch,sequence examines only these dimensions, and --golden names recorded outputs, also of
other sizes.`,
		Example: `  mojo-patch inspect model.onnx
  mojo-patch inspect model.onnx --why --node layers.0
  mojo-patch inspect model.onnx --dims --golden recorded.npz
  mojo-patch inspect model.onnx --json | jq .patterns`,
		Args:              cli.ModelArgs(1, 1),
		ValidArgsFunction: cli.CompleteModels(1),
		RunE:              func(_ *cobra.Command, args []string) error { return f.inspect(a, args[0]) },
	}
	f.patterns.AddTo(c)
	f.inline.AddTo(c)
	f.why.flags(c)
	f.dims.flags(c)
	a.JSONFlag(c, "inspect", "inspect-why", "inspect-dims", "shard")
	return c
}

func (f *inspectFlags) inspect(a *cli.App, path string) error {
	if err := f.why.check(); err != nil {
		return err
	}
	if shard.IsFolder(path) {
		p, err := shard.ReadPlan(path)
		if err != nil {
			return err
		}
		plans.Say(a, p, true)
		return a.Result(plans.NewResult(path, p))
	}
	if f.dims.asked() {
		return f.dims.inspect(a, path)
	}
	set, err := f.patterns.Set()
	if err != nil {
		return fmt.Errorf("--patterns: %w", err)
	}
	functions, err := f.inline.Value()
	if err != nil {
		return err
	}
	m, err := a.Read(path, onnx.AllowMissingData())
	if err != nil {
		return err
	}
	defer m.Close()
	r := takeCensus(m)
	request := rewrite.Request{Patterns: set, Verify: rewrite.VerifyRouted, Inline: functions}
	if f.why.why {
		return f.why.inspect(a, m, r, request)
	}
	if _, err := r.search(m, request); err != nil {
		return err
	}
	if r.unverified > 0 {
		a.Say("%s: weights are missing, so inspect cannot tell whether its mixtures of experts work for every input",
			m.Path)
	}
	if a.JSON {
		return a.PrintJSON(r)
	}
	r.write(a.Human(), a.Verbose)
	return nil
}

// search finds the blocks that apply would fuse if every kernel were available and all checks that need missing weights
// passed.
func (r *Census) search(m *onnx.Model, q rewrite.Request) (*rewrite.Plan, error) {
	q.AssumeAvailable, q.AllowUnverified, q.Version = true, true, cli.Version()
	p, err := rewrite.New(q)
	if err != nil {
		return nil, err
	}
	plan, err := p.Plan(m)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", m.Path, err)
	}
	found := plan.Report
	r.Patterns, r.Sites, r.Raised, r.Inlined = found.Patterns, found.Sites, found.Opset, found.Inlined
	r.Warnings, r.unverified = warnings(found), found.Unverified
	return plan, nil
}

func (r *Census) write(w io.Writer, verbose bool) {
	fmt.Fprintf(w, "%s: IR %d, %s\n", r.Path, r.IRVersion, cmp.Or(r.Exporter, "exporter not named"))
	for _, d := range slices.Sorted(maps.Keys(r.Opsets)) {
		fmt.Fprintf(w, "  opset %s %d\n", d, r.Opsets[d])
	}
	writePorts(w, "input ", r.Inputs, verbose)
	writePorts(w, "output", r.Outputs, verbose)
	fmt.Fprintf(w, "  %d parameters in %d bytes, %d nodes, %d model-local functions\n", r.Parameters, r.Bytes, r.Nodes,
		r.Functions)
	r.writeOps(w, verbose)
	t := cli.NewTable("weights", ">tensors", ">elements", ">bytes")
	for _, i := range r.Initializers {
		t.Add(i.DataType, i.Tensors, i.Elements, i.Bytes)
	}
	t.Section(w, "initializers by type", len(r.Initializers))
	t = cli.NewTable("function", "overload", ">nodes", ">calls")
	for _, f := range r.LocalFunctions {
		t.Add(f.Domain+"."+f.Name, f.Overload, f.Nodes, f.Calls)
	}
	t.Section(w, "model-local functions", len(r.LocalFunctions))
	if r.Raised != nil {
		fmt.Fprintf(w, "for the search, %s\n", r.Raised.Text())
	}
	if r.Inlined != nil {
		fmt.Fprintf(w, "for the search, %s\n", r.Inlined.Text())
	}
	t = cli.NewTable("pattern", ">found", ">would fuse", ">refused", "types")
	for _, p := range r.Patterns {
		t.Add(p.Name, p.Found, p.Fused, p.Refused, strings.Join(r.types(p.Name), ", "))
	}
	t.Section(w, "recognized blocks", len(r.Patterns))
	t = cli.NewTable("op", ">count")
	for _, op := range fused.Ops() {
		t.Add(op.Name, r.Fused[op.Name])
	}
	t.Section(w, "fused ops already there", len(r.Fused))
	r.writeMisses(w, verbose)
	r.writeWarnings(w)
}

// writeOps lists the ops by frequency, and the total of each domain.
func (r *Census) writeOps(w io.Writer, verbose bool) {
	ops := slices.SortedFunc(maps.Keys(r.counts), func(x, y opName) int {
		return cmp.Or(cmp.Compare(r.counts[y], r.counts[x]), cmp.Compare(x.op, y.op), cmp.Compare(x.domain, y.domain))
	})
	t := cli.NewTable("domain", "op", ">count")
	rest := 0
	for i, o := range ops {
		if !verbose && i >= cli.CommonOps {
			rest += r.counts[o]
			continue
		}
		t.Add(o.domain, o.op, r.counts[o])
	}
	if rest > 0 {
		t.Add("", fmt.Sprintf("%d other ops", len(ops)-cli.CommonOps), rest)
	}
	if len(r.Domains) > 1 {
		for _, d := range slices.Sorted(maps.Keys(r.Domains)) {
			t.Add(d, "all", r.Domains[d])
		}
	}
	t.Section(w, "ops", len(ops))
}

// types lists the distinct input types of a pattern's sites.
func (r *Census) types(pattern string) []string {
	var list []string
	for _, s := range r.Sites {
		for _, t := range s.Types {
			if s.Pattern == pattern && !slices.Contains(list, t) {
				list = append(list, t)
			}
		}
	}
	slices.Sort(list)
	return list
}

// commonPorts is the number of inputs and outputs listed without --verbose: a cache has two for every layer.
const commonPorts = 8

func writePorts(w io.Writer, what string, ports []port, verbose bool) {
	for i, p := range ports {
		if i == commonPorts-1 && len(ports) > commonPorts && !verbose {
			fmt.Fprintf(w, "  %s … %d more\n", what, len(ports)-i)
			return
		}
		fmt.Fprintf(w, "  %s %s %s\n", what, p.Name, p.Type)
	}
}

// writeMisses lists recognized blocks that cannot be fused and, under --verbose, near misses.
func (r *Census) writeMisses(w io.Writer, verbose bool) {
	misses := 0
	for _, s := range r.Sites {
		switch {
		case s.Status == rewrite.Refused || s.Status == rewrite.Missed && verbose:
			fmt.Fprintf(w, "%s %s at %s: %s\n", s.Status, s.Pattern, s.Node, s.Reason)
		case s.Status == rewrite.Missed:
			misses++
		}
	}
	if misses > 0 {
		fmt.Fprintf(w, "%s (use -v to list where and why)\n", planning.Near(misses))
	}
}

// warning is a fault of an exported model.
type warning struct {
	Pattern string `json:"pattern"`
	Node    string `json:"node"`
	Text    string `json:"text"`
	Mended  bool   `json:"mended"` // by apply
}

// warnings finds the mixtures of experts that fail for some inputs, and those that lack experts.
func warnings(r *rewrite.Report) []warning {
	var list []warning
	for _, x := range r.Repairs {
		list = append(list, warning{x.Pattern, x.Node, x.Text, true})
	}
	for _, s := range r.Sites {
		if s.Status != rewrite.Fused && s.Code == reason.ExpertsAbsent {
			list = append(list, warning{s.Pattern, s.Node, s.Reason, false})
		}
	}
	return list
}

func (r *Census) writeWarnings(w io.Writer) {
	for _, x := range r.Warnings {
		mended := ""
		if x.Mended {
			mended = ", and apply fixes it"
		}
		fmt.Fprintf(w, "warning: %s at %s: %s%s\n", x.Pattern, x.Node, x.Text, mended)
	}
}
