package inspect

import (
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"

	"github.com/mojo-patch/mojo-patch/cmd/mojo-patch/cli"
	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/patterns"
	"github.com/mojo-patch/mojo-patch/patterns/reason"
	"github.com/mojo-patch/mojo-patch/reference/infer"
	"github.com/mojo-patch/mojo-patch/rewrite"
	"github.com/spf13/cobra"
)

type whyFlags struct {
	why  bool
	node string
}

func (f *whyFlags) flags(c *cobra.Command) {
	c.Flags().BoolVar(&f.why, "why", false,
		"explain for each node that usually marks a block why it was not fused: the nearest pattern, the "+
			"difference, and advice")
	c.Flags().StringVar(&f.node, "node", "", "only nodes whose name matches this regular expression")
	cli.Rules(c, "node requires why")
}

// Why is the result of --why, and its JSON form.
type Why struct {
	Schema  int           `json:"schema"`
	Path    string        `json:"path"`
	Fused   int           `json:"fused"` // sites that apply would fuse
	Reasons []explanation `json:"reasons"`
}

// The kinds of reasons.
const (
	whyRefused = "refused" // a pattern matched, and the site was refused
	whyMissed  = "missed"  // a pattern nearly matches
	whyUnlike  = "unlike"  // no pattern nearly matches
)

// explanation says why a node is not part of a fused op.
type explanation struct {
	Status      string       `json:"status"`
	Node        spot         `json:"node"`
	Graph       string       `json:"graph,omitempty"`   // empty for the main graph
	Pattern     string       `json:"pattern,omitempty"` // the pattern that matched or came nearest
	Matched     int          `json:"matched,omitempty"` // nodes that fit the pattern
	Size        int          `json:"size,omitempty"`    // nodes of the pattern
	Differences []difference `json:"differences,omitempty"`
	Refusal     string       `json:"refusal,omitempty"`
	Around      string       `json:"around,omitempty"`   // the surroundings of a node that no pattern is near
	Patterns    []string     `json:"patterns,omitempty"` // patterns with such a node
	Code        reason.Code  `json:"code,omitempty"`     // of the refusal, or of the first difference
	Hint        string       `json:"hint,omitempty"`
}

// difference is one mismatch between a pattern and the model.
type difference struct {
	At        spot   `json:"at"`
	Expected  string `json:"expected"`
	Found     string `json:"found"`
	Condition bool   `json:"condition,omitempty"` // all nodes are there, a condition fails
	Why       string `json:"why,omitempty"`       // replaces expected and found if no certain node is expected
}

// spot is a node.
type spot struct {
	Op   string `json:"op"`
	Name string `json:"name"` // of the node, or of its first output if it has no name
}

func spotOf(n *onnx.Node) spot {
	s := spot{Op: n.OpType, Name: n.Name}
	if !onnx.IsStandardDomain(n.Domain) {
		s.Op = n.Domain + "." + s.Op
	}
	for i := 0; s.Name == "" && i < len(n.Outputs); i++ {
		if v := n.Outputs[i]; v != nil {
			s.Name = v.Name
		}
	}
	return s
}

// String returns the node for people.
func (s spot) String() string { return fmt.Sprintf("%s %q", s.Op, s.Name) }

func (f *whyFlags) check() error {
	if _, err := regexp.Compile(f.node); err != nil {
		return fmt.Errorf("--node: %w", err)
	}
	return nil
}

// inspect prints the reasons instead of the census. It verifies the sites, so that refused sites are included.
func (f *whyFlags) inspect(a *cli.App, m *onnx.Model, r *Census, q rewrite.Request) error {
	q.Verify = rewrite.VerifyDistinct
	plan, err := r.search(m, q)
	if err != nil {
		return err
	}
	if r.unverified > 0 {
		a.Say("%s: weights are missing, so sites are recognized but not verified", m.Path)
	}
	w := f.explain(m, q.Patterns, plan)
	if a.JSON {
		return a.PrintJSON(w)
	}
	w.write(a.Human(), a.Verbose)
	return nil
}

// explain collects the reasons from a plan whose sites were verified.
func (f *whyFlags) explain(m *onnx.Model, set *patterns.Set, plan *rewrite.Plan) *Why {
	re := regexp.MustCompile(f.node) // check compiled it
	keep := func(names ...string) bool { return slices.ContainsFunc(names, re.MatchString) }
	w := &Why{Schema: cli.JSONSchema, Path: m.Path, Reasons: []explanation{}}
	places := places(m)
	for _, s := range plan.Report.Sites {
		switch {
		case s.Status == rewrite.Fused:
			w.Fused++
		case s.Status == rewrite.Refused && keep(s.Nodes...):
			w.Reasons = append(w.Reasons,
				explanation{Status: whyRefused, Node: spotOf(s.Match.Root), Graph: places[s.Match.Root.Graph],
					Pattern: s.Pattern, Matched: len(s.Nodes), Refusal: s.Reason, Code: s.Code, Hint: s.Code.Hint()})
		}
	}
	anchors := map[string][]string{} // patterns by their anchor ops
	for _, p := range set.Patterns {
		for _, op := range p.Anchors {
			if !slices.Contains(anchors[op], p.Name) {
				anchors[op] = append(anchors[op], p.Name)
			}
		}
	}
	facts := infer.Analyze(m)
	for _, f := range plan.Found {
		for _, x := range unfused(f, anchors, facts) {
			if x.Graph = places[f.Graph]; keep(x.Node.Name) {
				w.Reasons = append(w.Reasons, x)
			}
		}
	}
	return w
}

