package onnx

import (
	"slices"
	"strconv"

	"github.com/mojo-patch/mojo-patch/onnx/internal/onnxpb"
	"google.golang.org/protobuf/proto"
)

// The encoder updates the kept messages. It writes a field only if it differs from the message, so that an unchanged
// model is written back with the same fields, set or unset.

func (m *Model) message() *onnxpb.ModelProto {
	if m.proto == nil {
		m.proto = &onnxpb.ModelProto{}
	}
	p := m.proto
	set(&p.IrVersion, p.GetIrVersion(), m.IRVersion)
	set(&p.ProducerName, p.GetProducerName(), m.ProducerName)
	set(&p.ProducerVersion, p.GetProducerVersion(), m.ProducerVersion)
	p.OpsetImport = opsetMessages(p.OpsetImport, m.Opsets)
	p.MetadataProps = entryMessages(p.MetadataProps, m.Metadata)
	p.Graph = m.Graph.message()
	p.Functions = messages(m.Functions, (*Function).message)
	return p
}

// messages returns the messages of a list of objects.
func messages[T, P any](list []T, message func(T) P) []P {
	ps := make([]P, len(list))
	for i, x := range list {
		ps[i] = message(x)
	}
	return ps
}

func (f *Function) message() *onnxpb.FunctionProto {
	if f.proto == nil {
		f.proto = &onnxpb.FunctionProto{}
	}
	p := f.proto
	set(&p.Domain, p.GetDomain(), f.Domain)
	set(&p.Name, p.GetName(), f.Name)
	set(&p.Overload, p.GetOverload(), f.Overload)
	set(&p.DocString, p.GetDocString(), f.DocString)
	p.Attribute = f.Attributes
	p.AttributeProto = messages(f.Defaults, (*Attribute).message)
	p.OpsetImport = opsetMessages(p.OpsetImport, f.Opsets)
	p.MetadataProps = entryMessages(p.MetadataProps, f.Metadata)
	p.Input = valueNames(p.Input, f.Body.Inputs)
	p.Output = valueNames(p.Output, f.Body.Outputs)
	p.Node = messages(f.Body.Nodes, (*Node).message)
	p.ValueInfo = f.Body.infoMessages(p.ValueInfo)
	return p
}

func (g *Graph) message() *onnxpb.GraphProto {
	if g.proto == nil {
		g.proto = &onnxpb.GraphProto{}
	}
	p := g.proto
	set(&p.Name, p.GetName(), g.Name)
	p.MetadataProps = entryMessages(p.MetadataProps, g.Metadata)
	p.Node = messages(g.Nodes, (*Node).message)
	p.Initializer = messages(g.initializers, func(v *Value) *onnxpb.TensorProto { return v.Const.message() })
	p.ValueInfo = g.infoMessages(p.ValueInfo)
	p.Input = ioMessages(p.Input, g.Inputs)
	p.Output = ioMessages(g.declared, g.Outputs)
	return p
}

// infoMessages keeps the value_info entries of values that still exist (or never did), in order, and appends those of
// new values.
func (g *Graph) infoMessages(old []*onnxpb.ValueInfoProto) []*onnxpb.ValueInfoProto {
	owner := make(map[*onnxpb.ValueInfoProto]*Value, len(g.infoOrder))
	removed := map[string]bool{}
	values := g.infoOrder[:0:0]
	for _, v := range g.infoOrder {
		if g.values[v.Name] != v {
			removed[v.Name] = true
			continue
		}
		owner[v.info] = v
		values = append(values, v)
	}
	kept := make([]*onnxpb.ValueInfoProto, 0, len(old))
	for _, p := range old {
		if owner[p] != nil || !removed[p.GetName()] {
			kept = append(kept, p)
		}
	}
	for _, n := range g.Nodes {
		for _, v := range n.Outputs {
			if v != nil && v.info != nil && v.Graph == g && !v.IsOutput() && owner[v.info] == nil {
				owner[v.info] = v
				values = append(values, v)
				kept = append(kept, v.info)
			}
		}
	}
	g.infoOrder = values
	return kept
}

func (n *Node) message() *onnxpb.NodeProto {
	if n.proto == nil {
		n.proto = &onnxpb.NodeProto{}
	}
	p := n.proto
	set(&p.Name, p.GetName(), n.Name)
	set(&p.OpType, p.GetOpType(), n.OpType)
	set(&p.Domain, p.GetDomain(), n.Domain)
	set(&p.Overload, p.GetOverload(), n.Overload)
	p.Input = valueNames(p.Input, n.Inputs)
	p.Output = valueNames(p.Output, n.Outputs)
	p.MetadataProps = entryMessages(p.MetadataProps, n.Metadata)
	p.Attribute = messages(n.Attributes, (*Attribute).message)
	return p
}

