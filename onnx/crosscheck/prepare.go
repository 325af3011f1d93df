package crosscheck

import (
	"fmt"
	"maps"
	"slices"

	"github.com/mojo-patch/mojo-patch/onnx"
	"google.golang.org/protobuf/encoding/protowire"
)

// unread counts the parts that the second reader does not support, by kind.
type unread struct{ kinds map[string]int }

func (u *unread) add(kind string) {
	if u.kinds == nil {
		u.kinds = map[string]int{}
	}
	u.kinds[kind]++
}

func (u *unread) list() []string {
	var s []string
	for _, k := range slices.Sorted(maps.Keys(u.kinds)) {
		s = append(s, fmt.Sprintf("%d × %s", u.kinds[k], k))
	}
	return s
}

// eachField calls f for the fields of an encoded message. value excludes the tag and, for bytes, the length.
func eachField(b []byte, f func(num protowire.Number, typ protowire.Type, value []byte)) {
	for len(b) > 0 {
		num, typ, n := protowire.ConsumeTag(b)
		if n < 0 {
			return // skim's output is well-formed
		}
		b = b[n:]
		size := protowire.ConsumeFieldValue(num, typ, b)
		if size < 0 {
			return
		}
		value := b[:size]
		if typ == protowire.BytesType {
			value, _ = protowire.ConsumeBytes(value)
		}
		f(num, typ, value)
		b = b[size:]
	}
}

func varintOf(b []byte) uint64 {
	x, _ := protowire.ConsumeVarint(b)
	return x
}

// prepareNode returns the graph field that the second reader gets for an encoded node. A Constant becomes an
// initializer without elements, and unsupported attributes are left out.
func prepareNode(node []byte, u *unread) (num protowire.Number, body []byte) {
	var op, domain, output string
	eachField(node, func(num protowire.Number, _ protowire.Type, value []byte) {
		switch {
		case num == 2 && output == "":
			output = string(value)
		case num == 4:
			op = string(value)
		case num == 7:
			domain = string(value)
		}
	})
	if op == "Constant" && onnx.IsStandardDomain(domain) {
		return 5, protowire.AppendString(protowire.AppendTag(nil, 8, protowire.BytesType), output)
	}
	eachField(node, func(num protowire.Number, typ protowire.Type, value []byte) {
		if num == 5 {
			if value = prepareAttribute(op, value, u); value == nil {
				return
			}
		}
		body = protowire.AppendBytes(protowire.AppendTag(body, num, typ), value) // every field of a node has a length
	})
	return 1, body
}

// prepareAttribute returns the attribute in a form that the second reader supports, nil if there is none.
func prepareAttribute(op string, attribute []byte, u *unread) []byte {
	var name string
	var kind onnx.AttributeType
	var tensor, reference []byte
	eachField(attribute, func(num protowire.Number, _ protowire.Type, value []byte) {
		switch num {
		case 1:
			name = string(value)
		case 5:
			tensor = value
		case 20:
			kind = onnx.AttributeType(varintOf(value))
		case 21:
			reference = value
		}
	})
	switch {
	case len(reference) > 0: // reference to an attribute of the function: compared as text
		b := protowire.AppendString(protowire.AppendTag(nil, 1, protowire.BytesType), name)
		b = protowire.AppendString(protowire.AppendTag(b, 4, protowire.BytesType), "@"+string(reference))
		return protowire.AppendVarint(protowire.AppendTag(b, 20, protowire.VarintType), uint64(onnx.AttrString))
	case kind == onnx.AttrGraph || kind == onnx.AttrGraphs:
		return nil // its graphs are decoded separately
	case !readable(kind):
		u.add(fmt.Sprintf("attribute %s of %s (%s)", name, op, attributeKinds[kind]))
		return nil
	case kind != onnx.AttrTensor:
		return attribute
	}
	if tensor = prepareTensor(tensor); tensor == nil {
		u.add(fmt.Sprintf("attribute %s of %s (tensor)", name, op))
		return nil
	}
	var out []byte
	eachField(attribute, func(num protowire.Number, typ protowire.Type, value []byte) {
		out = protowire.AppendTag(out, num, typ)
		switch {
		case num == 5:
			out = protowire.AppendBytes(out, tensor)
		case typ == protowire.BytesType:
			out = protowire.AppendBytes(out, value)
		default:
			out = append(out, value...)
		}
	})
	return out
}

// readable reports whether the second reader supports attributes of this kind.
func readable(k onnx.AttributeType) bool {
	switch k {
	case onnx.AttrFloat, onnx.AttrInt, onnx.AttrString, onnx.AttrTensor, onnx.AttrFloats, onnx.AttrInts,
		onnx.AttrStrings:
		return true
	}
	return false
}

var attributeKinds = map[onnx.AttributeType]string{onnx.AttrUndefined: "no kind", onnx.AttrTensors: "tensors",
	onnx.AttrSparseTensor:  "sparse tensor",
	onnx.AttrSparseTensors: "sparse tensors", onnx.AttrTypeProto: "type", onnx.AttrTypeProtos: "types"}

// readableTensor reports whether the second reader supports tensors of this type and shape. It panics on empty ones.
func readableTensor(t onnx.DataType, dims []int64) bool {
	switch t {
	case onnx.Float, onnx.Double, onnx.Int32, onnx.Int64, onnx.Bool:
		n := int64(1)
		for _, d := range dims {
			if d <= 0 || d > largestField || n*d > largestField {
				return false
			}
			n *= d
		}
		size := int64(t.Bits()/8) * n
		return size <= largestField
	}
	return false
}

// prepareTensor returns the tensor with bools in int32_data, where the second reader expects them. It returns nil if
// that reader does not support the tensor.
func prepareTensor(tensor []byte) []byte {
	var dims []int64
	var t onnx.DataType
	var raw []byte
	eachField(tensor, func(num protowire.Number, typ protowire.Type, value []byte) {
		switch {
		case num == 1 && typ == protowire.BytesType:
			for len(value) > 0 {
				d, n := protowire.ConsumeVarint(value)
				if n < 0 {
					return
				}
				dims, value = append(dims, int64(d)), value[n:]
			}
		case num == 1:
			dims = append(dims, int64(varintOf(value)))
		case num == 2:
			t = onnx.DataType(varintOf(value))
		case num == 9:
			raw = value
		}
	})
	if !readableTensor(t, dims) {
		return nil
	}
	if t != onnx.Bool || raw == nil {
		return tensor
	}
	var out []byte
	for _, d := range dims {
		out = protowire.AppendVarint(protowire.AppendTag(out, 1, protowire.VarintType), uint64(d))
	}
	out = protowire.AppendVarint(protowire.AppendTag(out, 2, protowire.VarintType), uint64(t))
	return protowire.AppendBytes(protowire.AppendTag(out, 5, protowire.BytesType), raw) // bytes of 0 and 1 are varints
}