// unfused explains the anchor nodes of one graph that no match contains. It skips nodes that compute integers, such as
// a difference of positions: no pattern describes them.
func unfused(f *rewrite.Found, anchors map[string][]string, facts *infer.Facts) []explanation {
	taken := map[*onnx.Node]bool{}
	for _, m := range f.Matches {
		for _, n := range m.Nodes {
			taken[n] = true
		}
	}
	missed := map[*onnx.Node]*patterns.Miss{}
	found := map[*onnx.Node][]explanation{} // patterns written in Go explain misses in words
	for _, m := range f.Misses {
		if m.Expected != "" {
			missed[m.Anchor] = m
			continue
		}
		found[m.Anchor] = append(found[m.Anchor],
			explanation{Status: whyMissed, Node: spotOf(m.Anchor), Pattern: m.Pattern,
				Differences: []difference{{At: spotOf(m.Reason.Node), Why: m.Reason.Error()}}, Code: m.Reason.Code,
				Hint: m.Reason.Code.Hint()})
	}
	var list []explanation
	for _, n := range f.Graph.Nodes {
		list = append(list, found[n]...)
		names := anchors[n.OpType]
		if len(names) == 0 || taken[n] {
			continue
		}
		x := explanation{Node: spotOf(n)}
		if m := missed[n]; m != nil {
			x.Status, x.Pattern, x.Matched, x.Size = whyMissed, m.Pattern, m.Matched, m.Size
			for ; m != nil; m = m.Further {
				x.Differences = append(x.Differences,
					difference{At: spotOf(m.Reason.Node), Expected: m.Expected, Found: m.Found, Condition: m.Condition})
			}
			x.Code = missed[n].Reason.Code
		} else {
			if len(n.Outputs) > 0 && facts.DataType(n.Outputs[0]).IsInteger() {
				continue
			}
			r := patterns.Around(n)
			x.Status, x.Around, x.Patterns, x.Code = whyUnlike, r.Error(), names, r.Code
		}
		x.Hint = x.Code.Hint()
		list = append(list, x)
	}
	return list
}

// places returns the locations of graphs, "" for the main graph.
func places(m *onnx.Model) map[*onnx.Graph]string {
	at := map[*onnx.Graph]string{}
	m.Graph.Walk(func(g *onnx.Graph) { at[g] = fmt.Sprintf("graph %q", g.Name) })
	at[m.Graph] = ""
	for _, f := range m.Functions {
		f.Body.Walk(func(g *onnx.Graph) { at[g] = fmt.Sprintf("function %s.%s", f.Domain, f.Name) })
	}
	return at
}

// inQuotes matches the names in a text. Reasons that differ only in names are shown as one.
var inQuotes = regexp.MustCompile(`"[^"]*"`)

// alikeShown limits how many nodes are named for one reason.
const alikeShown = 4

// write prints the reasons. Unless all is set, it merges reasons that differ only in names.
func (w *Why) write(out io.Writer, all bool) {
	groups := map[string][]spot{}
	key := func(x explanation) string {
		s := fmt.Sprint(x.Status, x.Node.Op, x.Graph, x.Pattern, x.Matched, x.Size, x.Around, x.Refusal, x.Differences)
		return inQuotes.ReplaceAllString(s, `""`)
	}
	for _, x := range w.Reasons {
		groups[key(x)] = append(groups[key(x)], x.Node)
	}
	for _, x := range w.Reasons {
		spots := groups[key(x)]
		if !all && spots[0] != x.Node {
			continue
		}
		x.write(out)
		if rest := spots[1:]; !all && len(rest) > 0 {
			names := make([]string, 0, alikeShown)
			for _, s := range rest[:min(len(rest), alikeShown)] {
				names = append(names, fmt.Sprintf("%q", s.Name))
			}
			more := ""
			if len(rest) > alikeShown {
				more = fmt.Sprintf(" and %d more (-v)", len(rest)-alikeShown)
			}
			fmt.Fprintf(out, "  the same at %s%s\n", strings.Join(names, ", "), more)
		}
	}
	if len(w.Reasons) == 0 {
		fmt.Fprintf(out, "%s: nothing to explain: %s would be fused, and no other node looks like one\n", w.Path,
			cli.Counted(w.Fused, "site"))
	}
}

// String returns the node and the mismatch.
func (d difference) String() string {
	if d.Why != "" {
		return fmt.Sprintf("at %s: %s", d.At, d.Why)
	}
	where := "stopped at"
	if d.Condition {
		where = "a condition does not hold at"
	}
	return fmt.Sprintf("%s %s: expected %s, found %s", where, d.At, d.Expected, d.Found)
}

func (x *explanation) write(out io.Writer) {
	in := ""
	if x.Graph != "" {
		in = " in " + x.Graph
	}
	fmt.Fprintf(out, "%s%s: ", x.Node, in)
	switch x.Status {
	case whyRefused:
		fmt.Fprintf(out, "pattern %s matches (%s) but is refused\n  because %s\n", x.Pattern,
			cli.Counted(x.Matched, "node"), x.Refusal)
	case whyUnlike:
		fmt.Fprintf(out, "no pattern starts like this: %s (a %s is in %s)\n", x.Around, x.Node.Op,
			strings.Join(x.Patterns, ", "))
	default:
		size := ""
		switch {
		case x.Size > 0 && x.Matched == x.Size:
			size = fmt.Sprintf(" (all %d nodes)", x.Size)
		case x.Size > 0:
			size = fmt.Sprintf(" (%d of %d nodes)", x.Matched, x.Size)
		}
		fmt.Fprintf(out, "nearest pattern %s%s\n", x.Pattern, size)
	}
	for _, d := range x.Differences {
		fmt.Fprintf(out, "  %s\n", d)
	}
	if x.Hint != "" {
		fmt.Fprintf(out, "  hint: %s\n", x.Hint)
	}
}
