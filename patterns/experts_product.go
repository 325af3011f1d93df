package patterns

import (
	"slices"
	"strings"

	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/reference"
)

// applied is one evaluation of a product of data with a weight.
type applied struct {
	node   *onnx.Node
	number int // of the products of a run, in order
	weight *weightView
	in     int         // the axis of the weight that is summed over
	out    int         // the axis of the weight that the result has
	batch  []int       // the axes of the weight whose every place is a matrix of its own
	first  []*applied  // the products that the data come from
	bias   *weightView // in the shape of the result

	data      *reference.Tensor // while the result is made
	dataIn    int               // the axis that is summed over
	shape     []int             // of the result
	resultOut int
	row       []float64 // of a first product: a row of the result that is not zero
	rows      []int     // the axes of the data that the axes of the result are, -1 for none
	// Where the axes in batch are in the data and the result, -1 where they have no such axis: all rows are multiplied with all
	// matrices, or the results of the matrices are added up.
	dataBatch, resultBatch []int
}

// product evaluates a product with a weight: its result is of the right shape, and its elements are what the probe wants. It
// gives nothing for products that are not understood.
func (p *probe) product(n *onnx.Node, in []*reference.Tensor) ([]*reference.Tensor, error) {
	equation := n.AttrString("equation", "")
	if n.OpType == "Einsum" && len(in) > 2 {
		if equation, in = p.joinData(equation, in); in == nil {
			return nil, nil
		}
	}
	if len(in) < 2 || in[0] == nil || in[1] == nil || (p.views[in[0]] == nil) == (p.views[in[1]] == nil) {
		return nil, nil
	}
	at := 1
	if p.views[in[0]] != nil {
		at = 0
	}
	a := &applied{node: n, weight: p.views[in[at]], data: in[1-at], number: p.count}
	p.count++
	var shape []int
	switch {
	case !onnx.IsStandardDomain(n.Domain):
	case n.OpType == "MatMul":
		shape = a.matMul(at)
	case n.OpType == "Gemm":
		shape = a.gemm(n, at)
	case n.OpType == "Einsum" && len(in) == 2:
		shape = a.einsum(equation, at)
	}
	if shape == nil {
		return nil, nil
	}
	a.shape = shape
	if n.OpType == "Gemm" && n.Input(2) != nil {
		if bias := p.views[in[2]]; bias == nil || !a.setBias(shape, bias) {
			return nil, nil
		}
	}
	a.first = p.from[ref(a.data)]
	for _, f := range a.first {
		if len(f.first) > 0 {
			return nil, noExperts("an expert has more than two products, one behind the other")
		}
	}
	result := reference.NewFloats(a.data.DataType, shape, make([]float64, elements(shape)))
	p.made[ref(result)], p.from[ref(result)] = allOf([]*applied{a}, shape), []*applied{a}
	if len(a.first) == 0 {
		err := p.fill(a, result)
		a.row, a.data = rowOf(result, a.resultOut), nil
		return []*reference.Tensor{result}, err
	}
	err := p.answer(a, result)
	a.data = nil
	return []*reference.Tensor{result}, err
}

// matMul reads MatMul, whose input at is the weight, and gives the shape of the result; nil when it is not understood.
func (a *applied) matMul(at int) []int {
	r, q := len(a.weight.axes), len(a.data.Shape)
	if r < 2 || q < 1 {
		return nil
	}
	rank := max(r, q)
	shape := make([]int, rank)
	a.rows = make([]int, rank)
	for i := range shape {
		d, w := i-rank+max(q, 2), i-rank+r // a vector of data is a matrix of one row or column
		if q == 1 {
			d = -1
		}
		a.rows[i] = max(d, -1)
		shape[i] = 1
		if d >= 0 {
			shape[i] = a.data.Shape[d]
		}
		if w < 0 || i >= rank-2 || a.weight.axes[w].dim == 1 {
			continue
		}
		if shape[i] != 1 && int64(shape[i]) != a.weight.axes[w].dim {
			return nil
		}
		a.batch, a.resultBatch = append(a.batch, w), append(a.resultBatch, i)
		if d >= 0 && shape[i] > 1 {
			a.dataBatch = append(a.dataBatch, d)
		} else {
			a.dataBatch = append(a.dataBatch, -1)
		}
		shape[i] = int(a.weight.axes[w].dim)
	}
	a.in, a.out, a.dataIn, a.resultOut = r-2, r-1, q-1, rank-1
	if at == 0 {
		a.in, a.out, a.dataIn, a.resultOut = r-1, r-2, max(q-2, 0), rank-2
	}
	if int64(a.data.Shape[a.dataIn]) != a.weight.axes[a.in].dim {
		return nil
	}
	shape[a.resultOut] = int(a.weight.axes[a.out].dim)
	a.rows[a.resultOut] = -1
	if q == 1 {
		shape, a.rows = append(shape[:rank-2], shape[a.resultOut]), append(a.rows[:rank-2], -1)
		a.resultOut = rank - 2
	}
	return shape
}

