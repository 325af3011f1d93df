package weights

import (
	"fmt"
	"io"
	"slices"

	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/rewrite/quantized"
)

// halfType returns the 16-bit type of all tensors of a key. It is Undefined if they have another type, or the
// initializer is not float32.
func (a *assignment) halfType() onnx.DataType {
	t := a.tensors[0].DataType
	if t != onnx.Float16 && t != onnx.BFloat16 || a.value.Const.DataType != onnx.Float {
		return onnx.Undefined
	}
	for _, o := range a.tensors {
		if o.DataType != t {
			return onnx.Undefined
		}
	}
	return t
}

// addHalf keeps a key in its 16-bit type, or returns the reason why it cannot. A matrix is stored as in the file,
// experts in the initializer's order.
func (x *keeper) addHalf(p *Plan, a *assignment, t onnx.DataType) error {
	dims := a.value.Const.Dims
	switch {
	case len(dims) != 2 && len(dims) != 3:
		return fmt.Errorf("it has the shape %v, but a product reads a matrix or experts", dims)
	case a.recipe.add != 0:
		return fmt.Errorf("%+g is added to each element", a.recipe.add)
	}
	stored := *a.recipe
	turned := len(dims) == 2 && len(stored.blocks) == 1 && stored.blocks[0].transposed
	if turned {
		stored.dims = []int64{dims[1], dims[0]}
		stored.blocks = []block{{pieces: stored.blocks[0].pieces}}
	}
	source := fmt.Sprint(t, stored.dims, stored.key())
	tensor := x.halves[source]
	if tensor == nil {
		var err error
		tensor, err = onnx.NewDeferred(a.value.Name, t, stored.dims, func(w io.Writer) error {
			if p.execution == nil { // the check of products reads the first rows
				_, err := (&stream{}).write(w, &stored, t)
				return err
			}
			return p.execution.write(w, a, t)
		})
		if err != nil {
			return err
		}
		x.halves[source] = tensor
	}
	n := &quantized.Narrow{Value: a.value, Tensor: tensor, Turned: turned}
	x.narrow = append(x.narrow, n)
	x.halfOf[n] = &halfKey{a, &stored}
	return nil
}

// halfKey is a key that keeps its 16-bit type, with its stored recipe.
type halfKey struct {
	*assignment
	stored *recipe
}

// keepHalves records the results for the keys.
func (x *keeper) keepHalves() {
	for _, n := range x.narrow {
		key := x.halfOf[n]
		if n.Refused != nil {
			key.why = n.Refused
			continue
		}
		key.half, key.value, key.recipe = n.Tensor, n.Stored, key.stored
	}
}

// halves adds the keys that stayed in 16 bits to the report.
func (r *Report) halves(p *Plan) {
	seen := map[*onnx.Tensor]bool{}
	for _, a := range p.assignments {
		if a.half == nil || seen[a.half] {
			continue
		}
		seen[a.half] = true
		name := map[onnx.DataType]string{onnx.Float16: "f16", onnx.BFloat16: "bf16"}[a.half.DataType]
		i := slices.IndexFunc(r.Quantized, func(f QuantizedFormat) bool { return f.Format == name })
		if i < 0 {
			i = len(r.Quantized)
			r.Quantized = append(r.Quantized, QuantizedFormat{Format: name, Bits: 16})
		}
		f, elements := &r.Quantized[i], a.half.Len()
		f.Matrices++
		f.Elements, f.File, f.Bytes, f.Float = f.Elements+elements, f.File+2*elements, f.Bytes+2*elements,
			f.Float+4*elements
		r.Elements, r.Bytes = r.Elements+elements, r.Bytes+2*elements
	}
}
