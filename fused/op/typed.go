package op

import (
	"fmt"

	"github.com/mojo-patch/mojo-patch/onnx"
)

// Typed is the struct of an op's attributes, such as GLU.
type Typed interface {
	// OpType returns the name of the op.
	OpType() string
	// Attributes returns the attributes in the order of the declaration.
	Attributes() []*onnx.Attribute
}

// Readable is a pointer to the struct T of an op's attributes (attributes_gen.go).
type Readable[T any] interface {
	*T
	// Fields returns the name of each attribute, followed by a pointer to its value: *int64, *float32, *string, or
	// *bool for an int that is 0 or 1.
	Fields() []any
}

// WriteAttributes returns the attributes of fields.
func WriteAttributes(fields []any) []*onnx.Attribute {
	if len(fields) == 0 {
		return nil
	}
	list := make([]*onnx.Attribute, len(fields)/2)
	for i := range list {
		name := fields[2*i].(string)
		switch v := fields[2*i+1].(type) {
		case *int64:
			list[i] = onnx.IntAttr(name, *v)
		case *bool:
			list[i] = onnx.BoolAttr(name, *v)
		case *float32:
			list[i] = onnx.FloatAttr(name, *v)
		case *string:
			list[i] = onnx.StringAttr(name, *v)
		default:
			panic(fmt.Sprintf("fused: attribute %s is a %T", name, v))
		}
	}
	return list
}

// Read returns the struct of an op's attributes, as in Read[GLU](n.Attributes). A missing attribute is zero
// (Op.Supports reports it). Attributes that the struct lacks are ignored.
func Read[T any, P Readable[T]](attributes []*onnx.Attribute) (t T) {
	s := Site{Attributes: attributes}
	fields := P(&t).Fields()
	for i := 0; i < len(fields); i += 2 {
		a := s.Attr(fields[i].(string))
		switch v := fields[i+1].(type) {
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
