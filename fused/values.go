package fused

import (
	"fmt"
	"maps"
	"slices"

	"github.com/mojo-patch/mojo-patch/onnx"
)

// Values are attributes by name, as Go has them: int, int64 and bool are integers, float64 and string what they are.
type Values map[string]any

// Of returns the attributes in the order in which the op declares them. For an op that is not in the catalogue, they
// are in the order of their names. It panics if an attribute of the op is missing, is not one of the op's, or has
// another type or string than the op takes: the code that names an op knows its attributes. Numbers may come from a
// model: Op.Supports looks at them.
func (v Values) Of(opType string) []*onnx.Attribute {
	names := slices.Sorted(maps.Keys(v))
	op := Lookup(opType)
	if op != nil {
		slices.SortStableFunc(names, func(a, b string) int { return op.place(a) - op.place(b) })
	}
	list := make([]*onnx.Attribute, len(names))
	for i, name := range names {
		switch x := v[name].(type) {
		case int:
			list[i] = onnx.IntAttr(name, int64(x))
		case int64:
			list[i] = onnx.IntAttr(name, x)
		case bool:
			list[i] = onnx.IntAttr(name, 0)
			if x {
				list[i].Int = 1
			}
		case float64:
			list[i] = onnx.FloatAttr(name, float32(x))
		case string:
			list[i] = onnx.StringAttr(name, x)
		default:
			panic(fmt.Sprintf("attribute %s of %s is a %T", name, opType, x))
		}
	}
	if op != nil {
		if err := op.checkKinds(list); err != nil {
			panic(err)
		}
	}
	return list
}

// place returns the place of an attribute in the declaration.
func (o *Op) place(attribute string) int {
	return slices.IndexFunc(o.Attributes, func(a AttributeSpec) bool { return a.Name == attribute })
}
