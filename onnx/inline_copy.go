package onnx

import (
	"fmt"
	"slices"
	"strings"

	"github.com/mojo-patch/mojo-patch/onnx/internal/onnxpb"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// expansion is one call being replaced by a body.
type expansion struct {
	function *Function        // nil outside functions
	attrs    map[string]bound // the function's attributes
	prefix   string           // of names
	metadata []Entry          // of the call, for the nodes that replace it
}

// scope copies the graph source to the graph at. Copies of graphs in attributes have their own scopes, inside the scope
// of the graph they refer to.
type scope struct {
	*expansion
	source *Graph // nil at the top, where nothing is copied
	at     *Graph
	values map[*Value]*Value // a nil copy is an omitted input of the call
	outer  *scope
}

// bound is the value of a function's attribute, and the scope of values in its graphs.
type bound struct {
	attr  *Attribute
	scope *scope
}

// value returns the copy of a value, or the value itself if its graph is not copied.
func (sc *scope) value(v *Value) *Value {
	if v == nil {
		return nil
	}
	for s := sc; s != nil; s = s.outer {
		if w, known := s.values[v]; known {
			return w
		}
		if s.source != nil && v.Graph == s.source {
			w := s.at.NewValue(s.join(v.Name))
			w.info = inlinedInfo(v, w.Name)
			s.values[v] = w
			return w
		}
	}
	return v
}

// resolve returns the value of a node's attribute. ok is false if it refers to an attribute that the call omits.
func (sc *scope) resolve(a *Attribute) (b bound, ok bool) {
	if a.RefName == "" || sc.function == nil {
		return bound{a, sc}, true
	}
	b, ok = sc.attrs[a.RefName]
	return b, ok
}

// maxPrefix is the limit on a name's prefix in bytes: it keeps the last calls of a deep nest.
const maxPrefix = 400

// join prefixes a name with the names of the calls.
func (x *expansion) join(name string) string {
	if x.prefix == "" {
		return name
	}
	prefix := x.prefix
	if len(prefix) > maxPrefix {
		prefix = prefix[len(prefix)-maxPrefix:]
		if _, rest, found := strings.Cut(prefix, "/"); found {
			prefix = rest
		} else {
			prefix = strings.ToValidUTF8(prefix, "")
		}
	}
	return prefix + "/" + name
}

// Label returns the name of the node, or else of its first output, or else its op.
func (n *Node) Label() string {
	if n.Name != "" {
		return n.Name
	}
	for _, v := range n.Outputs {
		if v != nil {
			return v.Name
		}
	}
	return n.OpType
}

// copyNodes appends copies of the nodes of sc.source, with replacements for the calls.
func (in *inliner) copyNodes(nodes []*Node, sc *scope, out *[]*Node) error {
	for _, n := range nodes {
		replaced, err := in.replace(n, sc, out)
		if err == nil && !replaced {
			err = in.copyNode(n, sc, out)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (in *inliner) copyNode(n *Node, sc *scope, out *[]*Node) error {
	if in.made++; in.made > maxInlined {
		return in.tooMany()
	}
	if err := in.use(n.Domain, sc.function); err != nil {
		return err
	}
	inputs := make([]*Value, len(n.Inputs))
	for i, v := range n.Inputs {
		inputs[i] = sc.value(v)
	}
	made := sc.at.NewNode(n.OpType, inputs)
	made.Domain, made.Overload, made.Metadata = n.Domain, n.Overload, inherit(n.Metadata, sc.metadata)
	made.proto = shallow(n.proto)
	if n.Name != "" {
		made.Name = in.nodeNames.unique(sc.join(n.Name))
	}
	made.Outputs = make([]*Value, len(n.Outputs))
	for i, v := range n.Outputs {
		if v != nil {
			made.TakeOutput(i, sc.value(v))
		}
	}
	for _, a := range n.Attributes {
		b, ok := sc.resolve(a)
		if !ok {
			continue
		}
		c, err := in.copyAttribute(b, sc.at)
		if err != nil {
			return fmt.Errorf("attribute %q of node %q: %w", a.Name, n.Label(), err)
		}
		c.Name = a.Name
		made.Attributes = append(made.Attributes, c)
	}
	*out = append(*out, made)
	return nil
}

// copyAttribute copies an attribute to a node of graph at.
func (in *inliner) copyAttribute(b bound, at *Graph) (*Attribute, error) {
	c := *b.attr
	c.proto = shallow(c.proto)
	c.Tensor = c.Tensor.copy()
	c.Tensors = slices.Clone(c.Tensors)
	for i, t := range c.Tensors {
		c.Tensors[i] = t.copy()
	}
	var err error
	if c.Graph != nil {
		if c.Graph, err = in.copyGraph(c.Graph, at, b.scope); err != nil {
			return nil, err
		}
	}
	c.Graphs = slices.Clone(c.Graphs)
	for i, g := range c.Graphs {
		if c.Graphs[i], err = in.copyGraph(g, at, b.scope); err != nil {
			return nil, err
		}
	}
	return &c, nil
}

// copyGraph copies a graph in an attribute.
func (in *inliner) copyGraph(g, parent *Graph, outer *scope) (*Graph, error) {
	in.depth++
	defer func() { in.depth-- }()
	if in.depth > maxCallDepth {
		return nil, in.tooMany()
	}
	if len(g.proto.GetSparseInitializer()) > 0 {
		return nil, fmt.Errorf("graph %q has a sparse initializer, which is not supported here", g.Name)
	}
	c := newGraph(parent, parent.names, 0)
	c.Name, c.Metadata = g.Name, slices.Clone(g.Metadata)
	if g.proto != nil {
		c.proto = &onnxpb.GraphProto{DocString: g.proto.DocString}
		c.proto.ProtoReflect().SetUnknown(g.proto.ProtoReflect().GetUnknown())
	}
	sc := &scope{expansion: outer.expansion, source: g, at: c, values: make(map[*Value]*Value, len(g.values)),
		outer: outer}
	for _, v := range g.Inputs {
		w := sc.value(v)
		w.IsInput = true
		c.Inputs = append(c.Inputs, w)
	}
	for _, v := range g.initializers {
		w := sc.value(v)
		w.Const = v.Const.copy()
		w.Const.Name = w.Name
		c.initializers = append(c.initializers, w)
	}
	if err := in.copyNodes(g.Nodes, sc, &c.Nodes); err != nil {
		return nil, err
	}
	for _, v := range g.Outputs {
		w := sc.value(v)
		if w == nil {
			return nil, fmt.Errorf("graph %q returns the function's input %q, which the call does not pass", g.Name,
				v.Name)
		}
		c.AddOutput(w)
	}
	return c, nil
}

// constants writes the initializers of a branch to the target graph. In function bodies, which have no initializers,
// they become Constant nodes.
func (in *inliner) constants(branch *Graph, sc *scope, out *[]*Node) {
	for _, v := range branch.initializers {
		t := v.Const.copy()
		if in.root == nil {
			t.Name = sc.join(v.Name)
			sc.values[v] = sc.at.AddInitializer(t)
			continue
		}
		n := sc.at.NewNode("Constant", nil, TensorAttr("value", t))
		n.TakeOutput(0, sc.value(v))
		*out = append(*out, n)
	}
}

// copy returns a tensor of the same elements whose name can change.
func (t *Tensor) copy() *Tensor {
	if t == nil {
		return nil
	}
	c := *t
	c.proto = shallow(t.proto)
	return &c
}

// shallow copies a message but shares its lists and messages with the original.
func shallow[M interface {
	comparable
	proto.Message
}](p M) M {
	var none M
	if p == none {
		return none
	}
	from := p.ProtoReflect()
	to := from.New()
	from.Range(func(f protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		to.Set(f, v)
		return true
	})
	to.SetUnknown(from.GetUnknown())
	return to.Interface().(M)
}

// inlinedInfo copies the declared type of a value without names of dimensions, which belong to the function and differ
// from call to call.
func inlinedInfo(v *Value, name string) *onnxpb.ValueInfoProto {
	if v.info == nil || v.info.Type == nil {
		return nil
	}
	info := proto.Clone(v.info).(*onnxpb.ValueInfoProto)
	info.Name = ptr(name)
	forgetDims(info.Type)
	return info
}

func forgetDims(t *onnxpb.TypeProto) {
	forget := func(s *onnxpb.TensorShapeProto) {
		for _, d := range s.GetDim() {
			if d.GetDimParam() != "" {
				d.Value = nil
			}
		}
	}
	for ; t != nil; t = elementType(t) {
		forget(t.GetTensorType().GetShape())
		forget(t.GetSparseTensorType().GetShape())
	}
}

// elementType returns the element type of a sequence, an optional or a map, nil for tensors.
func elementType(t *onnxpb.TypeProto) *onnxpb.TypeProto {
	switch {
	case t.GetSequenceType() != nil:
		return t.GetSequenceType().GetElemType()
	case t.GetOptionalType() != nil:
		return t.GetOptionalType().GetElemType()
	}
	return t.GetMapType().GetValueType()
}

// inherit adds the entries of outer whose keys own lacks.
func inherit(own, outer []Entry) []Entry {
	all := slices.Clone(own)
	for _, e := range outer {
		if !slices.ContainsFunc(own, func(o Entry) bool { return o.Key == e.Key }) {
			all = append(all, e)
		}
	}
	return all
}
