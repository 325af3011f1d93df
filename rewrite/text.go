package rewrite

import (
	"fmt"
	"io"
	"slices"
	"strings"
)

// listed bounds how many refused or missed sites of one reason are written out.
const listed = 3

// WriteText writes the report for people: counts without zeros, then what was refused or missed, and why.
func (r *Report) WriteText(w io.Writer) error {
	var b strings.Builder
	r.writeRepairs(&b, true)
	r.writeSites(&b, Refused)
	r.writeSites(&b, Open)
	r.writeSites(&b, Missed)
	if err := r.WriteCounts(w, false); err != nil {
		return err
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// WriteCounts writes how many sites each pattern and each kernel has, and the worst figures of the checks. With zeros
// it lists patterns and kernels without sites as well.
func (r *Report) WriteCounts(w io.Writer, zeros bool) error {
	var b strings.Builder
	if r.Inlined != nil {
		b.WriteString(r.Inlined.Text() + "\n")
	}
	if r.Logits != "" {
		fmt.Fprintf(&b, "logits: %s\n", r.Logits)
	}
	nothing := true
	for _, p := range r.Patterns {
		if nothing = nothing && p.Found == 0; !zeros && p.Found == 0 {
			continue
		}
		fmt.Fprintf(&b, "%-18s %d of %d", p.Name, p.Fused, p.Found)
		if p.Refused > 0 {
			fmt.Fprintf(&b, " (%d refused)", p.Refused)
		}
		if p.Open > 0 {
			fmt.Fprintf(&b, " (%d left open)", p.Open)
		}
		b.WriteString("\n")
	}
	if nothing {
		fmt.Fprintf(&b, "nothing found: no block of the model reads like one of %s\n",
			plural(len(r.Patterns), "pattern"))
	}
	for _, k := range r.Kernels {
		if slices.Contains(r.PassedOver, strings.ToUpper(k.Device)) ||
			!zeros && k.Sites == 0 && (!k.met || k.Available && k.Selected) {
			continue
		}
		fmt.Fprintf(&b, "%-18s %s", k.ID, plural(k.Sites, "site"))
		if !k.Available {
			fmt.Fprintf(&b, "; not available: %s", k.Reason)
		} else if !k.Selected {
			b.WriteString("; not asked for")
		}
		b.WriteString("\n")
	}
	r.writeTargets(&b)
	if r.Weights != nil {
		fmt.Fprintf(&b, "%-18s %s\n", "expert weights", r.Weights.Text())
	}
	b.WriteString(r.CANN.Text())
	if len(r.PassedOver) > 0 {
		fmt.Fprintf(&b, "%-18s passed over: no kernels\n", strings.Join(r.PassedOver, ", "))
	}
	r.writeRepairs(&b, false)
	if c := r.worst(); c != nil {
		fmt.Fprintf(&b, "checked: worst difference %.3g of the greatest magnitude, structure %.3g", c.MaxRel,
			c.Structural)
		if c.Kernel != nil {
			fmt.Fprintf(&b, ", kernel %.3g", *c.Kernel)
		}
		b.WriteString("\n")
	}
	b.WriteString(r.variantsText())
	if r.DryRun {
		b.WriteString("dry run: nothing was changed\n")
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// worst gathers the greatest differences of the fused sites.
func (r *Report) worst() *CheckReport {
	var worst *CheckReport
	for _, s := range r.Sites {
		if s.Status != Fused || s.Check == nil {
			continue
		}
		if worst == nil {
			worst = &CheckReport{}
		}
		worst.MaxRel = max(worst.MaxRel, s.Check.MaxRel)
		worst.Structural = max(worst.Structural, s.Check.Structural)
		if k := s.Check.Kernel; k != nil && (worst.Kernel == nil || *k > *worst.Kernel) {
			worst.Kernel = k
		}
	}
	return worst
}

// writeSites writes the sites of one status, those of one pattern and reason together.
func (r *Report) writeSites(b *strings.Builder, status string) {
	var p places
	for _, s := range r.Sites {
		if s.Status == status {
			p.add(fmt.Sprintf("%s %s: %s", status, s.Pattern, s.Reason), s.Node)
		}
	}
	p.write(b)
}

// places are texts, and the nodes that each of them is about.
type places struct {
	texts []string // in the order of their first nodes
	nodes map[string][]string
}

func (p *places) add(text, node string) {
	if p.nodes == nil {
		p.nodes = map[string][]string{}
	}
	if p.nodes[text] == nil {
		p.texts = append(p.texts, text)
	}
	p.nodes[text] = append(p.nodes[text], node)
}

// write writes each text with the first few of its nodes.
func (p *places) write(b *strings.Builder) {
	for _, text := range p.texts {
		nodes := p.nodes[text]
		fmt.Fprintf(b, "%s\n    at %s", text, strings.Join(nodes[:min(listed, len(nodes))], ", "))
		if more := len(nodes) - listed; more > 0 {
			fmt.Fprintf(b, " and %d more", more)
		}
		b.WriteString("\n")
	}
}

func plural(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}
