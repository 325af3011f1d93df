package prove

import (
	"fmt"
	"slices"

	"github.com/mojo-patch/mojo-patch/fused"
	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/reference"
)

// CheckedWorlds is the number of infer's worlds that are small enough to evaluate nodes in.
const CheckedWorlds = 2

// ManyTokens is the number of queries or keys above which a block is checked with fewer.
const ManyTokens = 64

// CacheAxis is the token axis of a cache.
const CacheAxis = 2

// Lengths is one set of lengths of attention with a cache.
type Lengths struct {
	Batch, Past, Added int64
	Room               int64 // of a buffer
	Padding            Padding
	Junk               float64 // in the rows of a buffer without tokens
}

// Inputs returns the inputs of an attention node with the original cache. Heads and channels come from the site, and
// tokens and sequences from the trial.
func (t *Lengths) Inputs(op *fused.CachedOp, n *onnx.Node, site fused.Site, seed int) ([]*reference.Tensor, error) {
	total, room := t.Past+t.Added, t.Past
	if op.Length < len(n.Inputs) && n.Inputs[op.Length] != nil {
		room = total
	}
	in := make([]*reference.Tensor, len(n.Inputs))
	for i, v := range n.Inputs {
		if v == nil {
			continue
		}
		shape := slices.Clone(site.Dims[i])
		var full []int64 // -1: as in the site
		switch name := op.Input(i); name {
		case "q", "k", "v":
			full = []int64{t.Batch, -1, t.Added, -1}
			layout := map[string]string{"q": fused.AttrQLayout, "k": fused.AttrKLayout, "v": fused.AttrVLayout}[name]
			if site.Attr(layout).String == "bsnh" {
				full[1], full[2] = full[2], full[1]
			}
		case "c":
			full = []int64{t.Batch, t.Added, -1}
		case "k_pe":
			full = []int64{t.Batch, 1, t.Added, -1}
		case "past_key", "past_value", "past":
			full = []int64{t.Batch, -1, room, -1}
		case "past_length":
			in[i] = reference.NewInts(onnx.Int64, []int{1}, []int64{t.Past})
			continue
		case "key_valid":
			full = []int64{t.Batch, total}
		case "bias":
			full = []int64{t.Batch, -1, t.Added, total}
			full = full[max(0, len(full)-len(shape)):]
		case "sink":
			full = []int64{-1}
			if len(shape) == 0 { // computed by a new node
				shape = []int64{t.heads(site)}
			}
		case "w":
			full = []int64{-1, -1}
		}
		for axis, d := range full {
			if d >= 0 && axis < len(shape) && (shape[axis] != 1 || i != fused.AttentionBias && i != op.Valid) {
				shape[axis] = d
			}
		}
		if len(shape) != len(full) || slices.Contains(shape, -1) {
			return nil, fmt.Errorf("cannot be checked: the shape of %q is not known", v.Name)
		}
		var err error
		if i == op.Valid {
			in[i] = t.Padding.Tensor(site.Types[i], shape)
		} else if in[i], err = MakeInput(Normal, len(in)*seed+i, site.Types[i], shape); err != nil {
			return nil, err
		}
	}
	return in, nil
}

// heads returns the number of query heads of attention, or -1 if it is unknown.
func (t *Lengths) heads(site fused.Site) int64 {
	q, axis := site.Dims[fused.AttentionQ], 1
	if site.Attr(fused.AttrQLayout).String == "bsnh" {
		axis = 2
	}
	if len(q) != 4 {
		return -1
	}
	return q[axis]
}

// SwapHeads returns a tensor with its second and third dimensions swapped.
func SwapHeads(t *reference.Tensor) *reference.Tensor {
	b, m, n, width := t.Shape[0], t.Shape[1], t.Shape[2], t.Shape[3]
	out := make([]float64, 0, len(t.F))
	for i := range b {
		for k := range n {
			for j := range m {
				at := ((i*m+j)*n + k) * width
				out = append(out, t.F[at:at+width]...)
			}
		}
	}
	return reference.NewFloats(t.DataType, []int{b, n, m, width}, out)
}

// CopyRows copies the rows of all heads to their positions in a larger cache.
func CopyRows(to, from *reference.Tensor) {
	width := to.Shape[3]
	a, b := to.Shape[CacheAxis]*width, from.Shape[CacheAxis]*width
	for h := range to.Shape[0] * to.Shape[1] {
		copy(to.F[h*a:(h+1)*a], from.F[h*b:(h+1)*b])
	}
}
