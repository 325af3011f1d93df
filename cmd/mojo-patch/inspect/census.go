package inspect

import (
	"cmp"
	"slices"

	"github.com/mojo-patch/mojo-patch/cmd/mojo-patch/cli"
	"github.com/mojo-patch/mojo-patch/fused"
	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/rewrite"
	"github.com/mojo-patch/mojo-patch/rewrite/inline"
)

// Census is the result of inspect, and its JSON form.
type Census struct {
	Schema     int              `json:"schema"`
	Path       string           `json:"path"`
	IRVersion  int64            `json:"ir_version"`
	Opsets     map[string]int64 `json:"opsets"`
	Exporter   string           `json:"exporter"`
	Nodes      int              `json:"nodes"`
	Functions  int              `json:"functions"`
	Parameters int64            `json:"parameters"`
	Bytes      int64            `json:"parameter_bytes"`
	Inputs     []port           `json:"inputs"`
	Outputs    []port           `json:"outputs"`
	// Ops counts nodes by op; an op outside the standard has its domain as a prefix. Domains counts nodes by domain.
	Ops            map[string]int          `json:"ops"`
	Domains        map[string]int          `json:"domains"`
	Initializers   []typeTotal             `json:"initializers"`
	LocalFunctions []localFunction         `json:"local_functions"`
	Fused          map[string]int          `json:"fused"`
	Raised         *rewrite.OpsetReport    `json:"raised,omitempty"`  // for the search
	Inlined        *inline.Report          `json:"inlined,omitempty"` // for the search
	Patterns       []rewrite.PatternReport `json:"patterns"`
	Sites          []rewrite.SiteReport    `json:"sites"`
	Warnings       []warning               `json:"warnings,omitempty"`

	counts     map[opName]int
	unverified int // sites whose check needs missing weights
}

// port is an input or an output.
type port struct {
	Name string `json:"name"`
	Type string `json:"type"`
}

type typeTotal struct {
	DataType string `json:"dtype"`
	Tensors  int    `json:"tensors"`
	Elements int64  `json:"elements"`
	Bytes    int64  `json:"bytes"`
}

// localFunction is a function in the model. Calls counts the nodes that call it, including those in functions.
type localFunction struct {
	Domain   string `json:"domain"`
	Name     string `json:"name"`
	Overload string `json:"overload,omitempty"`
	Nodes    int    `json:"nodes"`
	Calls    int    `json:"calls"`
}

type opName struct{ domain, op string }

// takeCensus counts the contents of a model.
func takeCensus(m *onnx.Model) *Census {
	file := rewrite.DescribeModel(m, m.Path)
	r := &Census{Schema: cli.JSONSchema, Path: m.Path, IRVersion: m.IRVersion, Exporter: file.Exporter,
		Functions: len(m.Functions),
		Nodes:     file.Nodes, Opsets: map[string]int64{}, Ops: map[string]int{}, Domains: map[string]int{},
		Fused:        map[string]int{},
		Initializers: []typeTotal{}, LocalFunctions: localFunctions(m), Inputs: ports(m.Graph.Inputs),
		Outputs: ports(m.Graph.Outputs), counts: map[opName]int{}}
	for _, o := range m.Opsets {
		r.Opsets[cli.DomainName(o.Domain)] = o.Version
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
			r.Domains[cli.DomainName(n.Domain)]++
			r.counts[opName{cli.DomainName(n.Domain), n.OpType}]++
		}
		for _, v := range g.Initializers() {
			r.weigh(v.Const)
		}
	})
	slices.SortFunc(r.Initializers, func(x, y typeTotal) int {
		return cmp.Or(cmp.Compare(y.Bytes, x.Bytes), cmp.Compare(x.DataType, y.DataType))
	})
	return r
}

func (r *Census) weigh(t *onnx.Tensor) {
	elements, bytes := max(t.Len(), 0), max(t.Size(), 0)
	r.Parameters += elements
	r.Bytes += bytes
	name := t.DataType.String()
	i := slices.IndexFunc(r.Initializers, func(w typeTotal) bool { return w.DataType == name })
	if i < 0 {
		i = len(r.Initializers)
		r.Initializers = append(r.Initializers, typeTotal{DataType: name})
	}
	w := &r.Initializers[i]
	w.Tensors++
	w.Elements += elements
	w.Bytes += bytes
}

func localFunctions(m *onnx.Model) []localFunction {
	calls := map[*onnx.Function]int{}
	for _, g := range m.Graphs() {
		for _, n := range g.Nodes {
			if f := m.Function(n.Domain, n.OpType, n.Overload); f != nil {
				calls[f]++
			}
		}
	}
	list := []localFunction{}
	for _, f := range m.Functions {
		l := localFunction{Domain: f.Domain, Name: f.Name, Overload: f.Overload, Calls: calls[f]}
		f.Body.Walk(func(g *onnx.Graph) { l.Nodes += len(g.Nodes) })
		list = append(list, l)
	}
	return list
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
