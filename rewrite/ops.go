package rewrite

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/mojo-patch/mojo-patch/internal/english"
	"github.com/mojo-patch/mojo-patch/onnx"
)

// OpCount is the number of nodes of one op before and after a patch, including those in branches and loops.
type OpCount struct {
	Op     string `json:"op"` // with its domain unless it is a standard op
	Before int    `json:"before"`
	After  int    `json:"after"`
}

// opsShown is the number of ops in the short text.
const opsShown = 12

// countOps returns the number of nodes of each op of a model.
func countOps(m *onnx.Model) map[string]int {
	counts := map[string]int{}
	m.Graph.Walk(func(g *onnx.Graph) {
		for _, n := range g.Nodes {
			counts[onnx.OpName(n.Domain, n.OpType)]++
		}
	})
	return counts
}

// CountOps fills in the ops of the model before the patch and of m, the model after it: new ops first, then by the
// change of their count.
func (r *Report) CountOps(m *onnx.Model) {
	after := countOps(m)
	r.Ops = []OpCount{}
	for op, n := range r.opsBefore {
		r.Ops = append(r.Ops, OpCount{op, n, after[op]})
	}
	for op, n := range after {
		if r.opsBefore[op] == 0 {
			r.Ops = append(r.Ops, OpCount{op, 0, n})
		}
	}
	old := func(c OpCount) int { return min(c.Before, 1) }
	change := func(c OpCount) int { return max(c.Before-c.After, c.After-c.Before) }
	slices.SortFunc(r.Ops, func(a, b OpCount) int {
		return cmp.Or(cmp.Compare(old(a), old(b)), cmp.Compare(change(b), change(a)), cmp.Compare(a.Op, b.Op))
	})
}

// opsText returns a table of the ops whose number changed and of the sizes, or "" if no number changed.
func (r *Report) opsText(all bool) string {
	changed := slices.DeleteFunc(slices.Clone(r.Ops), func(c OpCount) bool { return c.Before == c.After })
	if len(changed) == 0 || r.Output == nil {
		return ""
	}
	shown := changed
	if !all {
		shown = changed[:min(len(changed), opsShown)]
	}
	width, columns := 22, 2
	for _, c := range shown {
		if width = max(width, len(c.Op)); width > 34 {
			columns = 1 // two would not fit into a terminal
		}
	}
	cell := func(c OpCount) string { return fmt.Sprintf("%-*s %5d %5d", width, c.Op, c.Before, c.After) }
	var b strings.Builder
	fmt.Fprintf(&b, "%-*s %s\n", width, "ops", "before, after")
	for row := range slices.Chunk(shown, columns) {
		b.WriteString("  ")
		for i, c := range row {
			if i > 0 {
				b.WriteString("    ")
			}
			b.WriteString(cell(c))
		}
		b.WriteString("\n")
	}
	if n := len(changed) - len(shown); n > 0 {
		fmt.Fprintf(&b, "  the counts of %s changed too: -v lists them\n", english.Counted(n, "other op"))
	}
	fmt.Fprintf(&b, "  %s", cell(OpCount{"all", r.Input.Nodes, r.Output.Nodes}))
	if r.Input.Bytes > 0 && r.Output.Bytes > 0 {
		fmt.Fprintf(&b, "    %s before, %s after", english.Bytes(r.Input.Bytes), english.Bytes(r.Output.Bytes))
	}
	b.WriteString("\n")
	return b.String()
}
