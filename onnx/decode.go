package onnx

import (
	"errors"
	"fmt"

	"github.com/mojo-patch/mojo-patch/onnx/internal/onnxpb"
)

// decoder turns messages into a Model. Every object keeps its message for what is not modelled.
type decoder struct {
	files *externalFiles
	// opaque are the tensors at places that are not modelled: sparse tensors and training info.
	opaque []*Tensor
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
		return nil, errors.New("the model has no graph")
	}
	var err error
	if m.Graph, err = d.graph(p.Graph, nil, newNames()); err != nil {
		return nil, err
	}
	seen := map[functionKey]bool{}
	for _, fp := range p.Functions {
		f, err := d.function(fp)
		if err != nil {
			return nil, fmt.Errorf("function %s.%s: %w", fp.GetDomain(), fp.GetName(), err)
		}
		if seen[f.key()] {
			return nil, fmt.Errorf("function %s.%s (overload %q) is defined twice", f.Domain, f.Name, f.Overload)
		}
		seen[f.key()] = true
		m.Functions = append(m.Functions, f)
	}
	if err := m.checkCalls(); err != nil {
		return nil, err
	}
	tensorMessages(func(tp *onnxpb.TensorProto, _ bool) {
		if e := d.opaqueTensor(tp); err == nil && e != nil {
			err = fmt.Errorf("training info: %w", e)
		}
	}).model(&onnxpb.ModelProto{TrainingInfo: p.TrainingInfo})
	m.opaque = d.opaque
	return m, err
}

// opaqueTensor checks a tensor that stands where the model has no field for it.
func (d *decoder) opaqueTensor(p *onnxpb.TensorProto) error {
	t, err := d.tensor(p)
	if err == nil {
		d.opaque = append(d.opaque, t)
	}
	return err
}

func (d *decoder) sparse(p *onnxpb.SparseTensorProto) (err error) {
	tensorMessages(func(tp *onnxpb.TensorProto, _ bool) {
		if e := d.opaqueTensor(tp); err == nil && e != nil {
			err = fmt.Errorf("sparse %w", e)
		}
	}).sparse(p)
	return err
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
			return nil, fmt.Errorf("initializer of graph %q: %w", g.Name, err)
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
	for _, sp := range p.SparseInitializer { // opaque: it only defines a name, or is the default of an input
		if err := d.sparse(sp); err != nil {
			return nil, fmt.Errorf("initializer of graph %q: %w", g.Name, err)
		}
		name := sp.GetValues().GetName()
		if v := g.values[name]; v != nil && v.IsInput && v.Const == nil {
			continue
		}
		if _, err := g.define(name, "sparse initializer"); err != nil {
			return nil, err
		}
	}
	if err := d.body(g, p.Node, p.ValueInfo); err != nil {
		return nil, err
	}
	for _, op := range p.Output {
		v := g.read(op.GetName())
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
		n := &Node{position: i, Name: np.GetName(), OpType: np.GetOpType(), Domain: np.GetDomain(), Overload: np.GetOverload(),
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
		switch {
		case v == nil: // dangling: the message list keeps it, its name stays taken
			g.names.used[ip.GetName()] = struct{}{}
		case v.info == nil: // else a graph input, or a second entry: the message list keeps it
			v.info = ip
			g.infoOrder = append(g.infoOrder, v)
		}
	}
	for i, np := range nodes {
		n := g.Nodes[i]
		g.reading = i
		n.Inputs = make([]*Value, len(np.Input))
		for k, name := range np.Input {
			if name == "" {
				continue
			}
			v := g.read(name)
			if v == nil {
				return fmt.Errorf("%s reads %q, which nothing defines", n.describe(i), name)
			}
			n.SetInput(k, v)
		}
		if name, found := duplicateName(np.Attribute); found {
			return fmt.Errorf("%s has the attribute %q twice", n.describe(i), name)
		}
		for _, ap := range np.Attribute {
			a, err := d.attribute(ap, g)
			if err != nil {
				return fmt.Errorf("%s: %w", n.describe(i), err)
			}
			n.Attributes = append(n.Attributes, a)
		}
	}
	g.reading = len(g.Nodes)
	if g.unsorted {
		g.unsorted = false
		return g.Sort()
	}
	return nil
}

// duplicateName finds a name that two attributes of a node have.
func duplicateName(ps []*onnxpb.AttributeProto) (name string, found bool) {
	if len(ps) > 16 {
		seen := make(map[string]bool, len(ps))
		for _, p := range ps {
			if seen[p.GetName()] {
				return p.GetName(), true
			}
			seen[p.GetName()] = true
		}
		return "", false
	}
	for k, p := range ps {
		for _, q := range ps[:k] {
			if p.GetName() == q.GetName() {
				return p.GetName(), true
			}
		}
	}
	return "", false
}

// read finds the value that a node being decoded reads, and notes in the value's graph when its producer stands later.
func (g *Graph) read(name string) *Value {
	v := g.Value(name)
	if v != nil && v.Producer != nil && v.Producer.position >= v.Graph.reading {
		v.Graph.unsorted = true
	}
	return v
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
	if p.SparseTensor != nil {
		if err := d.sparse(p.SparseTensor); err != nil {
			return nil, fmt.Errorf("attribute %q: %w", a.Name, err)
		}
	}
	for _, sp := range p.SparseTensors {
		if err := d.sparse(sp); err != nil {
			return nil, fmt.Errorf("attribute %q: %w", a.Name, err)
		}
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
	t := &Tensor{Name: p.GetName(), DataType: DataType(p.GetDataType()), Dims: p.Dims, proto: p, files: d.files}
	if err := d.tensorData(t, p); err != nil {
		return nil, fmt.Errorf("tensor %q: %w", t.Name, err)
	}
	return t, nil
}

// tensorData finds the elements of t and checks that they fit its shape. An empty raw_data beside typed fields counts
// as absent.
func (d *decoder) tensorData(t *Tensor, p *onnxpb.TensorProto) (err error) {
	if p.GetDataLocation() == onnxpb.TensorProto_EXTERNAL {
		if t.External, err = parseExternal(p); err != nil {
			return err
		}
		return d.files.check(t)
	}
	n, err := elementCount(t.Dims)
	if err != nil || p.RawData == nil {
		return err
	}
	if len(p.RawData) == 0 && n > 0 && hasTypedData(p) {
		return nil
	}
	t.raw = p.RawData
	if t.DataType == String || t.DataType > lastDataType { // types of a later version pass through unseen
		return nil
	}
	if n, err = byteSize(t.DataType, t.Dims); err != nil {
		return err
	}
	if n != int64(len(t.raw)) {
		return fmt.Errorf("%s%v takes %d bytes, raw_data holds %d", t.DataType, t.Dims, n, len(t.raw))
	}
	return nil
}

func hasTypedData(p *onnxpb.TensorProto) bool {
	return len(p.FloatData)+len(p.Int32Data)+len(p.Int64Data)+len(p.DoubleData)+len(p.Uint64Data)+len(p.StringData) > 0
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
