package probe

import (
	"slices"
	"strings"

	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/patterns/match"
	"github.com/mojo-patch/mojo-patch/reference"
)

// noAxis means that a tensor lacks an axis.
const noAxis = -1

// A Product is one evaluation of a product of data with a weight.
type Product struct {
	Number int               // of the products of a run, in order
	weight *reference.Tensor // of places
	in     int               // the axis of the weight that is summed
	out    int               // the axis of the weight that becomes the result's channels
	batch  []int             // the axes of the weight along which each index is another matrix
	First  []*Product        // the products that the data come from
	bias   *reference.Tensor // of places, in the shape of the result
	places *places

	Data      *reference.Tensor // nil once the result is made
	DataIn    int               // the axis of the data that is summed
	shape     []int             // of the result
	ResultOut int
	Row       []float64 // of a first product: a row of the result that is not zero
	rows      []int     // the axis of the data for each axis of the result, or noAxis
	// The axes of the data and the result for each axis in batch, or noAxis: then all rows are multiplied with all
	// matrices, or the results of the matrices are added.
	dataBatch, resultBatch []int
}

// product evaluates a product with a weight: Fill or Answer sets the elements of its result. It returns nil for
// products that are not understood.
func (p *Runner) product(n *onnx.Node, in []*reference.Tensor) ([]*reference.Tensor, error) {
	equation := n.AttrString("equation", "")
	if n.OpType == "Einsum" && len(in) > 2 {
		equation, in = p.joinData(equation, in)
	}
	if len(in) < 2 || in[0] == nil || in[1] == nil || in[0].IsLazy() == in[1].IsLazy() {
		return nil, nil
	}
	at := 1
	if in[0].IsLazy() {
		at = 0
	}
	a := &Product{weight: in[at], Data: in[1-at], Number: p.count, places: &p.places}
	p.count++
	var shape []int
	bias, plain := p.gemmBias(n)
	switch {
	case !onnx.IsStandardDomain(n.Domain):
	case n.OpType == "MatMul":
		shape = a.einsum(matMul(in[0].Shape, in[1].Shape, at), at)
	case n.OpType == "Gemm" && plain:
		shape = a.einsum(gemm(n), at)
	case n.OpType == "Einsum" && len(in) == 2:
		shape = a.einsum(equation, at)
	}
	if shape == nil {
		return nil, nil
	}
	a.First = p.from[ref(a.Data)]
	a.shape = slices.Clone(shape)
	if parts := p.Parts[a.Number]; !a.split(parts) {
		return nil, NoExperts("a product with a matrix that is not made of %d equal ones", max(parts.Out, parts.In))
	}
	if bias != nil {
		if !in[2].IsLazy() || !a.setBias(expanded(in[2], shape)) {
			return nil, nil
		}
	}
	for _, f := range a.First {
		if len(f.First) > 0 {
			return nil, NoExperts("an expert has more than two products in a row")
		}
	}
	result := reference.NewFloats(a.Data.DataType, shape, make([]float64, match.Elements(shape)))
	p.made[ref(result)], p.from[ref(result)] = allOf([]*Product{a}, shape), []*Product{a}
	answer := p.Answer
	if len(a.First) == 0 {
		answer = p.Fill
	}
	rows := result.WithShape(a.shape)
	err := answer(a, rows)
	if len(a.First) == 0 {
		a.Row = RowOf(rows, a.ResultOut)
	}
	a.Data = nil
	return []*reference.Tensor{result}, err
}

// gemmBias returns the bias of a Gemm; nil without one, or if it is zero, as jax2onnx writes it. plain means that the
// Gemm adds the bias to the product without factors.
func (p *Runner) gemmBias(n *onnx.Node) (bias *onnx.Value, plain bool) {
	v, beta := n.Input(2), n.AttrFloat("beta", 1)
	if n.OpType != "Gemm" || v == nil {
		beta = 0
	} else if x, _, ok := p.View.Scalar(v); ok && x == 0 {
		beta = 0
	}
	if beta == 0 {
		v = nil
	}
	return v, n.AttrFloat("alpha", 1) == 1 && (v == nil || beta == 1)
}

// matMul writes a MatMul as an Einsum. Operand weight is the weight: an axis of size 1 that the data also have becomes
// an uppercase letter.
func matMul(x, y []int, weight int) string {
	batch := "abcdefghijklmno"
	terms := []string{"yz", "zx"}
	result := "yx"
	if len(x) == 1 {
		terms[0], result = "z", "x"
	}
	if len(y) == 1 {
		terms[1], result = "z", strings.TrimSuffix(result, "x")
	}
	for i := range max(len(x), len(y), 2) - 2 { // from the last one
		letter := batch[i : i+1]
		for k, shape := range [][]int{x, y} {
			switch other := []int{len(y), len(x)}[k]; {
			case i >= len(shape)-2:
			case k == weight && shape[len(shape)-3-i] == 1 && i < other-2:
				terms[k] = strings.ToUpper(letter) + terms[k]
			default:
				terms[k] = letter + terms[k]
			}
		}
		result = letter + result
	}
	return terms[0] + "," + terms[1] + "->" + result
}

// gemm writes a Gemm as an Einsum.
func gemm(n *onnx.Node) string {
	left, right := "yz", "zx"
	if n.AttrInt("transA", 0) != 0 {
		left = "zy"
	}
	if n.AttrInt("transB", 0) != 0 {
		right = "xz"
	}
	return left + "," + right + "->yx"
}

