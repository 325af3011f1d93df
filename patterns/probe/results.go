package probe

import (
	"cmp"
	"slices"

	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/patterns/match"
	"github.com/mojo-patch/mojo-patch/reference"
)

// results is what a tensor of a run holds: the results of products, all of their elements, perhaps moved.
type results struct {
	products []*Product // one, or several whose results are put one below the other
	shape    []int      // of these before they were moved
	view     *weightView
}

// allOf is the results of products as they are, in a shape.
func allOf(products []*Product, shape []int) *results {
	return &results{products, shape, inRow(long(shape), origin{})}
}

// asTheyAre reports whether nothing was moved, or all was moved back.
func (r *results) asTheyAre(shape []int) bool {
	if !slices.Equal(r.shape, shape) || r.view.pile != nil {
		return false
	}
	strides := func(w *weightView) []int64 { return w.compact().elements.Strides }
	return match.Elements(shape) == 0 || slices.Equal(strides(r.view), strides(allOf(nil, shape).view))
}

// moved returns the results that a node hands on of those that it reads; nil where it does something else, or drops
// some.
func (r *results) moved(n *onnx.Node, out *reference.Tensor, ints func(i int) *reference.Tensor) *results {
	if !onnx.IsStandardDomain(n.Domain) {
		return nil
	}
	switch n.OpType {
	case "Gather", "GatherND", "Split":
		return nil
	}
	if match.Elements(out.Shape) == 0 && match.Elements(r.shape) == 0 {
		return r
	}
	list := moveView(n, r.view, ints)
	if len(list) != 1 || list[0].size() != r.view.size() || !slices.Equal(list[0].dims(), long(out.Shape)) {
		return nil
	}
	return &results{r.products, r.shape, list[0]}
}

// below returns the results of the products behind the tensors of a list, one below the other; nil where they are
// not all such.
func (p *Runner) below(in []*reference.Tensor) *results {
	var products []*Product
	shape := slices.Clone(in[0].Shape)
	if len(shape) == 0 {
		return nil
	}
	shape[0] = 0
	for _, t := range in {
		r := p.made[ref(t)]
		if r == nil || !r.asTheyAre(t.Shape) {
			return nil
		}
		products = append(products, r.products...)
		shape[0] += t.Shape[0]
	}
	return allOf(products, shape)
}

// takesBias takes b for the bias of the product, or of the products, whose results are t.
func (p *Runner) takesBias(t *reference.Tensor, b *weightView) bool {
	r := p.made[ref(t)]
	if r == nil || r.view.pile != nil {
		return false
	}
	if match.Elements(t.Shape) == 0 {
		return true // nothing to add it to
	}
	all := b.expand(long(t.Shape))
	if all == nil || !slices.Equal(all.dims(), long(t.Shape)) {
		return false
	}
	perm := make([]int64, r.view.rank()) // back to where the elements come from
	for i := range perm {
		perm[i] = int64(i)
	}
	strides := r.view.elements.Strides
	slices.SortStableFunc(perm, func(a, b int64) int { return cmp.Compare(strides[b], strides[a]) })
	if all = all.transpose(perm).reshape(long(r.shape)); all == nil {
		return false
	}
	if len(r.products) == 1 {
		return r.products[0].setBias(r.shape, all)
	}
	from := int64(0)
	for _, a := range r.products {
		n := int64(a.shape[0])
		if n > 0 && !a.setBias(a.shape, all.slice(0, from, n, 1)) {
			return false
		}
		from += n
	}
	return true
}
