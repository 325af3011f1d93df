package onnx

import (
	"crypto/sha256"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
)

// AttributesKey is a text that is the same for equal attributes in any order. One that holds a graph equals itself
// alone.
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

// TensorKey returns a text that is the same for tensors of equal type, shape and elements.
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
