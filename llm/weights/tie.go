package weights

import (
	"fmt"
	"slices"
	"strings"

	"github.com/mojo-patch/mojo-patch/onnx"
)

// tie fills initializers without a tensor from others at the same place of the external data, and records which
// initializers are the same tensor in the same form.
func (p *Plan) tie() {
	type place struct {
		location string
		offset   int64
		t        onnx.DataType
		dims     string
	}
	at := map[place]*assignment{}
	key := func(v *onnx.Value) place {
		return place{v.Const.External.Location, v.Const.External.Offset, v.Const.DataType, fmt.Sprint(v.Const.Dims)}
	}
	for _, a := range p.assignments {
		if a.value.Const.External != nil {
			at[key(a.value)] = a
		}
	}
	found := map[string]bool{}
	for _, v := range p.without {
		i := slices.IndexFunc(p.missing, func(k MissingKey) bool { return k.Name == v.Name })
		if i < 0 {
			continue
		}
		if a := at[key(v)]; a != nil {
			p.assignments = append(p.assignments,
				&assignment{value: v, recipe: a.recipe, rule: ByPlace, tensors: a.tensors})
			found[v.Name] = true
		}
	}
	p.missing = slices.DeleteFunc(p.missing, func(k MissingKey) bool { return found[k.Name] })
	first := map[string]*assignment{}
	for _, a := range p.assignments {
		if a.present {
			continue
		}
		k := a.recipe.key() + a.value.Const.DataType.String()
		if first[k] == nil {
			first[k] = a
		} else {
			a.tied = first[k]
		}
	}
}

// key is equal for recipes that return the same elements in the same shape.
func (r *recipe) key() string {
	var b strings.Builder
	fmt.Fprint(&b, r.dims, r.add)
	for _, x := range r.blocks {
		fmt.Fprint(&b, x.transposed)
		for _, p := range x.pieces {
			fmt.Fprintf(&b, "%p %d %d %d %d ", p.t, p.first, p.rows, p.cols, p.heads)
		}
	}
	return b.String()
}
