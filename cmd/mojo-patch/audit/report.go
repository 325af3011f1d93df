package audit

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/mojo-patch/mojo-patch/cmd/mojo-patch/cli"
	"github.com/mojo-patch/mojo-patch/cmd/mojo-patch/session"
)

// write prints the report for a person.
func (r *Report) write(a *cli.App) {
	w := a.Human()
	switch r.Source {
	case sourceSession:
		a.Say("placement: as %s assigns the nodes of %s", r.Runtime, r.Model)
	case sourceRegistry:
		a.Say("%s", cli.FirstLine(errors.New(r.Refused)))
		a.Say("placement: each kind of node opened in a model by itself, by the registered kernels")
	case sourceTable:
		besides := ""
		if r.Provider != session.ProviderCPU {
			besides = "; nodes that compute shapes may also run on the CPU"
		}
		a.Say("placement: by the list of kernels that %s has for %s, which was not found "+
			"here%s", r.Runtime, r.Provider, besides)
	case sourceFused:
		a.Say("placement: only fused ops, by the kernels that exist for %s", r.Provider)
	}
	for _, on := range slices.Sorted(maps.Keys(r.Placed)) {
		a.Say("  %s: %s", on, cli.Counted(r.Placed[on], "node"))
	}
	ops := slices.Clone(r.Ops)
	slices.SortStableFunc(ops, func(x, y auditedOp) int { return cmp.Compare(y.Nodes, x.Nodes) })
	if len(ops) > cli.CommonOps && !a.Verbose {
		a.Say("the %d most frequent of %d kinds of nodes (-v lists all)", cli.CommonOps, len(ops))
		ops = ops[:cli.CommonOps]
	}
	t := cli.NewTable("domain", "op", "types", ">nodes", "on")
	for _, o := range ops {
		t.Add(o.Domain, o.Op, strings.Join(o.Types, ", "), o.Nodes, providersText(o.On))
	}
	t.Write(w)
	left := slices.Clone(r.Elsewhere)
	slices.SortStableFunc(left, func(x, y placedOp) int { return cmp.Compare(y.Nodes, x.Nodes) })
	title := fmt.Sprintf("not on %s: %s", r.Provider, cli.Counted(r.left(), "node"))
	if len(left) > cli.CommonOps && !a.Verbose {
		title += fmt.Sprintf("; the %d most frequent of %d kinds (-v lists all)", cli.CommonOps, len(left))
		left = left[:cli.CommonOps]
	}
	t = cli.NewTable("op", "types", "on", ">nodes", "reason")
	for _, e := range left {
		t.Add(opText(e.Domain, e.Op), strings.Join(e.Types, ", "), cmp.Or(e.On, "none"), e.Nodes, e.Reason)
	}
	t.Section(w, title, len(left))
	unknown := ""
	if r.Copies.Unknown > 0 {
		unknown = fmt.Sprintf(" and %s of unknown size", cli.Counted(r.Copies.Unknown, "tensor"))
	}
	if r.Source != sourceFused {
		a.Say("copies between providers in a run: %s, at most %d bytes%s (%s)", cli.Counted(r.Copies.Tensors, "tensor"),
			r.Copies.Bytes, unknown, dimsText(r.Dims))
	}
	t = cli.NewTable("op", ">now", ">patched")
	for _, s := range r.Patching {
		t.Add(s.Op, s.Before, s.After)
	}
	t.Section(w, "nodes that patching removes", len(r.Patching))
}

func opText(domain, op string) string {
	if domain == cli.DomainName("") {
		return op
	}
	return domain + "." + op
}

func providersText(on map[string]int) string {
	var list []string
	for _, name := range slices.Sorted(maps.Keys(on)) {
		list = append(list, fmt.Sprintf("%s %d", name, on[name]))
	}
	return strings.Join(list, ", ")
}

func dimsText(dims map[string]int64) string {
	var list []string
	for _, name := range slices.Sorted(maps.Keys(dims)) {
		list = append(list, fmt.Sprintf("%s=%d", name, dims[name]))
	}
	return cmp.Or(strings.Join(list, " "), "fixed sizes")
}
