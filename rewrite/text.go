package rewrite

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/mojo-patch/mojo-patch/fused"
	"github.com/mojo-patch/mojo-patch/internal/english"
	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/rewrite/registry"
	"github.com/mojo-patch/mojo-patch/rewrite/sites"
)

// WriteText writes the report for people: counts without zeros, then refused and missed sites with reasons.
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

// WriteCounts writes the sites of each pattern, the nodes of each op before and after the patch (see CountOps) or else
// the sites of each kernel, and the worst figures of the checks. With zeros it also lists patterns without sites, all
// ops that changed, all kernels, and devices without kernels.
func (r *Report) WriteCounts(w io.Writer, zeros bool) error {
	var b strings.Builder
	if r.Free != nil {
		b.WriteString(r.Free.Text() + "\n")
	}
	if r.DType != nil {
		b.WriteString(r.DType.Text() + "\n")
	}
	if r.Safe != nil {
		b.WriteString(r.Safe.Text())
	}
	if r.Opset != nil {
		b.WriteString(r.Opset.Text() + "\n")
	}
	if r.RunsOn != nil {
		b.WriteString(r.RunsOn.Text() + "\n")
	}
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
	switch {
	case nothing && r.Input != nil && r.Input.Fused > 0:
		fmt.Fprintf(&b, "already patched: %s of %d are fused, and no other block was found\n",
			english.Counted(r.Input.Fused, "node"), r.Input.Nodes)
	case nothing:
		fmt.Fprintf(&b, "nothing found: no block of the model matches one of %s\n",
			english.Counted(len(r.Patterns), "pattern"))
	}
	if moved := r.count(Fused); moved > 0 && r.Blocks() == 0 {
		fmt.Fprintf(&b, "nothing fused: only transpositions are moved, at %s\n",
			english.Counted(moved, "site"))
	}
	for _, g := range r.GivenUp {
		b.WriteString(g.Text() + "\n")
	}
	for _, why := range r.Unproven {
		fmt.Fprintf(&b, "not changed, because it is not proven: %s\n", why)
	}
	if n := len(r.Assumed); n > 0 {
		fmt.Fprintf(&b, "assumed without a check: %s (%s)\n", english.Counted(n, "edit"), english.Some(r.Assumed))
	}
	ops := r.opsText(zeros)
	b.WriteString(ops)
	for _, k := range r.Kernels {
		usual := k.Available && k.Selected && (k.Sites == 0 || ops != "" && r.Target == "" &&
			(k.Device == "cpu" || k.Device == registry.DeviceAny)) // the patterns and ops show this already
		if slices.Contains(r.PassedOver, strings.ToUpper(k.Device)) ||
			!zeros && (usual || k.Sites == 0 && (k.Unnamed || !k.Met)) {
			continue
		}
		fmt.Fprintf(&b, "%-18s %s", k.ID, english.Counted(k.Sites, "site"))
		if !k.Available {
			fmt.Fprintf(&b, "; not available: %s", k.Reason)
		} else if !k.Selected {
			b.WriteString("; not selected")
		}
		b.WriteString("\n")
	}
	r.writeTargets(&b)
	if r.Weights != nil {
		fmt.Fprintf(&b, "%-18s %s\n", "expert weights", r.Weights.Text())
	}
	if r.Latent != nil {
		fmt.Fprintf(&b, "%-18s %s\n", "cache", r.Latent.Text())
	}
	if r.Paged != nil {
		fmt.Fprintf(&b, "%-18s %s\n", "cache", r.Paged.Text())
	}
	if r.Cache != nil {
		fmt.Fprintf(&b, "%-18s %s\n", "cache", r.Cache.Text())
	}
	if r.Merged != nil {
		fmt.Fprintf(&b, "%-18s %s\n", "merged", r.Merged.Text())
	}
	if r.Sampling != nil {
		fmt.Fprintf(&b, "%-18s %s\n", "sampling", r.Sampling.Text())
	}
	if r.Products != nil {
		fmt.Fprintf(&b, "%-18s %s\n", "products", r.Products.Text())
	}
	b.WriteString(r.foreignText() + r.CANN.Text())
	if zeros && len(r.PassedOver) > 0 {
		fmt.Fprintf(&b, "%-18s skipped: no kernels\n", strings.Join(r.PassedOver, ", "))
	}
	r.writeRepairs(&b, false)
	r.writeOverflow(&b)
	r.writeTies(&b)
	if c := r.worst(); c != nil {
		fmt.Fprintf(&b, "checked: worst difference %.3g of the greatest magnitude, structure %.3g", c.MaxRel,
			c.Structural)
		if c.Kernel != nil {
			fmt.Fprintf(&b, ", kernel %.3g", *c.Kernel)
		}
		b.WriteString("\n")
	}
	if r.Drawn > 0 {
		fmt.Fprintf(&b, "checked with random numbers instead of missing weights: %s\n",
			english.Counted(r.Drawn, "site"))
	}
	b.WriteString(r.variantsText() + r.roundedText())
	r.Learnt.writeText(&b)
	if r.DryRun {
		b.WriteString("dry run: nothing was changed\n")
	}
	_, err := io.WriteString(w, b.String())
	return err
}

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

