package main

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"

	"github.com/mojo-patch/mojo-patch/fused"
	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/rewrite"
	"github.com/spf13/cobra"
)

// census is what inspect finds, and its JSON form.
type census struct {
	Schema     int                     `json:"schema"`
	Path       string                  `json:"path"`
	IRVersion  int64                   `json:"ir_version"`
	Opsets     map[string]int64        `json:"opsets"`
	Exporter   string                  `json:"exporter"`
	Nodes      int                     `json:"nodes"`
	Functions  int                     `json:"functions"`
	Parameters int64                   `json:"parameters"`
	Bytes      int64                   `json:"parameter_bytes"`
	Inputs     []port                  `json:"inputs"`
	Outputs    []port                  `json:"outputs"`
	Ops        map[string]int          `json:"ops"`
	Fused      map[string]int          `json:"fused"`
	Patterns   []rewrite.PatternReport `json:"patterns"`
	Sites      []rewrite.SiteReport    `json:"sites"`
}

type port struct {
	Name string `json:"name"`
	Type string `json:"type"`
}

func newInspect(a *app) *cobra.Command {
	c := &cobra.Command{
		Use:   "inspect MODEL",
		Short: "Say what is inside a model: ops, recognised blocks, near misses",
		Long: `inspect counts the ops of a model, the blocks that apply would fuse, and the fused ops it holds already. Blocks are
recognised, not checked by evaluation: apply does that. Weights need not be there. -v lists every op and every near miss.`,
		Example: `  mojo-patch inspect model.onnx
  mojo-patch inspect model.onnx --json | jq .patterns`,
		Args: modelArgs(1, 1),
		RunE: func(_ *cobra.Command, args []string) error {
			m, err := a.read(args[0], onnx.AllowMissingData())
			if err != nil {
				return err
			}
			defer m.Close()
			r, err := takeCensus(m)
			if err != nil {
				return err
			}
			if a.json {
				return a.printJSON(r)
			}
			r.write(a.human(), a.verbose)
			return nil
		},
	}
	a.jsonFlag(c)
	return c
}

func takeCensus(m *onnx.Model) (*census, error) {
	file := rewrite.DescribeModel(m, m.Path)
	r := &census{Schema: jsonSchema, Path: m.Path, IRVersion: m.IRVersion, Exporter: file.Exporter, Functions: len(m.Functions),
		Nodes: file.Nodes, Opsets: map[string]int64{}, Ops: map[string]int{}, Fused: map[string]int{},
		Inputs: ports(m.Graph.Inputs), Outputs: ports(m.Graph.Outputs)}
	for _, o := range m.Opsets {
		r.Opsets[domainName(o.Domain)] = o.Version
	}
	for _, op := range fused.Ops() {
		r.Fused[op.Name] = 0
	}
	m.Graph.Walk(func(g *onnx.Graph) {
		for _, n := range g.Nodes {
			name := n.OpType
			if n.Domain == fused.Domain {
				r.Fused[name]++
			}
			if !onnx.IsStandardDomain(n.Domain) {
				name = n.Domain + "." + name
			}
			r.Ops[name]++
		}
		for _, v := range g.Initializers() {
			r.Parameters += max(v.Const.Len(), 0)
			r.Bytes += max(v.Const.Size(), 0)
		}
	})
	report, err := rewrite.ApplyDefaultKernels(m, rewrite.Auto, rewrite.AssumeAvailable(), rewrite.WithDryRun(),
		rewrite.WithVerify(rewrite.VerifyOff), rewrite.WithToolVersion(toolVersion()))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", m.Path, err)
	}
	r.Patterns, r.Sites = report.Patterns, report.Sites
	return r, nil
}

func domainName(d string) string {
	if onnx.IsStandardDomain(d) {
		return "ai.onnx"
	}
	return d
}

func ports(values []*onnx.Value) []port {
	list := []port{}
	for _, v := range values {
		t, ok := v.Type()
		p := port{Name: v.Name, Type: "?"}
		if ok {
			p.Type = t.String()
		}
		list = append(list, p)
	}
	return list
}

// commonOps is how many of the ops are listed without --verbose.
const commonOps = 12

func (r *census) write(w io.Writer, verbose bool) {
	fmt.Fprintf(w, "%s: IR %d, %s\n", r.Path, r.IRVersion, cmp.Or(r.Exporter, "exporter not named"))
	for _, d := range slices.Sorted(maps.Keys(r.Opsets)) {
		fmt.Fprintf(w, "  opset %s %d\n", d, r.Opsets[d])
	}
	writePorts(w, "input ", r.Inputs, verbose)
	writePorts(w, "output", r.Outputs, verbose)
	fmt.Fprintf(w, "  %d parameters in %d bytes, %d nodes, %d model-local functions\n", r.Parameters, r.Bytes, r.Nodes, r.Functions)
	fmt.Fprintln(w, "ops")
	names := slices.SortedFunc(maps.Keys(r.Ops), func(x, y string) int {
		return cmp.Or(cmp.Compare(r.Ops[y], r.Ops[x]), cmp.Compare(x, y))
	})
	t := newTable("op", ">count")
	rest := 0
	for i, name := range names {
		if !verbose && i >= commonOps {
			rest += r.Ops[name]
			continue
		}
		t.add(name, strconv.Itoa(r.Ops[name]))
	}
	if rest > 0 {
		t.add(fmt.Sprintf("%d other ops", len(names)-commonOps), strconv.Itoa(rest))
	}
	t.write(w)
	fmt.Fprintln(w, "recognised blocks")
	t = newTable("block", ">found", ">can be fused")
	for _, p := range r.Patterns {
		t.add(p.Name, strconv.Itoa(p.Found), strconv.Itoa(p.Fused))
	}
	t.write(w)
	fmt.Fprintln(w, "fused ops already there")
	t = newTable("op", ">count")
	for _, op := range fused.Ops() {
		t.add(op.Name, strconv.Itoa(r.Fused[op.Name]))
	}
	t.write(w)
	r.writeSites(w, verbose)
}

// commonPorts is how many inputs and outputs are listed without --verbose: a cache has two for every layer.
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

// writeSites lists the recognised blocks that cannot be fused, and under --verbose the near misses.
func (r *census) writeSites(w io.Writer, verbose bool) {
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
		fmt.Fprintf(w, "%d near misses (-v says where and why)\n", misses)
	}
}
