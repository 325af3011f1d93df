package crosscheck

import (
	"fmt"
	"reflect"
	"strconv"
	"strings"

	"github.com/mojo-patch/mojo-patch/onnx"
)

// topology is the part of a graph that both readers see.
type topology struct {
	nodes           []node
	inputs, outputs []string
}

type node struct {
	op         string
	attributes map[string]string // in canonical text
	inputs     []string          // names of values, "" for an omitted input
	outputs    []string
	name       string // only in the intended graph
}

// edges counts the pairs of an output and a value that it is computed from.
func (t *topology) edges() int {
	count := 0
	for _, n := range t.nodes {
		in, out := 0, 0
		for _, s := range n.inputs {
			if s != "" {
				in++
			}
		}
		for _, s := range n.outputs {
			if s != "" {
				out++
			}
		}
		count += in * out
	}
	return count
}

// meant returns the topology that the second reader should see for a graph in memory.
func meant(g *onnx.Graph) (*topology, error) {
	t := &topology{outputs: names(g.Outputs)}
	for _, v := range g.Inputs {
		if v.Const == nil { // an input with a default value is an initializer there
			t.inputs = append(t.inputs, v.Name)
		}
	}
	for _, n := range g.Nodes {
		if n.Is("Constant") {
			continue
		}
		m := node{op: n.OpType, name: n.Name, attributes: map[string]string{}, inputs: names(n.Inputs),
			outputs: names(n.Outputs)}
		if len(m.inputs) == 0 && len(m.outputs) > 0 {
			m.inputs = []string{n.Name + "/input"} // the second reader's result for a node without inputs
		}
		for _, a := range n.Attributes {
			if a.RefName != "" {
				m.attributes[a.Name] = text("@" + a.RefName)
				continue
			}
			if !readable(a.Type) ||
				a.Type == onnx.AttrTensor && (a.Tensor == nil || !readableTensor(a.Tensor.DataType, a.Tensor.Dims)) {
				continue
			}
			text, err := attributeText(a)
			if err != nil {
				return nil, fmt.Errorf("node %q: attribute %s: %w", n.Name, a.Name, err)
			}
			m.attributes[a.Name] = text
		}
		t.nodes = append(t.nodes, m)
	}
	return t, nil
}

func names(vs []*onnx.Value) []string {
	s := make([]string, len(vs))
	for i, v := range vs {
		if v != nil {
			s[i] = v.Name
		}
	}
	return s
}

func attributeText(a *onnx.Attribute) (string, error) {
	switch a.Type {
	case onnx.AttrFloat:
		return text(a.Float), nil
	case onnx.AttrInt:
		return text(a.Int), nil
	case onnx.AttrString:
		return text(a.String), nil
	case onnx.AttrFloats:
		return text(a.Floats), nil
	case onnx.AttrInts:
		return text(a.Ints), nil
	case onnx.AttrStrings:
		return text(a.Strings), nil
	}
	elements, err := elements(a.Tensor)
	if err != nil {
		return "", err
	}
	return tensorText(a.Tensor.Dims, elements), nil
}

func tensorText[D int | int64](dims []D, elements any) string {
	s := make([]string, len(dims))
	for i, d := range dims {
		s[i] = strconv.FormatInt(int64(d), 10)
	}
	return "tensor[" + strings.Join(s, " ") + "] " + text(elements)
}

// text writes a number, a text or a list with its type. A number differs from a list of one number.
func text(x any) string {
	v := reflect.ValueOf(x)
	if !v.IsValid() {
		return "nothing"
	}
	if v.Kind() == reflect.Slice {
		list := make([]string, v.Len())
		for i := range list {
			list[i] = text(v.Index(i).Interface())
		}
		return "[" + strings.Join(list, ", ") + "]"
	}
	switch v.Kind() {
	case reflect.Float32:
		return "float " + strconv.FormatFloat(v.Float(), 'g', -1, 32)
	case reflect.Float64:
		return "double " + strconv.FormatFloat(v.Float(), 'g', -1, 64)
	case reflect.String:
		return strconv.Quote(v.String())
	}
	return fmt.Sprint(x)
}
