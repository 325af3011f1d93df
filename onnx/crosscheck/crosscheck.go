package crosscheck

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/mojo-patch/mojo-patch/internal/regular"
	"github.com/mojo-patch/mojo-patch/onnx"
	"google.golang.org/protobuf/encoding/protowire"
)

// Result is the agreement of both readers.
type Result struct {
	// in all graphs and functions, without Constant nodes, which the second reader reads as initializers
	Nodes int `json:"nodes"`
	Edges int `json:"edges"` // pairs of an output and a value that it is computed from
	// Graphs counts the compared graphs and function bodies.
	Graphs int `json:"graphs"`
	// Reader is the second reader with its version.
	Reader string `json:"reader"`
	// LeftOut lists the parts that the second reader cannot read, with counts. The rest was compared.
	LeftOut []string `json:"left_out,omitempty"`
	// Undecoded is the reason if the second reader could not decode the model at all. Then nothing was compared.
	Undecoded string `json:"undecoded,omitempty"`
}

// String summarizes the result in one line.
func (r *Result) String() string {
	if r.Undecoded != "" {
		return fmt.Sprintf("nothing was compared: %s cannot decode the model: %s", r.Reader, r.Undecoded)
	}
	in := ""
	if r.Graphs > 1 {
		in = fmt.Sprintf(" in %d graphs and functions", r.Graphs)
	}
	s := fmt.Sprintf("%d nodes, %d edges equal%s (%s)", r.Nodes, r.Edges, in, r.Reader)
	if len(r.LeftOut) > 0 {
		s += "; not compared: " + strings.Join(r.LeftOut, ", ")
	}
	return s
}

// DifferenceError reports that the second reader sees another graph than the intended one.
type DifferenceError struct {
	Path string
	// Differences has one line per difference, and at least one.
	Differences []string
}

// listed is the number of differences in an error's text.
const listed = 3

// Error lists the first differences.
func (e *DifferenceError) Error() string {
	s := fmt.Sprintf("%s: %s reads another graph than the one that was written: %s", e.Path, Reader,
		strings.Join(e.Differences[:min(listed, len(e.Differences))], "; "))
	if more := len(e.Differences) - listed; more > 0 {
		s += fmt.Sprintf("; and %d more", more)
	}
	return s
}

// File decodes the model file at path with the second reader and compares the result with m, which was written there.
// It returns a *DifferenceError if they disagree. Parts that the second reader cannot decode are not an error: the
// Result lists them.
func File(path string, m *onnx.Model) (*Result, error) {
	f, size, err := regular.Open(path)
	if err != nil {
		return nil, fmt.Errorf("crosscheck: %w", err)
	}
	defer f.Close()
	return check(f, size, path, m)
}

func check(f io.ReadSeeker, size int64, path string, m *onnx.Model) (*Result, error) {
	var u unread
	encoded, err := skim(f, size, &u)
	if err != nil {
		return nil, fmt.Errorf("crosscheck: %s: %w", path, err)
	}
	graphs := places(m)
	r := &Result{Reader: Reader}
	var all []string
	for _, place := range slices.Sorted(maps.Keys(graphs)) {
		g := graphs[place]
		want, err := meant(g.graph)
		if err != nil {
			return nil, fmt.Errorf("crosscheck: %w", err)
		}
		b, ok := encoded[place]
		if !ok {
			all = append(all, g.what+" is not there")
			continue
		}
		delete(encoded, place)
		if len(want.nodes) == 0 && place != "" {
			continue // it passes values on: the second reader rejects that
		}
		got, err := decode(protowire.AppendBytes(protowire.AppendTag(nil, 7, protowire.BytesType), b))
		switch {
		case err != nil && place == "":
			return &Result{Reader: Reader, Undecoded: err.Error()}, nil
		case err != nil:
			u.add(fmt.Sprintf("%s: %v", g.what, err))
			continue
		}
		for _, d := range differences(got, want) {
			if place != "" {
				d = g.what + ": " + d
			}
			all = append(all, d)
		}
		r.Nodes += len(want.nodes)
		r.Edges += want.edges()
		r.Graphs++
	}
	if len(encoded) > 0 {
		all = append(all, fmt.Sprintf("%d graphs or functions more than expected", len(encoded)))
	}
	if len(all) > 0 {
		return nil, &DifferenceError{path, all}
	}
	r.LeftOut = u.list()
	return r, nil
}

// placed is a graph with a description of its place.
type placed struct {
	graph *onnx.Graph
	what  string
}

// places returns the graphs of a model by place, as in skimmer.graphs.
func places(m *onnx.Model) map[string]placed {
	at := map[string]placed{}
	var add func(place string, g placed)
	add = func(place string, g placed) {
		at[place] = g
		for i, n := range g.graph.Nodes {
			for j, a := range n.Attributes {
				for k, inner := range a.Subgraphs() {
					add(fmt.Sprintf("%s/%d/%d/%d", place, i, j, k),
						placed{inner, fmt.Sprintf("%s of node %q (%s)", a.Name, n.Name, n.OpType)})
				}
			}
		}
	}
	add("", placed{m.Graph, "the graph"})
	for i, f := range m.Functions {
		add(fmt.Sprintf("f%d", i), placed{f.Body, fmt.Sprintf("function %s.%s", f.Domain, f.Name)})
	}
	return at
}

// differences compares the graph that was read with the intended one.
func differences(got, want *topology) []string {
	var d []string
	add := func(format string, args ...any) { d = append(d, fmt.Sprintf(format, args...)) }
	if !slices.Equal(got.inputs, want.inputs) {
		add("the inputs are %q, expected %q", got.inputs, want.inputs)
	}
	if !slices.Equal(got.outputs, want.outputs) {
		add("the outputs are %q, expected %q", got.outputs, want.outputs)
	}
	if len(got.nodes) != len(want.nodes) {
		add("%d nodes, expected %d", len(got.nodes), len(want.nodes))
	}
	for i := range min(len(got.nodes), len(want.nodes)) {
		g, w := got.nodes[i], want.nodes[i]
		what := fmt.Sprintf("node %q (%s)", w.name, w.op)
		if g.op != w.op {
			add("%s is a %s", what, g.op)
		}
		d = append(d, listDifferences(what+": input", g.inputs, w.inputs)...)
		d = append(d, listDifferences(what+": output", g.outputs, w.outputs)...)
		for _, name := range slices.Sorted(maps.Keys(w.attributes)) {
			if have, ok := g.attributes[name]; !ok {
				add("%s: attribute %s is missing", what, name)
			} else if have != w.attributes[name] {
				add("%s: attribute %s is %s, expected %s", what, name, have, w.attributes[name])
			}
		}
		for _, name := range slices.Sorted(maps.Keys(g.attributes)) {
			if _, ok := w.attributes[name]; !ok {
				add("%s: unexpected attribute %s", what, name)
			}
		}
	}
	return d
}

func listDifferences(what string, got, want []string) []string {
	if len(got) != len(want) {
		return []string{fmt.Sprintf("%ss are %q, expected %q", what, got, want)}
	}
	var d []string
	for i := range want {
		if got[i] != want[i] {
			d = append(d, fmt.Sprintf("%s %d is %q, expected %q", what, i, got[i], want[i]))
		}
	}
	return d
}
