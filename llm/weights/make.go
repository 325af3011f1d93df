package weights

import (
	"fmt"
	"slices"

	"github.com/mojo-patch/mojo-patch/llm/weights/checkpoint"
	"github.com/mojo-patch/mojo-patch/onnx"
)

// ungroup restores the rows of q, k and v per head, (heads, 3, d), from llama.cpp's order with all of q first, (3,
// heads, d).
func (r *recipe) ungroup(t *checkpoint.Tensor) error {
	heads, err := t.Arch.QKVHeads(t.Name)
	if heads == 0 || err != nil {
		return err
	}
	whole := r.blocks[0].pieces[0]
	if len(r.blocks) != 1 || whole.rows%(3*heads) != 0 {
		return fmt.Errorf("%s has %d rows, which cannot be q, k and v of %d heads", t.Name, whole.rows, heads)
	}
	d := whole.rows / (3 * heads)
	r.blocks[0].pieces, r.qkvHeads = nil, heads
	for h := range heads {
		for part := range int64(3) {
			r.blocks[0].pieces = append(r.blocks[0].pieces,
				piece{t, (part*heads + h) * d * whole.cols, d, whole.cols, 0})
		}
	}
	return nil
}

// newRecipe makes the recipe of one tensor, whose shape is already checked.
func newRecipe(dims []int64, t *checkpoint.Tensor, transposed bool, heads int64, add float32) (*recipe, error) {
	k := len(t.Dims)
	rows, cols, count := int64(1), t.Len(), int64(1)
	if k > 0 {
		rows, cols = t.Dims[0], product(t.Dims[1:])
	}
	if transposed {
		rows, cols, count = t.Dims[k-2], t.Dims[k-1], product(t.Dims[:k-2])
	}
	if heads > 0 && (count != 1 || rows%(2*heads) != 0) {
		return nil, fmt.Errorf("%s has %d rows, which cannot be pairs of %d heads", t.Name, rows, heads)
	}
	r := &recipe{dims: dims, add: add}
	for i := range count {
		r.blocks = append(r.blocks, block{[]piece{{t, i * rows * cols, rows, cols, heads}}, transposed})
	}
	return r, nil
}

// checked rejects types that the initializer cannot take.
func (x *matcher) checked(v *onnx.Value, r *recipe) (*assignment, error) {
	a := &assignment{value: v, recipe: r}
	want := v.Const.DataType
	for _, b := range r.blocks {
		for _, p := range b.pieces {
			if p.t.Broken != nil {
				return nil, p.t.Broken
			}
			if !p.t.Readable && p.t.DataType != want {
				return nil, fmt.Errorf("%s has the type %s, which cannot be read: requantize the file, or convert it "+
					"to F16 (llama-quantize)", p.t.Name, p.t.Type)
			}
			isFloat := p.t.DataType == onnx.Undefined || p.t.DataType.IsFloat() || isFloat8(p.t.DataType)
			if p.t.DataType != want && !(isFloat && casts[want] != nil) {
				return nil, fmt.Errorf("%s has the type %s, which cannot be converted to %s", p.t.Name, p.t.Type, want)
			}
			if !slices.Contains(a.tensors, p.t) {
				a.tensors = append(a.tensors, p.t)
			}
		}
	}
	return a, nil
}

func isFloat8(t onnx.DataType) bool { return t >= onnx.Float8E4M3FN && t <= onnx.Float8E5M2FNUZ }
