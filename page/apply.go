package page

import (
	"cmp"
	_ "embed"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/mojo-patch/mojo-patch/fused"
	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/patterns/reason"
	"github.com/mojo-patch/mojo-patch/rewrite"
	"github.com/mojo-patch/mojo-patch/rewrite/registry"
)

// Apply is the page about a model that is patched, or would be. Fill it in order: Begin when the model is read,
// AddSites when a plan is made and before replacements, End after them. Write may follow AddSites directly.
type Apply struct {
	Tool   string // its version
	Report *rewrite.Report
	Before census
	After  *census // nil if nothing was replaced
	// Failure says why nothing was written, or is "".
	Failure string
	Blocks  []*block
	Misses  []*miss
}

// census counts the contents of a model.
type census struct {
	Nodes   int
	Tensors int   // that pass between nodes
	Weights int64 // bytes
	File    int64 // bytes without external data, 0 without a file
	ops     map[string]int
}

// block is a kind of site: sites that are equal except for the names of values.
type block struct {
	rewrite.SiteReport          // the first
	Sites              []string // the last nodes of all
	Old, New           *drawing
}

// miss is a reason why a lookalike is not a block, with its places.
type miss struct {
	Pattern, Reason, Hint string
	Nodes                 []string
}

// Begin counts the contents of a model before any change.
func Begin(m *onnx.Model, tool string) *Apply {
	return &Apply{Tool: tool, Before: countOps(m, m.Path)}
}

func countOps(m *onnx.Model, path string) census {
	c := census{ops: map[string]int{}}
	m.Graph.Walk(func(g *onnx.Graph) {
		for _, n := range g.Nodes {
			name := n.OpType
			if !onnx.IsStandardDomain(n.Domain) {
				name = n.Domain + "." + name
			}
			c.ops[name]++
			c.Nodes++
			c.Tensors += len(n.Outputs)
			if v := n.OutputValue(0); n.Is("Constant") && v != nil && v.Constant() != nil {
				c.Weights += v.Constant().Size()
			}
		}
		for _, v := range g.Initializers() {
			c.Weights += max(v.Const.Size(), 0)
		}
	})
	if info, err := os.Stat(path); err == nil {
		c.File = info.Size()
	}
	return c
}

// AddSites draws the sites of a plan. Call it before they are replaced.
func (p *Apply) AddSites(r *rewrite.Report) {
	p.Report = r
	known := map[string]*block{}
	for _, s := range r.Sites {
		switch {
		case s.Status == rewrite.Missed:
			p.addMiss(s)
			continue
		case s.Match == nil:
			continue
		}
		old := drawMatch(s.Match)
		key := fmt.Sprint(s.Pattern, s.Status, s.Kernel, s.Code, s.Types, old.key())
		b := known[key]
		if b == nil {
			b = &block{SiteReport: s, Old: old}
			if s.Status == rewrite.Fused {
				b.New = drawReplacement(s.Match)
			}
			b.Old.place()
			b.New.place()
			known[key], p.Blocks = b, append(p.Blocks, b)
		}
		b.Check = worse(b.Check, s.Check)
		b.Sites = append(b.Sites, s.Node)
	}
	slices.SortStableFunc(p.Blocks, func(x, y *block) int { return cmp.Compare(rank(x.Status), rank(y.Status)) })
}

// worse combines the worst figures of two checks.
func worse(x, y *rewrite.CheckReport) *rewrite.CheckReport {
	if x == nil || y == nil || x == y {
		return cmp.Or(x, y)
	}
	w := *x
	w.Structural, w.MaxRel, w.Cases = max(x.Structural, y.Structural), max(x.MaxRel, y.MaxRel), max(x.Cases, y.Cases)
	w.ToleranceRel = min(x.ToleranceRel, y.ToleranceRel)
	if x.Kernel == nil || y.Kernel != nil && *y.Kernel > *x.Kernel {
		w.Kernel = y.Kernel
	}
	w.Overflow = slices.Clone(x.Overflow)
	for _, inputs := range y.Overflow {
		if !slices.Contains(w.Overflow, inputs) {
			w.Overflow = append(w.Overflow, inputs)
		}
	}
	return &w
}

func rank(status string) int {
	return slices.Index([]string{rewrite.Fused, rewrite.Open, rewrite.Refused}, status)
}

// inQuotes matches the names in a reason. Reasons that differ only in names are grouped.
var inQuotes = regexp.MustCompile(`"[^"]*"`)

func (p *Apply) addMiss(s rewrite.SiteReport) {
	text := inQuotes.ReplaceAllString(s.Reason, `"…"`)
	i := slices.IndexFunc(p.Misses, func(m *miss) bool {
		return m.Pattern == s.Pattern && inQuotes.ReplaceAllString(m.Reason, `"…"`) == text
	})
	if i < 0 {
		i = len(p.Misses)
		p.Misses = append(p.Misses, &miss{Pattern: s.Pattern, Reason: s.Reason, Hint: s.Code.Hint()})
	}
	p.Misses[i].Nodes = append(p.Misses[i].Nodes, s.Node)
}

// End counts the contents of the model after its sites were replaced. file is the written model, or "".
func (p *Apply) End(m *onnx.Model, file string) {
	after := countOps(m, file)
	p.After = &after
}