func (a *Attribute) message() *onnxpb.AttributeProto {
	if a.proto == nil {
		a.proto = &onnxpb.AttributeProto{Type: onnxpb.AttributeProto_AttributeType(a.Type).Enum()}
		switch a.Type { // a fresh attribute sets its field even to the zero value
		case AttrFloat:
			a.proto.F = ptr(a.Float)
		case AttrInt:
			a.proto.I = ptr(a.Int)
		case AttrString:
			a.proto.S = []byte(a.String)
		}
		if a.RefName != "" {
			a.proto.F, a.proto.I, a.proto.S = nil, nil, nil
		}
	}
	p := a.proto
	set(&p.Name, p.GetName(), a.Name)
	set(&p.RefAttrName, p.GetRefAttrName(), a.RefName)
	set(&p.F, p.GetF(), a.Float)
	set(&p.I, p.GetI(), a.Int)
	if string(p.S) != a.String {
		p.S = []byte(a.String)
	}
	p.Floats, p.Ints = a.Floats, a.Ints
	p.Strings = messages(a.Strings, func(s string) []byte { return []byte(s) })
	p.T, p.G = nil, nil
	if a.Tensor != nil {
		p.T = a.Tensor.message()
	}
	if a.Graph != nil {
		p.G = a.Graph.message()
	}
	p.Tensors = messages(a.Tensors, (*Tensor).message)
	p.Graphs = messages(a.Graphs, (*Graph).message)
	return p
}

func (t *Tensor) message() *onnxpb.TensorProto {
	if t.proto == nil {
		t.proto = &onnxpb.TensorProto{RawData: t.raw}
	}
	p := t.proto
	set(&p.Name, p.GetName(), t.Name)
	set(&p.DataType, p.GetDataType(), int32(t.DataType))
	p.Dims = t.Dims
	if t.External == nil {
		return p
	}
	if now, err := parseExternal(p); err != nil || *now != *t.External || p.DataLocation == nil {
		p.DataLocation = onnxpb.TensorProto_EXTERNAL.Enum()
		p.ExternalData = externalEntries(t.External)
	}
	return p
}

func externalEntries(e *External) []*onnxpb.StringStringEntryProto {
	es := []Entry{{"location", e.Location}, {"offset", strconv.FormatInt(e.Offset, 10)}}
	if e.Length >= 0 {
		es = append(es, Entry{"length", strconv.FormatInt(e.Length, 10)})
	}
	if e.Checksum != "" {
		es = append(es, Entry{"checksum", e.Checksum})
	}
	return entryMessages(nil, es)
}

// set writes v to a message's optional field unless the field, set or unset, already reads as v.
func set[T comparable](field **T, current, v T) {
	if current != v {
		*field = &v
	}
}

// valueNames returns the names of the values, "" for omitted ones. It returns old if the names are unchanged.
func valueNames(old []string, vs []*Value) []string {
	name := func(v *Value) string {
		if v == nil {
			return ""
		}
		return v.Name
	}
	if slices.EqualFunc(old, vs, func(s string, v *Value) bool { return s == name(v) }) {
		return old
	}
	return messages(vs, name)
}

// ioMessages returns the declarations of a graph's inputs or outputs. It keeps the old ones. A value that is an input
// and an output, or an output with an entry in value_info, has two: a new type of the value is the type of both.
func ioMessages(old []*onnxpb.ValueInfoProto, vs []*Value) []*onnxpb.ValueInfoProto {
	ps := make([]*onnxpb.ValueInfoProto, len(vs))
	for i, v := range vs {
		switch {
		case i < len(old) && old[i].GetName() == v.Name:
			if ps[i] = old[i]; v.retyped && v.info != old[i] {
				ps[i] = proto.Clone(old[i]).(*onnxpb.ValueInfoProto)
				ps[i].Type = v.info.Type
			}
		case v.info != nil:
			set(&v.info.Name, v.info.GetName(), v.Name)
			ps[i] = v.info
		default:
			ps[i] = &onnxpb.ValueInfoProto{Name: ptr(v.Name)}
		}
	}
	return ps
}

func opsetMessages(old []*onnxpb.OperatorSetIdProto, os []Opset) []*onnxpb.OperatorSetIdProto {
	ps := make([]*onnxpb.OperatorSetIdProto, len(os))
	for i, o := range os {
		if i < len(old) && old[i].GetDomain() == o.Domain {
			ps[i] = old[i]
		} else {
			ps[i] = &onnxpb.OperatorSetIdProto{Domain: ptr(o.Domain)}
		}
		set(&ps[i].Version, ps[i].GetVersion(), o.Version)
	}
	return ps
}

func entryMessages(old []*onnxpb.StringStringEntryProto, es []Entry) []*onnxpb.StringStringEntryProto {
	if len(es) == 0 {
		return nil
	}
	ps := make([]*onnxpb.StringStringEntryProto, len(es))
	for i, e := range es {
		if i < len(old) && old[i].GetKey() == e.Key && old[i].GetValue() == e.Value {
			ps[i] = old[i]
		} else {
			ps[i] = &onnxpb.StringStringEntryProto{Key: ptr(e.Key), Value: ptr(e.Value)}
		}
	}
	return ps
}