// writeSites writes the sites of one status, grouped by pattern and reason.
func (r *Report) writeSites(b *strings.Builder, status string) {
	var p places
	for _, s := range r.Sites {
		if s.Status == status {
			p.add(fmt.Sprintf("%s %s: %s", status, s.Pattern, s.Reason), s.Node)
		}
	}
	p.write(b)
}

// places groups nodes by text.
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

func (p *places) write(b *strings.Builder) {
	for _, text := range p.texts {
		fmt.Fprintf(b, "%s\n    at %s\n", text, english.Some(p.nodes[text]))
	}
}

// RepairReport is one site whose nodes fail for inputs that the op supports. A traced loop over the experts that tokens
// use produces such nodes: it fixes the number of experts in the file.
type RepairReport struct {
	Pattern string `json:"pattern"`
	Node    string `json:"node"`
	Text    string `json:"text"` // when the nodes fail
}

// repaired lists the fused sites that are repairs.
func repaired(sites []SiteReport) []RepairReport {
	var list []RepairReport
	for _, s := range sites {
		if s.Status == Fused && s.Check != nil && s.Check.Repairs != "" {
			list = append(list, RepairReport{s.Pattern, s.Node, s.Check.Repairs})
		}
	}
	return list
}

// writeRepairs writes how many sites were repaired or, with details, the faults, grouped by text.
func (r *Report) writeRepairs(b *strings.Builder, details bool) {
	if len(r.Repairs) == 0 {
		return
	}
	if !details {
		fmt.Fprintf(b, "%-18s %s: for some inputs the nodes fail or leave out tokens, but the op does not\n", "repairs",
			english.Counted(len(r.Repairs), "site"))
		return
	}
	var p places
	for _, x := range r.Repairs {
		p.add(fmt.Sprintf("repaired %s: %s", x.Pattern, x.Text), x.Node)
	}
	p.write(b)
}

// The names in reports for sites whose replacement has no kernel of this toolkit.
const (
	byFunction    = "function"
	byStandard    = "standard"
	byOnnxruntime = "onnxruntime"
)

// withoutKernel describes these names.
var withoutKernel = []struct{ id, what string }{
	{byFunction, "a function of the pattern file, which the model carries"},
	{byStandard, "ops of the standard"},
	{byOnnxruntime, "ops that only onnxruntime has (com.microsoft)"},
}

// writeTargets counts the sites that became ops without a kernel of this toolkit.
func (r *Report) writeTargets(b *strings.Builder) {
	for _, k := range withoutKernel {
		n := 0
		for _, s := range r.Sites {
			if s.Status == Fused && s.Kernel == k.id {
				n++
			}
		}
		if n > 0 {
			fmt.Fprintf(b, "%-18s %s; %s\n", k.id, english.Counted(n, "site"), k.what)
		}
	}
}

