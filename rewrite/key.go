package rewrite

import (
	"crypto/sha256"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/reference"
	"github.com/mojo-patch/mojo-patch/reference/infer"
)

// key writes what a check's result depends on, so that equal sites have equal keys: the structure of the slice, its
// attributes and constants, and the shapes and types of its inputs. Elements of inputs, weights among them, are not part
// of it: a fused op has to hold for any.
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
		names[v] = "c" + tensorKey(v.Constant())
	}
	for _, v := range s.known {
		name := "k"
		for _, w := range worlds {
			t, _ := facts.Known(v, w)
			name += valueKey(t)
		}
		names[v] = name
	}
	for i, n := range s.nodes {
		fmt.Fprintf(&b, "%s.%s.%s(", n.Domain, n.OpType, n.Overload)
		for _, v := range n.Inputs {
			b.WriteString(names[v])
			b.WriteByte(',')
		}
		fmt.Fprintf(&b, ")%d", len(n.Outputs))
		b.WriteString(attributesKey(n.Attributes))
		b.WriteByte('\n')
		for k, v := range n.Outputs {
			if v != nil {
				names[v] = fmt.Sprintf("n%d.%d", i, k)
			}
		}
	}
	for _, v := range s.outputs {
		b.WriteString(names[v])
		b.WriteByte(' ')
	}
	return b.String()
}

// attributesKey writes attributes in the order of their names.
func attributesKey(attrs []*onnx.Attribute) string {
	if len(attrs) == 0 {
		return ""
	}
	parts := make([]string, len(attrs))
	for i, a := range attrs {
		value := ""
		switch a.Type {
		case onnx.AttrFloat:
			value = strconv.FormatUint(uint64(math.Float32bits(a.Float)), 16)
		case onnx.AttrInt:
			value = strconv.FormatInt(a.Int, 10)
		case onnx.AttrString:
			value = strconv.Quote(a.String)
		case onnx.AttrFloats:
			value = fmt.Sprint(a.Floats)
		case onnx.AttrInts:
			value = fmt.Sprint(a.Ints)
		case onnx.AttrStrings:
			value = fmt.Sprintf("%q", a.Strings)
		case onnx.AttrTensor:
			value = tensorKey(a.Tensor)
		default: // equal only to itself
			value = fmt.Sprintf("%p", a)
		}
		parts[i] = a.Name + "=" + strconv.Itoa(int(a.Type)) + "@" + a.RefName + ":" + value
	}
	slices.Sort(parts)
	return "<" + strings.Join(parts, ";") + ">"
}

// tensorKey stands for a constant's type, shape and elements.
func tensorKey(t *onnx.Tensor) string {
	if t == nil {
		return "none"
	}
	head := fmt.Sprintf("%d%v", t.DataType, t.Dims)
	if t.DataType == onnx.String {
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

func valueKey(t *reference.Tensor) string {
	if t == nil {
		return "none"
	}
	return fmt.Sprintf("%d%v%v%v%q", t.DataType, t.Shape, t.F, t.I, t.S)
}
