package onnx

import (
	"crypto/sha256"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
)

// GraphKey returns a text that is equal for graphs of the same nodes between the same names.
func GraphKey(g *Graph) string {
	var b strings.Builder
	for _, n := range g.Nodes {
		var plain []*Attribute
		for _, a := range n.Attributes {
			if a.Type == AttrGraph { // AttributesKey treats each as different
				fmt.Fprintf(&b, "%s {%s} of ", a.Name, GraphKey(a.Graph))
			} else {
				plain = append(plain, a)
			}
		}
		fmt.Fprintf(&b, "%s.%s.%s %v %v %s\n", n.Domain, n.OpType, n.Overload, Names(n.Inputs), Names(n.Outputs),
			AttributesKey(plain))
	}
	fmt.Fprintf(&b, "%v %v\n", Names(g.Inputs), Names(g.Outputs))
	return b.String()
}

// Names returns the names of values, "" for nil.
func Names(values []*Value) []string {
	names := make([]string, len(values))
	for i, v := range values {
		if v != nil {
			names[i] = v.Name
		}
	}
	return names
}

// SameBody reports whether two functions have the same nodes between the same names, with the same attributes and
// standard opset.
func (f *Function) SameBody(g *Function) bool {
	return f.Opset("") == g.Opset("") && slices.Equal(f.Attributes, g.Attributes) &&
		GraphKey(f.Body) == GraphKey(g.Body)
}

// AttributesKey returns a text that is equal for equal attributes in any order. An attribute with a graph equals only
// itself.
func AttributesKey(attrs []*Attribute) string {
	if len(attrs) == 0 {
		return ""
	}
	parts := make([]string, len(attrs))
	for i, a := range attrs {
		value := ""
		switch a.Type {
		case AttrFloat:
			value = strconv.FormatUint(uint64(math.Float32bits(a.Float)), 16)
		case AttrInt:
			value = strconv.FormatInt(a.Int, 10)
		case AttrString:
			value = strconv.Quote(a.String)
		case AttrFloats:
			value = fmt.Sprint(a.Floats)
		case AttrInts:
			value = fmt.Sprint(a.Ints)
		case AttrStrings:
			value = fmt.Sprintf("%q", a.Strings)
		case AttrTensor:
			value = TensorKey(a.Tensor)
		default: // equal only to itself
			value = fmt.Sprintf("%p", a)
		}
		parts[i] = a.Name + "=" + strconv.Itoa(int(a.Type)) + "@" + a.RefName + ":" + value
	}
	slices.Sort(parts)
	return "<" + strings.Join(parts, ";") + ">"
}

// TensorKey returns a text that is equal for tensors of equal type, shape and elements.
func TensorKey(t *Tensor) string {
	if t == nil {
		return "none"
	}
	head := fmt.Sprintf("%d%v", t.DataType, t.Dims)
	if t.DataType == String {
		return head + fmt.Sprintf("%q", t.Strings())
	}
	b, err := t.Bytes()
	if err != nil {
		return head + fmt.Sprintf("%p", t)
	}
	if len(b) > 32 {
		sum := sha256.Sum256(b)
		b = sum[:16]
	}
	return head + fmt.Sprintf("%x", b)
}