// gemm reads Gemm.
func (a *applied) gemm(n *onnx.Node, at int) []int {
	if len(a.weight.axes) != 2 || len(a.data.Shape) != 2 || n.AttrFloat("alpha", 1) != 1 || n.Input(2) != nil && n.AttrFloat("beta", 1) != 1 {
		return nil
	}
	transposed := []bool{n.AttrInt("transA", 0) != 0, n.AttrInt("transB", 0) != 0}
	inner := func(i int) int { // the axis of input i that is summed over
		if transposed[i] == (i == 0) {
			return 0
		}
		return 1
	}
	a.in, a.dataIn = inner(at), inner(1-at)
	a.out, a.resultOut = 1-a.in, at
	if int64(a.data.Shape[a.dataIn]) != a.weight.axes[a.in].dim {
		return nil
	}
	shape := []int{a.data.Shape[1-a.dataIn], a.data.Shape[1-a.dataIn]}
	shape[a.resultOut] = int(a.weight.axes[a.out].dim)
	a.rows = []int{1 - a.dataIn, 1 - a.dataIn}
	a.rows[a.resultOut] = -1
	return shape
}

// joinData makes an Einsum of one weight and several data one of two operands, by multiplying the data; none where there is another
// number of weights.
func (p *probe) joinData(equation string, in []*reference.Tensor) (joined string, operands []*reference.Tensor) {
	left, result, ok := strings.Cut(strings.ReplaceAll(equation, " ", ""), "->")
	terms := strings.Split(left, ",")
	if !ok || len(terms) != len(in) || strings.Contains(equation, ".") {
		return "", nil
	}
	var weight *reference.Tensor
	var term, letters string // of the weight, of all data
	var others []string
	var data []*reference.Tensor
	var from []*applied
	for i, t := range in {
		switch {
		case t == nil || p.views[t] != nil && weight != nil:
			return "", nil
		case p.views[t] != nil:
			weight, term = t, terms[i]
			continue
		}
		others, data = append(others, terms[i]), append(data, t)
		for _, a := range p.from[ref(t)] {
			if !slices.Contains(from, a) {
				from = append(from, a)
			}
		}
		for _, c := range terms[i] {
			if !strings.ContainsRune(letters, c) {
				letters += string(c)
			}
		}
	}
	g := onnx.NewFunction("", "", "", p.g.Facts.Opset()).Body
	n := g.AddNode("Einsum", nil, []*onnx.Value{g.NewValue("data")}, onnx.StringAttr("equation", strings.Join(others, ",")+"->"+letters))
	out, err := reference.NewForOpset(p.g.Facts.Opset(), nil, reference.Options{Exact: true}).Op(n, data)
	if weight == nil || err != nil {
		return "", nil
	}
	p.from[ref(out[0])] = from
	return letters + "," + term + "->" + result, []*reference.Tensor{out[0], weight}
}

