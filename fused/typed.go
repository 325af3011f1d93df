package fused

import (
	"fmt"

	"github.com/mojo-patch/mojo-patch/onnx"
)

// field is one attribute of a typed struct (attributes_gen.go): its name and a pointer to its value.
type field struct {
	name  string
	value any // *int64, *float32 or *string; *bool for an int that is 0 or 1
}

// Typed is the struct of an op's attributes, such as GLU.
type Typed interface {
	// OpType returns the name of the op.
	OpType() string
	// Attributes returns the attributes in the order of the declaration.
	Attributes() []*onnx.Attribute
}

// write returns the attributes of fields.
func write(fields []field) []*onnx.Attribute {
	list := make([]*onnx.Attribute, len(fields))
	for i, f := range fields {
		switch v := f.value.(type) {
		case *int64:
			list[i] = onnx.IntAttr(f.name, *v)
		case *bool:
			list[i] = onnx.BoolAttr(f.name, *v)
		case *float32:
			list[i] = onnx.FloatAttr(f.name, *v)
		case *string:
			list[i] = onnx.StringAttr(f.name, *v)
		default:
			panic(fmt.Sprintf("fused: attribute %s is a %T", f.name, v))
		}
	}
	return list
}

// Read returns the struct of an op's attributes, as in Read[GLU](n.Attributes). A missing attribute is zero
// (Op.Supports reports it). Attributes that the struct lacks are ignored.
func Read[T any, P interface {
	*T
	fields() []field
}](attributes []*onnx.Attribute) (t T) {
	s := Site{Attributes: attributes}
	for _, f := range P(&t).fields() {
		a := s.Attr(f.name)
		switch v := f.value.(type) {
		case *int64:
			*v = a.Int
		case *bool:
			*v = a.Int == 1
		case *float32:
			*v = a.Float
		case *string:
			*v = a.String
		}
	}
	return t
}
