package onnx

import (
	"fmt"
	"strconv"

	"github.com/mojo-patch/mojo-patch/onnx/internal/onnxpb"
)

// decoder turns messages into a Model. Every object keeps its message for what is not modelled.
type decoder struct {
	files *externalFiles
	// raw gives the raw_data that was split off a tensor before decoding; see split.go.
	raw func(*onnxpb.TensorProto) []byte
}

func (d *decoder) model(p *onnxpb.ModelProto) (*Model, error) {
	m := &Model{
		IRVersion:       p.GetIrVersion(),
		ProducerName:    p.GetProducerName(),
		ProducerVersion: p.GetProducerVersion(),
		Opsets:          opsets(p.OpsetImport),
		Metadata:        entries(p.MetadataProps),
		proto:           p,
		files:           d.files,
	}
	if p.Graph == nil {
		return nil, fmt.Errorf("the model has no graph")
	}
	var err error
	if m.Graph, err = d.graph(p.Graph, nil, newNames()); err != nil {
		return nil, err
	}
	seen := map[[3]string]bool{}
	for _, fp := range p.Functions {
		f, err := d.function(fp)
		if err != nil {
			return nil, fmt.Errorf("function %s.%s: %w", fp.GetDomain(), fp.GetName(), err)
		}
		key := [3]string{f.Domain, f.Name, f.Overload}
		if seen[key] {
			return nil, fmt.Errorf("function %s.%s (overload %q) is defined twice", f.Domain, f.Name, f.Overload)
		}
		seen[key] = true
		m.Functions = append(m.Functions, f)
	}
	return m, nil
}

func (d *decoder) function(p *onnxpb.FunctionProto) (*Function, error) {
	f := &Function{
		Domain: p.GetDomain(), Name: p.GetName(), Overload: p.GetOverload(),
		Attributes: p.Attribute, Opsets: opsets(p.OpsetImport), DocString: p.GetDocString(),
		Metadata: entries(p.MetadataProps), proto: p,
	}
	g := newGraph(nil, newNames())
	f.Body = g
	for _, name := range p.Input {
		v, err := g.define(name, "input")
		if err != nil {
			return nil, err
		}
		v.IsInput = true
		g.Inputs = append(g.Inputs, v)
	}
	for _, ap := range p.AttributeProto {
		a, err := d.attribute(ap, g)
		if err != nil {
			return nil, err
		}
		f.Defaults = append(f.Defaults, a)
	}
	if err := d.body(g, p.Node, p.ValueInfo); err != nil {
		return nil, err
	}
	for _, name := range p.Output {
		v := g.Value(name)
		if v == nil {
			return nil, fmt.Errorf("output %q is made by no node", name)
		}
		g.AddOutput(v)
	}
	return f, nil
}

func (d *decoder) graph(p *onnxpb.GraphProto, parent *Graph, n *names) (*Graph, error) {
	g := newGraph(parent, n)
	g.Name, g.Metadata, g.proto = p.GetName(), entries(p.MetadataProps), p
	for _, ip := range p.Input {
		v, err := g.define(ip.GetName(), "graph input")
		if err != nil {
			return nil, err
		}
		v.IsInput, v.info = true, ip
		g.Inputs = append(g.Inputs, v)
	}
	for _, tp := range p.Initializer {
		t, err := d.tensor(tp)
		if err != nil {
			return nil, err
		}
		v := g.values[t.Name]
		if v == nil {
			if v, err = g.define(t.Name, "initializer"); err != nil {
				return nil, err
			}
		} else if v.Const != nil {
			return nil, fmt.Errorf("initializer %q is defined twice", t.Name)
		}
		v.Const = t
		g.initializers = append(g.initializers, v)
	}
	for _, sp := range p.SparseInitializer { // opaque: it only defines a name
		if _, err := g.define(sp.GetValues().GetName(), "sparse initializer"); err != nil {
			return nil, err
		}
	}
	if err := d.body(g, p.Node, p.ValueInfo); err != nil {
		return nil, err
	}
	for _, op := range p.Output {
		v := g.Value(op.GetName())
		if v == nil {
			return nil, fmt.Errorf("graph output %q of graph %q is made by no node", op.GetName(), g.Name)
		}
		g.AddOutput(v)
		if v.info == nil && v.Graph == g {
			v.info = op
		}
	}
	return g, nil
}

// body decodes the nodes of a graph or function in two passes: outputs first, so that a node may stand before the
// producer of its input (Sort then mends the order, or finds the cycle).
func (d *decoder) body(g *Graph, nodes []*onnxpb.NodeProto, infos []*onnxpb.ValueInfoProto) error {
	g.Nodes = make([]*Node, len(nodes))
	for i, np := range nodes {
		n := &Node{Name: np.GetName(), OpType: np.GetOpType(), Domain: np.GetDomain(), Overload: np.GetOverload(),
			Metadata: entries(np.MetadataProps), Graph: g, proto: np}
		g.Nodes[i] = n
		n.Outputs = make([]*Value, len(np.Output))
		for k, name := range np.Output {
			if name == "" {
				continue
			}
			v, err := g.define(name, "output of "+n.describe(i))
			if err != nil {
				return err
			}
			v.Producer, v.Output, n.Outputs[k] = n, k, v
		}
	}
	for _, ip := range infos {
		v := g.values[ip.GetName()]
		if v == nil { // dangling: kept, so that nothing is lost
			v = &Value{Name: ip.GetName(), Graph: g}
		} else if v.info != nil {
			continue // a graph input, or a second entry: the message list keeps it
		}
		v.info = ip
		g.infoOrder = append(g.infoOrder, v)
	}
	sorted := true
	position := make(map[*Node]int, len(g.Nodes))
	for i, n := range g.Nodes {
		position[n] = i
	}
	for i, np := range nodes {
		n := g.Nodes[i]
		n.Inputs = make([]*Value, len(np.Input))
		for k, name := range np.Input {
			if name == "" {
				continue
			}
			v := g.Value(name)
			if v == nil {
				return fmt.Errorf("%s reads %q, which nothing defines", n.describe(i), name)
			}
			n.SetInput(k, v)
		}
		for _, ap := range np.Attribute {
			a, err := d.attribute(ap, g)
			if err != nil {
				return fmt.Errorf("%s: %w", n.describe(i), err)
			}
			n.Attributes = append(n.Attributes, a)
		}
		for _, v := range n.reads(nil) {
			if v.Producer != nil && v.Graph == g && position[v.Producer] >= i {
				sorted = false
			}
		}
	}
	if !sorted {
		return g.Sort()
	}
	return nil
}

