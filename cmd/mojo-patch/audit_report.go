package main

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// write prints the report for a person.
func (r *auditReport) write(a *app) {
	w := a.human()
	switch r.Source {
	case sourceSession:
		a.say("placement: as %s assigns the nodes of %s", r.Runtime, r.Model)
	case sourceRegistry:
		a.say("%s", firstLine(errors.New(r.Refused)))
		a.say("placement: each kind of node opened in a model by itself, by the registered kernels")
	case sourceTable:
		besides := ""
		if r.Provider != providerCPU {
			besides = "; nodes that compute shapes may also run on the CPU"
		}
		a.say("placement: by the list of kernels that %s has for %s, which was not found "+
			"here%s", r.Runtime, r.Provider, besides)
	case sourceFused:
		a.say("placement: only fused ops, by the kernels that exist for %s", r.Provider)
	}
	for _, on := range slices.Sorted(maps.Keys(r.Placed)) {
		a.say("  %s: %s", on, counted(r.Placed[on], "node"))
	}
	ops := slices.Clone(r.Ops)
	slices.SortStableFunc(ops, func(x, y auditedOp) int { return cmp.Compare(y.Nodes, x.Nodes) })
	if len(ops) > commonOps && !a.verbose {
		a.say("the %d most frequent of %d kinds of nodes (-v lists all)", commonOps, len(ops))
		ops = ops[:commonOps]
	}
	t := newTable("domain", "op", "types", ">nodes", "on")
	for _, o := range ops {
		t.add(o.Domain, o.Op, strings.Join(o.Types, ", "), o.Nodes, providersText(o.On))
	}
	t.write(w)
	left := slices.Clone(r.Elsewhere)
	slices.SortStableFunc(left, func(x, y placedOp) int { return cmp.Compare(y.Nodes, x.Nodes) })
	title := fmt.Sprintf("not on %s: %s", r.Provider, counted(r.left(), "node"))
	if len(left) > commonOps && !a.verbose {
		title += fmt.Sprintf("; the %d most frequent of %d kinds (-v lists all)", commonOps, len(left))
		left = left[:commonOps]
	}
	t = newTable("op", "types", "on", ">nodes", "reason")
	for _, e := range left {
		t.add(opText(e.Domain, e.Op), strings.Join(e.Types, ", "), cmp.Or(e.On, "none"), e.Nodes, e.Reason)
	}
	t.section(w, title, len(left))
	unknown := ""
	if r.Copies.Unknown > 0 {
		unknown = fmt.Sprintf(" and %s of unknown size", counted(r.Copies.Unknown, "tensor"))
	}
	if r.Source != sourceFused {
		a.say("copies between providers in a run: %s, at most %d bytes%s (%s)", counted(r.Copies.Tensors, "tensor"),
			r.Copies.Bytes, unknown, dimsText(r.Dims))
	}
	t = newTable("op", ">now", ">patched")
	for _, s := range r.Patching {
		t.add(s.Op, s.Before, s.After)
	}
	t.section(w, "nodes that patching removes", len(r.Patching))
}

func opText(domain, op string) string {
	if domain == domainName("") {
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
