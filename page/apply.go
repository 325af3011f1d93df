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

// Apply is the page about a model that is patched, or would be. It is filled in order: Begin when the model was read,
// AddSites when a plan was made and nothing is replaced yet, End when it was. Write may follow AddSites as well.
type Apply struct {
	Tool   string // its version
	Report *rewrite.Report
	Before census
	After  *census // nil where nothing was replaced
	// Failure says why nothing was written, "" where that is not so.
	Failure string
	Blocks  []*block
	Misses  []*miss
}

// census counts what a model is made of.
type census struct {
	Nodes   int
	Tensors int   // that nodes give to each other
	Weights int64 // bytes
	File    int64 // bytes without external data, 0 where there is no file
	ops     map[string]int
}

// block is a kind of site: all that are the same but for the names of values.
type block struct {
	rewrite.SiteReport          // the first
	Sites              []string // the last nodes of all
	Old, New           *drawing
}

// miss is a reason why something that looks like a block is none, with the places where that is so.
type miss struct {
	Pattern, Reason, Hint string
	Nodes                 []string
}

// Begin counts what a model holds before anything is done to it.
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

// AddSites draws the sites of a plan. It has to come before they are replaced.
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

// worse has the worst figures of two checks.
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

// inQuotes are the names in a reason: what is otherwise equal is one reason.
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

// End counts what the model holds after its sites were replaced. file is what was written of it, "" for nothing.
func (p *Apply) End(m *onnx.Model, file string) {
	after := countOps(m, file)
	p.After = &after
}

//go:embed apply.html
var applyHTML string

var applyPage = parsed(applyHTML)

// Write writes the page.
func (p *Apply) Write(w io.Writer) error { return applyPage.Execute(w, p) }

// Title is what a browser calls the page.
func (p *Apply) Title() string {
	if p.Report.DryRun {
		return p.Model() + ": what mojo-patch would change"
	}
	return p.Model() + ": what mojo-patch changed"
}

// Model is the name of the file.
func (p *Apply) Model() string { return filepath.Base(p.Report.Input.Path) }

// Into says what blocks become.
func (p *Apply) Into() string {
	if t := p.Report.Target; t != "" {
		return "ops of " + t
	}
	return "fused ops"
}

// Stayed counts by pattern the blocks that were found and stayed, as in "6 Attention, 1 GLU"; "" where none did.
func (p *Apply) Stayed() string {
	var list []string
	for _, x := range p.Report.Patterns {
		if n := x.Refused + x.Open; n > 0 {
			list = append(list, fmt.Sprintf("%d %s", n, x.Name))
		}
	}
	return strings.Join(list, ", ")
}

// Checked counts the blocks that were evaluated, each or an equal one.
func (p *Apply) Checked() int {
	return p.Report.Count(func(s rewrite.SiteReport) bool { return s.Becomes() && s.Check != nil })
}

// Left counts the sites that were found and stayed.
func (p *Apply) Left() int { return p.Report.Refused() + p.Report.Open() }

// Kinds are the kinds of blocks of a status.
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

// Ops lists ops, those that patching wrote first, then by how many nodes went.
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
	Near, Out int // near misses, and what was not asked for
	All       int
}

// Patterns lists the patterns that something was found of; Absent names the others.
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

// Absent names the patterns that nothing was found of.
func (p *Apply) Absent() []string {
	var names []string
	for _, x := range p.Report.Patterns {
		near := slices.ContainsFunc(p.Misses, func(m *miss) bool { return m.Pattern == x.Name })
		if x.Found == 0 && !near {
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

// Hint says what is generally known about a reason.
func (b *block) Hint() string { return reason.Code.Hint(b.Code) }