func (d *decoder) attribute(p *onnxpb.AttributeProto, g *Graph) (*Attribute, error) {
	a := &Attribute{Name: p.GetName(), Type: AttributeType(p.GetType()), RefName: p.GetRefAttrName(),
		Float: p.GetF(), Int: p.GetI(), String: string(p.S), Floats: p.Floats, Ints: p.Ints, proto: p}
	if a.Type == AttrUndefined {
		a.Type = guessAttributeType(p)
	}
	for _, s := range p.Strings {
		a.Strings = append(a.Strings, string(s))
	}
	var err error
	if p.T != nil {
		if a.Tensor, err = d.tensor(p.T); err != nil {
			return nil, fmt.Errorf("attribute %q: %w", a.Name, err)
		}
	}
	if p.G != nil {
		if a.Graph, err = d.graph(p.G, g, g.names); err != nil {
			return nil, fmt.Errorf("attribute %q: %w", a.Name, err)
		}
	}
	for _, tp := range p.Tensors {
		t, err := d.tensor(tp)
		if err != nil {
			return nil, fmt.Errorf("attribute %q: %w", a.Name, err)
		}
		a.Tensors = append(a.Tensors, t)
	}
	for _, gp := range p.Graphs {
		s, err := d.graph(gp, g, g.names)
		if err != nil {
			return nil, fmt.Errorf("attribute %q: %w", a.Name, err)
		}
		a.Graphs = append(a.Graphs, s)
	}
	return a, nil
}

func (d *decoder) tensor(p *onnxpb.TensorProto) (*Tensor, error) {
	t := &Tensor{Name: p.GetName(), DataType: DataType(p.GetDataType()), Dims: p.Dims, raw: p.RawData, proto: p, files: d.files}
	if d.raw != nil && t.raw == nil {
		t.raw = d.raw(p)
	}
	if p.GetDataLocation() == onnxpb.TensorProto_EXTERNAL {
		e := &External{Length: -1}
		for _, kv := range p.ExternalData {
			var err error
			switch kv.GetKey() {
			case "location":
				e.Location = kv.GetValue()
			case "offset":
				e.Offset, err = strconv.ParseInt(kv.GetValue(), 10, 64)
			case "length":
				e.Length, err = strconv.ParseInt(kv.GetValue(), 10, 64)
			case "checksum":
				e.Checksum = kv.GetValue()
			}
			if err != nil {
				return nil, fmt.Errorf("tensor %q: external_data %s is %q, not a number", t.Name, kv.GetKey(), kv.GetValue())
			}
		}
		t.External = e
	} else if t.raw != nil && t.DataType != String {
		n, err := byteSize(t.DataType, t.Dims)
		if err != nil {
			return nil, fmt.Errorf("tensor %q: %w", t.Name, err)
		}
		if n != int64(len(t.raw)) {
			return nil, fmt.Errorf("tensor %q: %s%v takes %d bytes, raw_data holds %d", t.Name, t.DataType, t.Dims, n, len(t.raw))
		}
	}
	return t, nil
}

// define makes a value of this name in the graph; two definitions of one name in a graph are an error (SSA).
func (g *Graph) define(name, what string) (*Value, error) {
	if _, dup := g.values[name]; dup {
		return nil, fmt.Errorf("value %q is defined twice in graph %q, the second time as %s", name, g.Name, what)
	}
	v := &Value{Name: name, Graph: g}
	g.values[name] = v
	g.names.used[name] = struct{}{}
	return v, nil
}

func (n *Node) describe(i int) string {
	return fmt.Sprintf("node %d %q (%s)", i, n.Name, n.OpType)
}

// guessAttributeType serves IR versions before 2, which had no type field.
func guessAttributeType(p *onnxpb.AttributeProto) AttributeType {
	switch {
	case p.F != nil:
		return AttrFloat
	case p.I != nil:
		return AttrInt
	case p.S != nil:
		return AttrString
	case p.T != nil:
		return AttrTensor
	case p.G != nil:
		return AttrGraph
	case len(p.Floats) > 0:
		return AttrFloats
	case len(p.Ints) > 0:
		return AttrInts
	case len(p.Strings) > 0:
		return AttrStrings
	}
	return AttrUndefined
}

func opsets(ps []*onnxpb.OperatorSetIdProto) []Opset {
	var os []Opset
	for _, p := range ps {
		os = append(os, Opset{p.GetDomain(), p.GetVersion()})
	}
	return os
}

func entries(ps []*onnxpb.StringStringEntryProto) []Entry {
	var es []Entry
	for _, p := range ps {
		es = append(es, Entry{p.GetKey(), p.GetValue()})
	}
	return es
}
