package probe

import (
	"slices"

	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/patterns/match"
	"github.com/mojo-patch/mojo-patch/reference"
)

// results describes a tensor of a run that holds all elements of products' results, perhaps moved.
type results struct {
	products []*Product        // one, or several whose results are concatenated
	numbers  *reference.Tensor // the index of each element among the elements of all products
}

// allOf returns unmoved results of products, in a shape.
func allOf(products []*Product, shape []int) *results {
	numbers, err := reference.NewLazy(onnx.Double, shape, func(dst []float64, offset int) error {
		for i := range dst {
			dst[i] = float64(offset + i)
		}
		return nil
	})
	if err != nil {
		return nil
	}
	return &results{products, numbers}
}

// moved returns the results after a node with one output that passes all of them on; nil for other nodes.
func (r *results) moved(n *onnx.Node, s *reference.Scope) *results {
	if !n.MovesElements() || match.IsPick(n) {
		return nil
	}
	data := s.Bound(n.Inputs[0])
	s.Bind(n.Inputs[0], r.numbers)
	defer s.Bind(n.Inputs[0], data)
	numbers := move(n, s, r.numbers)
	if len(numbers) == 0 || numbers[0].Len() != r.numbers.Len() {
		return nil
	}
	return &results{r.products, numbers[0]}
}

// below returns the results of tensors that are concatenated to one of a shape; nil unless all are unmoved results.
func (p *Runner) below(in []*reference.Tensor, shape []int) *results {
	var products []*Product
	for _, t := range in {
		r := p.made[ref(t)]
		if r == nil {
			return nil
		}
		numbers, err := r.numbers.Dense()
		if err != nil || !slices.IsSorted(numbers.F) { // moved
			return nil
		}
		products = append(products, r.products...)
	}
	return allOf(products, shape)
}

// takesBias records b as the bias of the products whose results are t. It reports whether it could.
func (p *Runner) takesBias(t, b *reference.Tensor) bool {
	r := p.made[ref(t)]
	if r == nil {
		return false
	}
	numbers, _ := r.numbers.Dense()
	added, _ := expanded(b, t.Shape).Dense()
	if numbers == nil || added == nil {
		return false
	}
	places := make([]float64, len(added.F)) // in the order of the products' elements
	for i, number := range numbers.F {
		places[int(number)] = added.F[i]
	}
	for _, a := range r.products {
		n := match.Elements(a.shape)
		if !a.setBias(reference.NewFloats(b.DataType, a.shape, places[:n])) {
			return false
		}
		places = places[n:]
	}
	return true
}