//go:embed apply.html
var applyHTML string

var applyPage = parsed(applyHTML)

// Write writes the page.
func (p *Apply) Write(w io.Writer) error { return applyPage().Execute(w, p) }

// Title returns the title of the page.
func (p *Apply) Title() string {
	if p.Report.DryRun {
		return p.Model() + ": planned changes by mojo-patch"
	}
	return p.Model() + ": changes by mojo-patch"
}

// Model returns the name of the file.
func (p *Apply) Model() string { return filepath.Base(p.Report.Input.Path) }

// Into names the ops that blocks become.
func (p *Apply) Into() string {
	if t := p.Report.Target; t != "" {
		return "ops of " + t
	}
	return "fused ops"
}

// Stayed counts the blocks by pattern that were found and stayed, as in "6 Attention, 1 GLU", or returns "".
func (p *Apply) Stayed() string {
	var list []string
	for _, x := range p.Report.Patterns {
		if n := x.Refused + x.Open; n > 0 {
			list = append(list, fmt.Sprintf("%d %s", n, x.Name))
		}
	}
	return strings.Join(list, ", ")
}

// Checked counts the blocks that were evaluated, or are equal to one that was.
func (p *Apply) Checked() int {
	return p.Report.Count(func(s rewrite.SiteReport) bool { return s.Becomes() && s.Check != nil })
}

// Left counts the sites that were found and stayed.
func (p *Apply) Left() int { return p.Report.Refused() + p.Report.Open() }

// Kinds returns the kinds of blocks of a status.
func (p *Apply) Kinds(status string) []*block {
	return slices.DeleteFunc(slices.Clone(p.Blocks), func(b *block) bool { return b.Status != status })
}

// opRow is an op in the census.
type opRow struct {
	Op            string
	Before, After int
	// the lengths of bars, in percent
	BeforeBar, AfterBar float64
	New                 bool
}

// Ops lists the ops, with those that patching wrote first, then by the number of removed nodes.
func (p *Apply) Ops() []opRow {
	var rows []opRow
	after := p.Before.ops
	if p.After != nil {
		after = p.After.ops
	}
	most := 0
	names := maps.Clone(p.Before.ops)
	maps.Copy(names, after)
	for op := range names {
		rows = append(rows, opRow{Op: op, Before: p.Before.ops[op], After: after[op],
			New: after[op] > p.Before.ops[op]})
		most = max(most, after[op], p.Before.ops[op])
	}
	for i := range rows {
		rows[i].BeforeBar = 100 * float64(rows[i].Before) / float64(most)
		rows[i].AfterBar = 100 * float64(rows[i].After) / float64(most)
	}
	slices.SortFunc(rows, func(x, y opRow) int {
		switch {
		case x.New != y.New && x.New:
			return -1
		case x.New != y.New:
			return 1
		}
		return cmp.Or(cmp.Compare(abs(y.Before-y.After), abs(x.Before-x.After)), cmp.Compare(y.Before, x.Before),
			cmp.Compare(x.Op, y.Op))
	})
	return rows
}

func abs(n int) int { return max(n, -n) }

// patternRow counts the sites of a pattern.
type patternRow struct {
	rewrite.PatternReport
	Summary   string
	Near, Out int // near misses, and sites that were not requested
	All       int
}

// Patterns lists the patterns with sites or near misses; Absent names the others.
func (p *Apply) Patterns() []patternRow {
	var rows []patternRow
	for _, x := range p.Report.Patterns {
		row := patternRow{PatternReport: x, Out: x.Found - x.Fused - x.Refused - x.Open}
		for _, s := range p.Report.Sites {
			if s.Pattern != x.Name {
				continue
			}
			if s.Status == rewrite.Missed {
				row.Near++
			} else if op := fused.Lookup(s.Op); op != nil {
				row.Summary = op.Summary
			}
		}
		if row.All = x.Found + row.Near; row.All > 0 {
			rows = append(rows, row)
		}
	}
	slices.SortStableFunc(rows, func(x, y patternRow) int { return cmp.Compare(y.Fused, x.Fused) })
	return rows
}

// Absent names the patterns without sites or near misses, except those that find the ops of others by evaluation.
func (p *Apply) Absent() []string {
	var names []string
	for _, x := range p.Report.Patterns {
		near := slices.ContainsFunc(p.Misses, func(m *miss) bool { return m.Pattern == x.Name })
		if x.Found == 0 && !near && !strings.HasPrefix(x.Name, "fit:") {
			names = append(names, x.Name)
		}
	}
	return names
}

// deviceKernels are the kernels of one device.
type deviceKernels struct {
	Device  string
	Sites   int
	Kernels []registry.KernelReport
}

// Devices lists the kernels by device.
func (p *Apply) Devices() []*deviceKernels {
	var list []*deviceKernels
	for _, k := range p.Report.Kernels {
		i := slices.IndexFunc(list, func(d *deviceKernels) bool { return d.Device == k.Device })
		if i < 0 {
			i = len(list)
			list = append(list, &deviceKernels{Device: k.Device})
		}
		list[i].Kernels = append(list[i].Kernels, k)
		list[i].Sites += k.Sites
	}
	return list
}

// Hint returns the general advice for a reason.
func (b *block) Hint() string { return reason.Code.Hint(b.Code) }
