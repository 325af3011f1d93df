package op

import (
	"fmt"
	"slices"

	"github.com/mojo-patch/mojo-patch/onnx"
)

// Form is one way to use an op: its attributes, and the shapes of its inputs, nil for an input that is left out.
type Form struct {
	Attributes []*onnx.Attribute
	Dims       [][]int64
}

// Forms lists the ways to use the op that its kernels are tested with: the combinations of values in the attributes'
// grids that examples returns shapes for.
func (o *Op) Forms() []Form {
	if o.AllForms != nil {
		return o.AllForms()
	}
	var list []Form
	var try func(attrs []*onnx.Attribute)
	try = func(attrs []*onnx.Attribute) {
		if n := len(attrs); n < len(o.Attributes) {
			for _, a := range o.Attributes[n].grid() {
				try(append(slices.Clip(attrs), a))
			}
			return
		}
		for _, dims := range o.Shapes(Site{Attributes: attrs}) {
			list = append(list, Form{attrs, dims})
		}
	}
	try(nil)
	return list
}

// Examples lists the forms that the op supports with a combination of types, as sites at the opset.
func (o *Op) Examples(c Combination, opset int64) []Site { return o.sites(o.Forms(), c, opset) }

// sites returns the forms that the op supports with a combination of types, as sites.
func (o *Op) sites(forms []Form, c Combination, opset int64) []Site {
	var sites []Site
	for _, f := range forms {
		s := Site{Attributes: f.Attributes, Dims: f.Dims, Opset: opset}
		for i, p := range o.Inputs {
			t := onnx.Undefined
			if i < len(f.Dims) && f.Dims[i] != nil {
				t = o.TypeOf(p, c)
			}
			s.Types = append(s.Types, t)
		}
		if o.Supports(s) == nil {
			sites = append(sites, s)
		}
	}
	return sites
}

// grid returns the attribute with each value that forms use.
func (a AttributeSpec) grid() []*onnx.Attribute {
	values := a.Grid
	if values == nil {
		for _, v := range a.Values {
			values = append(values, v)
		}
	}
	var list []*onnx.Attribute
	for _, v := range values {
		switch v := v.(type) {
		case int:
			list = append(list, onnx.IntAttr(a.Name, int64(v)))
		case float64:
			list = append(list, onnx.FloatAttr(a.Name, float32(v)))
		case string:
			list = append(list, onnx.StringAttr(a.Name, v))
		default:
			panic(fmt.Sprintf("fused: attribute %s: its grid holds a %T", a.Name, v))
		}
	}
	return list
}

// ExampleX is a shape of X whose row length is not a multiple of a vector width.
var ExampleX = []int64{2, 3, 22}