// joinData multiplies the data of an Einsum with one weight and several data, so that it has two operands. It returns
// nil for any other number of weights.
func (p *Runner) joinData(equation string, in []*reference.Tensor) (joined string, operands []*reference.Tensor) {
	left, result, ok := strings.Cut(strings.ReplaceAll(equation, " ", ""), "->")
	terms := strings.Split(left, ",")
	if !ok || len(terms) != len(in) || strings.Contains(equation, ".") {
		return "", nil
	}
	var weight *reference.Tensor
	var term, letters string // of the weight, of all data
	var others []string
	var data []*reference.Tensor
	var from []*Product
	for i, t := range in {
		switch {
		case t == nil || t.IsLazy() && weight != nil:
			return "", nil
		case t.IsLazy():
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
	g := onnx.NewFunction("", "", "", p.View.Facts.Opset()).Body
	n := g.AddNode("Einsum", nil, []*onnx.Value{g.NewValue("data")},
		onnx.StringAttr("equation", strings.Join(others, ",")+"->"+letters))
	out, err := reference.NewForOpset(p.View.Facts.Opset(), nil, reference.Options{Exact: true}).Op(n, data)
	if err != nil {
		return "", nil
	}
	p.from[ref(out[0])] = from
	return letters + "," + term + "->" + result, []*reference.Tensor{out[0], weight}
}

// einsum reads an Einsum of two operands; it returns the shape of the result, or nil.
func (a *Product) einsum(equation string, at int) []int {
	left, result, ok := strings.Cut(strings.ReplaceAll(equation, " ", ""), "->")
	terms := strings.Split(left, ",")
	if !ok || len(terms) != 2 || strings.Contains(equation, ".") {
		return nil
	}
	w, d := terms[at], terms[1-at]
	if len(w) != a.weight.Rank() || len(d) != len(a.Data.Shape) {
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
		if k := strings.IndexByte(d, c); k >= 0 && a.Data.Shape[k] != a.weight.Shape[i] &&
			!(stretched && a.Data.Shape[k] == 1) {
			return nil
		}
	}
	var summed, own []int // axes of the weight: summed, and only in the result
	for i, c := range []byte(w) {
		inData, inResult := strings.IndexByte(d, c) >= 0, strings.IndexByte(result, c) >= 0
		switch {
		case inData && inResult:
		case inData:
			summed = append(summed, i)
		case inResult:
			own = append(own, i)
		case a.weight.Shape[i] != 1:
			return nil
		}
	}
	// The last of several axes of one kind is the matrix's.
	if len(summed) == 0 || len(own) == 0 {
		return nil
	}
	a.in, a.out = summed[len(summed)-1], own[len(own)-1]
	a.DataIn, a.ResultOut = strings.IndexByte(d, w[a.in]), strings.IndexByte(result, w[a.out])
	for i, c := range []byte(w) {
		if i != a.in && i != a.out {
			a.batch, a.dataBatch = append(a.batch, i), append(a.dataBatch, strings.IndexByte(d, c))
			a.resultBatch = append(a.resultBatch, strings.IndexByte(result, c))
		}
	}
	shape := make([]int, len(result))
	a.rows = make([]int, len(result))
	for i, c := range []byte(result) {
		a.rows[i] = strings.IndexByte(d, c)
		switch k := strings.IndexByte(w, c); {
		case k >= 0:
			shape[i] = a.weight.Shape[k]
		case a.rows[i] >= 0:
			shape[i] = a.Data.Shape[a.rows[i]]
		default:
			return nil
		}
	}
	return shape
}

// setBias records b, a tensor of places, as the bias of the result; it returns false if b cannot be one.
func (a *Product) setBias(b *reference.Tensor) bool {
	at, _ := b.Dense()
	if at == nil || a.bias != nil {
		return false
	}
	for i, x := range at.F { // all rows of a matrix have the same bias
		first := 0
		for axis, step := range onnx.RowMajor(a.shape) {
			if axis == a.ResultOut || slices.Contains(a.resultBatch, axis) {
				first += i / step % a.shape[axis] * step
			}
		}
		if at.F[first] != x {
			return false
		}
	}
	if len(at.F) > 0 {
		a.bias = &reference.Tensor{DataType: at.DataType, Shape: a.shape, F: at.F}
	}
	return true
}

// Places returns the number of matrices in the weight.
func (a *Product) Places() int {
	n := 1
	for _, axis := range a.batch {
		n *= a.weight.Shape[axis]
	}
	return n
}

// offset returns the element of a tensor at which a matrix begins; axes are the tensor's axes for those in batch.
func (a *Product) offset(place int, axes, shape []int) int {
	offset, strides := 0, onnx.RowMajor(shape)
	for i, axis := range slices.Backward(axes) {
		d := a.weight.Shape[a.batch[i]]
		if axis >= 0 {
			offset += place % d * strides[axis]
		}
		place /= d
	}
	return offset
}

// Matrix returns one of the matrices.
func (a *Product) Matrix(place int) *Matrix {
	shape := a.weight.Shape
	strides := onnx.RowMajor(shape)
	return a.places.matrix(a.weight, a.offset(place, a.batch, shape), shape[a.in], strides[a.in], shape[a.out],
		strides[a.out])
}

// BiasAt returns the bias of one matrix, or nil.
func (a *Product) BiasAt(place int) *Matrix {
	if a.bias == nil {
		return nil
	}
	m := a.places.matrix(a.bias, a.offset(place, a.resultBatch, a.shape), 1, 0, a.shape[a.ResultOut],
		onnx.RowMajor(a.shape)[a.ResultOut])
	m.ByIn = 0
	return m
}
