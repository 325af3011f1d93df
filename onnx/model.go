package onnx

import "github.com/mojo-patch/mojo-patch/onnx/internal/onnxpb"

// Opset is one entry of a list of opset imports.
type Opset struct {
	Domain  string
	Version int64
}

// Model is an ONNX model.
type Model struct {
	IRVersion       int64
	ProducerName    string
	ProducerVersion string
	Opsets          []Opset
	Graph           *Graph
	Functions       []*Function
	Metadata        []Entry
	// Path is the file that the model was read from, empty for a model made in memory.
	Path string

	proto   *onnxpb.ModelProto
	files   *externalFiles
	opaque  []*Tensor // of sparse tensors and training info
	closers []func() error
}

// Function is a model-local function (FunctionProto), identified by domain, name and overload.
type Function struct {
	Domain   string
	Name     string
	Overload string
	// Attributes are the names of the attributes without a default.
	Attributes []string
	// Defaults are the attributes with a default value.
	Defaults []*Attribute
	Opsets   []Opset
	// Body contains the nodes; its inputs and outputs are the function's.
	Body      *Graph
	DocString string
	Metadata  []Entry

	proto *onnxpb.FunctionProto
}

// New makes an empty model that imports the standard opset.
func New(irVersion, opset int64) *Model {
	m := &Model{IRVersion: irVersion, Opsets: []Opset{{"", opset}}, Graph: newGraph(nil, newNames(0), 0)}
	m.Graph.Name = "main" // onnx.checker requires a name
	return m
}

// NewFunction makes an empty function that imports the standard opset.
func NewFunction(domain, name, overload string, opset int64) *Function {
	return &Function{Domain: domain, Name: name, Overload: overload, Opsets: []Opset{{"", opset}},
		Body: newGraph(nil, newNames(0), 0)}
}

// Opset returns the version of the domain that the model imports, 0 if it does not.
func (m *Model) Opset(domain string) int64 { return opsetOf(m.Opsets, domain) }

// Opset returns the version of the domain that the function imports, 0 if it does not.
func (f *Function) Opset(domain string) int64 { return opsetOf(f.Opsets, domain) }

// ImportOpset adds the domain at this version, or raises the imported version.
func (m *Model) ImportOpset(domain string, version int64) {
	for i, o := range m.Opsets {
		if sameDomain(o.Domain, domain) {
			m.Opsets[i].Version = max(o.Version, version)
			return
		}
	}
	m.Opsets = append(m.Opsets, Opset{domain, version})
}

// Function finds a model-local function, or nil.
func (m *Model) Function(domain, name, overload string) *Function {
	for _, f := range m.Functions {
		if sameDomain(f.Domain, domain) && f.Name == name && f.Overload == overload {
			return f
		}
	}
	return nil
}

// Graphs lists the main graph and the function bodies, each with its subgraphs.
func (m *Model) Graphs() []*Graph {
	var gs []*Graph
	m.Graph.Walk(func(g *Graph) { gs = append(gs, g) })
	for _, f := range m.Functions {
		f.Body.Walk(func(g *Graph) { gs = append(gs, g) })
	}
	return gs
}

// Close releases the mapped files. Tensors of the model must not be used afterwards.
func (m *Model) Close() error {
	var first error
	for _, c := range m.closers {
		if err := c(); err != nil && first == nil {
			first = err
		}
	}
	m.closers = nil
	return first
}

// newGraph makes a graph with room for this many values.
func newGraph(parent *Graph, n *names, values int) *Graph {
	return &Graph{Parent: parent, values: make(map[string]*Value, values), names: n}
}

func opsetOf(opsets []Opset, domain string) int64 {
	for _, o := range opsets {
		if sameDomain(o.Domain, domain) {
			return o.Version
		}
	}
	return 0
}

func sameDomain(a, b string) bool {
	return a == b || IsStandardDomain(a) && IsStandardDomain(b)
}