// einsum reads Einsum of two operands.
func (a *applied) einsum(equation string, at int) []int {
	left, result, ok := strings.Cut(strings.ReplaceAll(equation, " ", ""), "->")
	terms := strings.Split(left, ",")
	if !ok || len(terms) != 2 || strings.Contains(equation, ".") {
		return nil
	}
	w, d := terms[at], terms[1-at]
	if len(w) != len(a.weight.axes) || len(d) != len(a.data.Shape) {
		return nil
	}
	for _, term := range []string{w, d, result} {
		for i, c := range []byte(term) {
			if strings.IndexByte(term, c) != i {
				return nil // a diagonal
			}
		}
	}
	for i, c := range []byte(w) {
		stretched := strings.IndexByte(result, c) >= 0 // one row may be multiplied with all matrices
		if k := strings.IndexByte(d, c); k >= 0 && int64(a.data.Shape[k]) != a.weight.axes[i].dim && !(stretched && a.data.Shape[k] == 1) {
			return nil
		}
	}
	var summed, own []int // axes of the weight: summed over, of the result alone
	for i, c := range []byte(w) {
		inData, inResult := strings.IndexByte(d, c) >= 0, strings.IndexByte(result, c) >= 0
		switch {
		case inData && inResult:
		case inData:
			summed = append(summed, i)
		case inResult:
			own = append(own, i)
		default:
			return nil
		}
	}
	// Of several axes of one kind the last one is the matrix's.
	if len(summed) == 0 || len(own) == 0 {
		return nil
	}
	a.in, a.out = summed[len(summed)-1], own[len(own)-1]
	a.dataIn, a.resultOut = strings.IndexByte(d, w[a.in]), strings.IndexByte(result, w[a.out])
	for i, c := range []byte(w) {
		if i != a.in && i != a.out {
			at := strings.IndexByte(d, c)
			if at >= 0 && int64(a.data.Shape[at]) != a.weight.axes[i].dim {
				at = -1
			}
			a.batch = append(a.batch, i)
			a.dataBatch, a.resultBatch = append(a.dataBatch, at), append(a.resultBatch, strings.IndexByte(result, c))
		}
	}
	shape := make([]int, len(result))
	a.rows = make([]int, len(result))
	for i, c := range []byte(result) {
		a.rows[i] = strings.IndexByte(d, c)
		switch k := strings.IndexByte(w, c); {
		case k >= 0:
			shape[i] = int(a.weight.axes[k].dim)
		case a.rows[i] >= 0:
			shape[i] = a.data.Shape[a.rows[i]]
		default:
			return nil
		}
	}
	return shape
}

// setBias takes b for the bias of the product, which is added to its result in some shape.
func (a *applied) setBias(shape []int, b *weightView) bool {
	if elements(shape) == 0 {
		return true // nothing to add it to
	}
	whole := b.expand(long(shape))
	if a.bias != nil || whole == nil || !slices.Equal(whole.dims(), long(shape)) {
		return false
	}
	if whole = whole.reshape(long(a.shape)); whole == nil {
		return false
	}
	for i := range whole.axes {
		if i != a.resultOut && !slices.Contains(a.resultBatch, i) && !whole.repeats(i) {
			return false
		}
	}
	a.bias = whole
	return true
}

func long(shape []int) []int64 {
	r := make([]int64, len(shape))
	for i, d := range shape {
		r[i] = int64(d)
	}
	return r
}

// places is the number of matrices that the weight holds.
func (a *applied) places() int64 {
	n := int64(1)
	for _, axis := range a.batch {
		n *= a.weight.axes[axis].dim
	}
	return n
}

// index returns the place of each axis in batch for one of the matrices.
func (a *applied) index(place int64) []int64 {
	index := make([]int64, len(a.batch))
	for i := len(index) - 1; i >= 0; i-- {
		d := a.weight.axes[a.batch[i]].dim
		index[i], place = place%d, place/d
	}
	return index
}

// matrix returns one of the matrices.
func (a *applied) matrix(place int64) *matrix {
	in, out := a.weight.axes[a.in], a.weight.axes[a.out]
	return &matrix{at: a.weight.element(a.batch, a.index(place), a.in, a.out), in: in.dim, out: out.dim, byIn: in.stride, byOut: out.stride}
}

// biasAt returns the bias at one place; nil where there is none.
func (a *applied) biasAt(place int64) *matrix {
	if a.bias == nil {
		return nil
	}
	out := a.bias.axes[a.resultOut]
	return &matrix{at: a.bias.element(a.resultBatch, a.index(place), a.resultOut), in: 1, out: out.dim, byOut: out.stride}
}

// element returns the origin of what is left of a view at one place of some axes; none where the other axes lead to several initializers.
func (w *weightView) element(axes []int, index []int64, others ...int) origin {
	for _, axis := range others {
		if a := w.axes[axis]; a.dim > 1 && a.step != 0 {
			return origin{}
		}
	}
	number, offset := w.base, int64(0)
	for i, axis := range axes {
		if axis >= 0 {
			number += index[i] * w.axes[axis].step
			offset += index[i] * w.axes[axis].stride
		}
	}
	o := w.origins[number]
	return origin{o.source, o.offset + offset}
}

// matrix is a matrix, or a vector with in = 1, in an initializer.
type matrix struct {
	at          origin
	in, out     int64
	byIn, byOut int64 // steps, in elements
}
