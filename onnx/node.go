package onnx

import (
	"slices"
	"strings"

	"github.com/mojo-patch/mojo-patch/onnx/internal/onnxpb"
)

// Entry is one key and value of a metadata_props list.
type Entry struct{ Key, Value string }

// Node is one operation of a graph. Change Inputs and Outputs only through the methods of Node and Graph, which update
// the use lists.
type Node struct {
	Name     string
	OpType   string
	Domain   string // "" and "ai.onnx" are the standard's
	Overload string // of a model-local function
	// Inputs has nil for an omitted optional input, Outputs for an omitted output.
	Inputs     []*Value
	Outputs    []*Value
	Attributes []*Attribute
	Metadata   []Entry
	// Graph is the graph that contains the node; nil after removal.
	Graph *Graph

	position int // in the graph's Nodes, only while it is decoded or sorted
	proto    *onnxpb.NodeProto
}

// Is reports whether the node is the standard's op of this type (domain "" or "ai.onnx").
func (n *Node) Is(opType string) bool {
	return n != nil && n.OpType == opType && IsStandardDomain(n.Domain)
}

// Words returns the set of words in a text, such as the types of ops.
func Words(text string) map[string]bool {
	set := map[string]bool{}
	for _, w := range strings.Fields(text) {
		set[w] = true
	}
	return set
}

// MovesElements reports whether the outputs consist of elements of the first input, or of all inputs of a Concat,
// chosen only by their places: reordered, omitted or repeated, possibly in another type.
func (n *Node) MovesElements() bool {
	if n == nil || !IsStandardDomain(n.Domain) {
		return false
	}
	switch n.OpType {
	case "Identity", "Cast", "CastLike", "Reshape", "Flatten", "Squeeze", "Unsqueeze", "Transpose", "Expand", "Slice",
		"Split", "Gather", "GatherND", "Concat":
		return true
	}
	return false
}

// IsProduct reports whether the node multiplies with matrices, by an op of the standard or of onnxruntime, quantized or
// not.
func (n *Node) IsProduct() bool {
	if n == nil {
		return false
	}
	switch n.OpType {
	case "MatMul", "Gemm", "Linear", "Einsum", "MatMulNBits", "MatMulInteger", "QLinearMatMul", "Conv",
		"FusedMatMul", "FusedGemm", "MatMulIntegerToFloat", "DynamicQuantizeMatMul":
		return true
	}
	return false
}

// IsRandom reports whether the node makes random numbers.
func (n *Node) IsRandom() bool {
	switch n.OpType {
	case "RandomNormal", "RandomUniform", "RandomNormalLike", "RandomUniformLike", "Bernoulli", "Multinomial":
		return IsStandardDomain(n.Domain)
	}
	return false
}

// Walk calls visit for the node, then for the nodes of its bodies.
func (n *Node) Walk(visit func(*Node)) {
	visit(n)
	for _, g := range n.Subgraphs() {
		for _, m := range g.Nodes {
			m.Walk(visit)
		}
	}
}

// Microsoft is the domain of onnxruntime's own ops.
const Microsoft = "com.microsoft"

// IsStandardDomain reports whether the domain is the ONNX standard's, which has two spellings.
func IsStandardDomain(d string) bool { return d == "" || d == "ai.onnx" }

// OpName returns the name of an op with its domain, which standard ops omit.
func OpName(domain, opType string) string {
	if IsStandardDomain(domain) {
		return opType
	}
	return domain + "." + opType
}

// Input returns input i, or nil if it is omitted or the node has fewer.
func (n *Node) Input(i int) *Value {
	if i < 0 || i >= len(n.Inputs) {
		return nil
	}
	return n.Inputs[i]
}

// OutputValue returns output i, or nil if it is omitted or the node has fewer.
func (n *Node) OutputValue(i int) *Value {
	if i < 0 || i >= len(n.Outputs) {
		return nil
	}
	return n.Outputs[i]
}

// Attr returns the attribute of this name, or nil.
func (n *Node) Attr(name string) *Attribute {
	for _, a := range n.Attributes {
		if a.Name == name {
			return a
		}
	}
	return nil
}

// AttrInt returns an INT attribute, or def if it is absent or of another kind.
func (n *Node) AttrInt(name string, def int64) int64 {
	if a := n.Attr(name); a != nil && a.Type == AttrInt && a.RefName == "" {
		return a.Int
	}
	return def
}

// AttrFloat returns a FLOAT attribute, or def if it is absent or of another kind.
func (n *Node) AttrFloat(name string, def float32) float32 {
	if a := n.Attr(name); a != nil && a.Type == AttrFloat && a.RefName == "" {
		return a.Float
	}
	return def
}

// AttrString returns a STRING attribute, or def if it is absent or of another kind.
func (n *Node) AttrString(name, def string) string {
	if a := n.Attr(name); a != nil && a.Type == AttrString && a.RefName == "" {
		return a.String
	}
	return def
}

// AttrInts returns an INTS attribute, or nil if it is absent or of another kind.
func (n *Node) AttrInts(name string) []int64 {
	if a := n.Attr(name); a != nil && a.Type == AttrInts && a.RefName == "" {
		return a.Ints
	}
	return nil
}

// SetAttr adds the attribute, or replaces the attribute of the same name.
func (n *Node) SetAttr(a *Attribute) {
	for i, old := range n.Attributes {
		if old.Name == a.Name {
			n.Attributes[i] = a
			return
		}
	}
	n.Attributes = append(n.Attributes, a)
}

// RemoveAttr removes the attribute of this name, which must not contain a graph.
func (n *Node) RemoveAttr(name string) {
	n.Attributes = slices.DeleteFunc(n.Attributes, func(a *Attribute) bool { return a.Name == name })
}

// SetInput makes v input i of the node, extending the list if needed; v may be nil.
func (n *Node) SetInput(i int, v *Value) {
	for len(n.Inputs) <= i {
		n.Inputs = append(n.Inputs, nil)
	}
	if old := n.Inputs[i]; old != nil {
		old.removeUse(n, i)
	}
	n.Inputs[i] = v
	if v != nil {
		v.uses = append(v.uses, Use{n, i})
	}
}

// TakeOutput makes v, which another node may produce, output i of this node. The value keeps its name, its uses and its
// declared type. The former producer gets an omitted output.
func (n *Node) TakeOutput(i int, v *Value) {
	if p := v.Producer; p != nil && v.Output < len(p.Outputs) && p.Outputs[v.Output] == v {
		p.Outputs[v.Output] = nil
	}
	for len(n.Outputs) <= i {
		n.Outputs = append(n.Outputs, nil)
	}
	n.Outputs[i] = v
	v.Producer, v.Output = n, i
}

// Subgraphs lists the graphs in the node's attributes (the bodies of If, Loop, Scan).
func (n *Node) Subgraphs() []*Graph {
	var gs []*Graph
	for _, a := range n.Attributes {
		gs = append(gs, a.Subgraphs()...)
	}
	return gs
}

// removeUse removes one use from the list and keeps the order of the others. Values with very many uses are usually
// rewired from the first use to the last or back, so both ends are cheap.
func (v *Value) removeUse(n *Node, i int) {
	use := Use{n, i}
	if last := len(v.uses) - 1; last >= 0 && v.uses[last] == use {
		v.uses = v.uses[:last]
		return
	}
	k := slices.Index(v.uses, use)
	switch {
	case k == 0:
		v.uses = v.uses[1:]
	case k > 0:
		v.uses = append(v.uses[:k], v.uses[k+1:]...)
	}
}
