package onnx

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/mojo-patch/mojo-patch/onnx/internal/onnxpb"
)

// body decodes the nodes of a graph or function in two passes, outputs first, so that a node may precede the producer
// of its input. Sort then fixes the order, or finds the cycle.
func (d *decoder) body(g *Graph, nodes []*onnxpb.NodeProto, infos []*onnxpb.ValueInfoProto) error {
	g.Nodes = make([]*Node, len(nodes))
	for i, np := range nodes {
		n := &Node{position: i, Name: np.GetName(), OpType: np.GetOpType(), Domain: np.GetDomain(),
			Overload: np.GetOverload(),
			Metadata: entries(np.MetadataProps), Graph: g, proto: np}
		g.Nodes[i] = n
		n.Outputs = make([]*Value, len(np.Output))
		for k, name := range np.Output {
			if name == "" {
				continue
			}
			v := g.define(name)
			if v == nil {
				return g.definedTwice(name, "output of "+n.describe(i))
			}
			v.Producer, v.Output, n.Outputs[k] = n, k, v
		}
	}
	for _, ip := range infos {
		v := g.values[ip.GetName()]
		switch {
		case v == nil: // dangling: the message list keeps it, and its name stays taken
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
		if len(np.Attribute) > 0 {
			n.Attributes = make([]*Attribute, 0, len(np.Attribute))
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

// duplicateName finds a name that two attributes of a node share. It avoids a map for the usual few attributes.
func duplicateName(ps []*onnxpb.AttributeProto) (name string, found bool) {
	var seen map[string]bool
	if len(ps) > 16 {
		seen = make(map[string]bool, len(ps))
	}
	for k, p := range ps {
		name = p.GetName()
		if seen == nil {
			found = slices.ContainsFunc(ps[:k], func(q *onnxpb.AttributeProto) bool { return q.GetName() == name })
		} else {
			found, seen[name] = seen[name], true
		}
		if found {
			return name, true
		}
	}
	return "", false
}

// read finds the value that the current node reads. If its producer comes later, it marks the graph as unsorted.
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
	if err := d.attributeMessages(a, p, g); err != nil {
		return nil, fmt.Errorf("attribute %q: %w", a.Name, err)
	}
	return a, nil
}

// attributeMessages decodes the messages in an attribute.
func (d *decoder) attributeMessages(a *Attribute, p *onnxpb.AttributeProto, g *Graph) (err error) {
	if p.T != nil {
		if a.Tensor, err = d.tensor(p.T); err != nil {
			return err
		}
	}
	if p.G != nil {
		if a.Graph, err = d.graph(p.G, g, g.names); err != nil {
			return err
		}
	}
	for _, tp := range p.Tensors {
		t, err := d.tensor(tp)
		if err != nil {
			return err
		}
		a.Tensors = append(a.Tensors, t)
	}
	if p.SparseTensor != nil {
		err = d.sparse(p.SparseTensor)
	}
	for _, sp := range p.SparseTensors {
		err = cmp.Or(err, d.sparse(sp))
	}
	if err != nil {
		return err
	}
	for _, gp := range p.Graphs {
		s, err := d.graph(gp, g, g.names)
		if err != nil {
			return err
		}
		a.Graphs = append(a.Graphs, s)
	}
	return nil
}

func (n *Node) describe(i int) string {
	return fmt.Sprintf("node %d %q (%s)", i, n.Name, n.OpType)
}

// guessAttributeType supports IR versions before 2, which had no type field.
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