// overloadsSince is the oldest onnxruntime that distinguishes the overloads of a function (1.26.0 and older silently
// run one for all calls; 1.27.0 and newer run the right ones). Kernels are not affected.
const overloadsSince = "1.27"

// variants lists the fused ops with several definitions in the model, as overloads of one function.
func variants(m *onnx.Model) []string {
	count := map[string]int{}
	for _, f := range m.Functions {
		if f.Domain == fused.Domain {
			count[f.Name]++
		}
	}
	var names []string
	for name, n := range count {
		if n > 1 {
			names = append(names, onnx.OpName(fused.Domain, name))
		}
	}
	slices.Sort(names)
	return names
}

// variantsText explains the effect of the variants on older runtimes, or returns "".
func (r *Report) variantsText() string {
	if len(r.Variants) == 0 {
		return ""
	}
	return fmt.Sprintf("variants           %v: without registered kernels this model needs onnxruntime %s "+
		"or newer: older versions confuse the definitions\n", r.Variants, overloadsSince)
}

// writeOverflow writes at how many fused sites results differ because the nodes overflow, and at how many because the
// model guards against NaN. torch.onnx writes such a guard after every softmax, so it has a separate line: it would
// hide the other inputs.
func (r *Report) writeOverflow(b *strings.Builder) {
	isGuard := func(name string) bool { return name == sites.NaNQueries }
	over, inputs := r.inputsOf(func(c *CheckReport) []string {
		return slices.DeleteFunc(slices.Clone(c.Overflow), isGuard)
	})
	guarded, _ := r.inputsOf(func(c *CheckReport) []string {
		if slices.ContainsFunc(c.Overflow, isGuard) {
			return []string{sites.NaNQueries}
		}
		return nil
	})
	if over > 0 {
		fmt.Fprintf(b, "%-18s %s: results differ if numbers overflow, are subnormal, infinite or NaN, as on "+
			"these inputs: %s\n", "overflow", english.Counted(over, "site"), strings.Join(inputs, ", "))
	}
	if guarded > 0 {
		fmt.Fprintf(b, "%-18s %s: the model replaces NaN after the softmax, and the op returns NaN for queries that "+
			"are NaN or infinite\n", "NaN guard", english.Counted(guarded, "site"))
	}
}

// inputsOf counts the fused sites whose check names inputs, and lists the distinct inputs.
func (r *Report) inputsOf(named func(*CheckReport) []string) (count int, inputs []string) {
	for _, s := range r.Sites {
		if s.Status != Fused || s.Check == nil {
			continue
		}
		names := named(s.Check)
		if len(names) > 0 {
			count++
		}
		for _, name := range names {
			if !slices.Contains(inputs, name) {
				inputs = append(inputs, name)
			}
		}
	}
	return count, inputs
}

// writeTies writes at how many routers the op breaks ties in scores differently.
func (r *Report) writeTies(b *strings.Builder) {
	count, inputs := r.inputsOf(func(c *CheckReport) []string { return c.Ties })
	if count > 0 {
		fmt.Fprintf(b, "%-18s %s: if scores are equal, or rounding makes them equal, the op may choose another "+
			"expert than the model, as on these inputs: %s\n", "ties", english.Counted(count, "router"),
			strings.Join(inputs, ", "))
	}
}

// roundedText explains the effect of rounded activations on comparisons, or returns "".
func (r *Report) roundedText() string {
	text := ""
	if r.RoundedByRuntime > 0 {
		text = fmt.Sprintf("activations        rounded to 8 bits by onnxruntime in %s of the original model: set the "+
			"session's configuration session.qdq_matmulnbits_accuracy_level=0 to prevent it\n",
			english.Counted(r.RoundedByRuntime, "product"))
	}
	if r.Rounded == 0 {
		return text
	}
	return text + fmt.Sprintf("activations        rounded to 8 bits by %s: a change of the last digit changes "+
		"outputs, compare with diff --sensitivity\n", english.Counted(r.Rounded, "node"))
}
