package rules

import (
	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/reference"
)

// Frame is the context of a graph: the model's main graph, or one call of a function.
type Frame struct {
	Opset int64
	Attrs map[string]*onnx.Attribute // the attributes of the call
	Facts map[*onnx.Value]*Fact
	Eval  *reference.Evaluator
	// Function means that references to attributes must be resolved.
	Function bool
}

// Attr returns an attribute of a node, following a reference to the call of the enclosing function.
func (fr *Frame) Attr(n *onnx.Node, name string) *onnx.Attribute {
	a := n.Attr(name)
	if a == nil || a.RefName == "" {
		return a
	}
	return fr.Attrs[a.RefName]
}

// RefersToCaller reports whether an attribute of a node refers to the call of the enclosing function.
func (fr *Frame) RefersToCaller(n *onnx.Node) bool {
	if fr.Function {
		for _, a := range n.Attributes {
			if a.RefName != "" {
				return true
			}
		}
	}
	return false
}

// resolved returns the node with references to the caller's attributes replaced by their values.
func (fr *Frame) resolved(n *onnx.Node) *onnx.Node {
	if !fr.RefersToCaller(n) {
		return n
	}
	r := *n
	r.Attributes = nil
	for _, a := range n.Attributes {
		if a.RefName == "" {
			r.Attributes = append(r.Attributes, a)
		} else if b := fr.Attrs[a.RefName]; b != nil {
			named := *b
			named.Name = a.Name
			r.Attributes = append(r.Attributes, &named)
		}
	}
	return &r
}

// Canonical returns the domain of ops, "" for the standard's under any of its names.
func Canonical(domain string) string {
	if onnx.IsStandardDomain(domain) {
		return ""
	}
	return domain
}
