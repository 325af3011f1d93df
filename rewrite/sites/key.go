package sites

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/reference"
	"github.com/mojo-patch/mojo-patch/reference/infer"
)

// key returns everything that a check's result depends on, so that equal sites have equal keys: the structure of the
// slice, its attributes and constants, and the shapes and types of its inputs. It leaves out the elements of inputs,
// including weights, because a fused op has to hold for any.
func (s *slice) key(facts *infer.Facts, worlds []int) string {
	var b strings.Builder
	names := map[*onnx.Value]string{}
	for i, v := range s.inputs {
		if _, ok := names[v]; !ok {
			names[v] = "i" + strconv.Itoa(i)
		}
		fmt.Fprintf(&b, "%s=%v", names[v], facts.DataType(v))
		for _, w := range worlds {
			shape, ok := facts.Shape(v, w)
			fmt.Fprintf(&b, " %v%v", shape, ok)
		}
		b.WriteByte('\n')
	}
	for v, in := range s.equal {
		names[v] = names[in]
	}
	for _, v := range s.consts {
		names[v] = "c" + onnx.TensorKey(v.Constant())
	}
	for _, v := range s.known {
		name := "k"
		for _, w := range worlds {
			t, _ := facts.Known(v, w)
			name += valueKey(t)
		}
		names[v] = name
	}
	k := &keyWriter{b: &b, names: names}
	k.nodes(s.nodes)
	for _, v := range s.outputs {
		b.WriteString(names[v])
		b.WriteByte(' ')
	}
	return b.String()
}

// keyWriter writes nodes by their computation. Values are named by their origin.
type keyWriter struct {
	b     *strings.Builder
	names map[*onnx.Value]string
	count int // number of named values
}

func (k *keyWriter) name(v *onnx.Value) {
	if v != nil && k.names[v] == "" {
		k.names[v] = "n" + strconv.Itoa(k.count)
		k.count++
	}
}

func (k *keyWriter) nodes(nodes []*onnx.Node) {
	for _, n := range nodes {
		fmt.Fprintf(k.b, "%s.%s.%s(", n.Domain, n.OpType, n.Overload)
		for _, v := range n.Inputs {
			k.b.WriteString(k.names[v])
			k.b.WriteByte(',')
		}
		fmt.Fprintf(k.b, ")%d", len(n.Outputs))
		k.b.WriteString(onnx.AttributesKey(slices.DeleteFunc(slices.Clone(n.Attributes), holdsGraph)))
		k.graphs(n)
		k.b.WriteByte('\n')
		for _, v := range n.Outputs {
			k.name(v)
		}
	}
}

func holdsGraph(a *onnx.Attribute) bool { return a.Graph != nil }

// graphs writes the subgraphs of a node, by the names of their attributes.
func (k *keyWriter) graphs(n *onnx.Node) {
	held := slices.DeleteFunc(slices.Clone(n.Attributes), func(a *onnx.Attribute) bool { return !holdsGraph(a) })
	slices.SortFunc(held, func(a, b *onnx.Attribute) int { return strings.Compare(a.Name, b.Name) })
	for _, a := range held {
		for _, v := range a.Graph.Inputs {
			k.name(v)
		}
		fmt.Fprintf(k.b, "%s{%d\n", a.Name, len(a.Graph.Inputs))
		k.nodes(a.Graph.Nodes)
		for _, v := range a.Graph.Outputs {
			k.b.WriteString(k.names[v])
			k.b.WriteByte(' ')
		}
		k.b.WriteByte('}')
	}
}

func valueKey(t *reference.Tensor) string {
	if t == nil {
		return "none"
	}
	return fmt.Sprintf("%d%v%v%v%q", t.DataType, t.Shape, t.F, t.I, t.S)
}
