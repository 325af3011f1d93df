package pagedcache

import (
	"fmt"
	"hash/fnv"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"

	"github.com/mojo-patch/mojo-patch/fused"
	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/reference"
	"github.com/mojo-patch/mojo-patch/reference/infer"
)

// The proof by parts. Nearly all the time of a whole proof goes into products with constant weights, which the
// conversion keeps. Such a product computes each row of its result from the same row of its input: it is f applied to
// each row, whatever the weights are. So both models are the same expression of two kinds of parts: row functions
// f1, f2, … and all other nodes, which may look along the sequence or the batch. The claim that both models agree on
// the trial does not depend on the f's if it holds for f's in general. That is proven as it is for inputs in general:
// by drawing them. A stand-in is a drawn f. It costs as much as reading a row instead of a matrix.
//
// Three conditions keep this as strict as the whole proof:
//   - Only nodes whose definition makes them row functions get a stand-in (rowsOf). Every other node is evaluated.
//   - Equal f's stand for equal functions only: the op, its attributes and the identity of its weights determine f. A
//     conversion that exchanges weights or changes an attribute gets another f, and the models differ.
//   - Each output of f depends on all elements of the row, so that a change of any of them shows.

// leastWeights is the number of weights from which a node gets a stand-in. It is a variable for the tests.
var leastWeights = int64(1) << 16

// rowInputs lists the ops that are functions of rows if all inputs after the first few are constant, with the number of
// these first inputs, which have a row for each token.
var rowInputs = map[string]int{
	"MatMul":                              1,
	"Gemm":                                1,
	onnx.Microsoft + ".MatMulNBits":       1,
	fused.Domain + "." + fused.LinearName: 1,
	fused.Domain + "." + fused.HalfLinearName: 1,
	fused.Domain + "." + fused.MoEName:        3,
	fused.Domain + "." + fused.QMoEName:       3,
}

// weightOps are ops of constants that are constants as well.
var weightOps = map[string]bool{"Cast": true, "Concat": true, "DequantizeLinear": true, "Identity": true, "Mul": true,
	"Reshape": true, "Slice": true, "Squeeze": true, "Transpose": true, "Unsqueeze": true}

// standIns evaluates row functions of constant weights as drawn functions of the same rows.
type standIns struct {
	facts *infer.Facts // of the unconverted model
	ids   map[*onnx.Tensor]int
	known map[string]rowShape // the stand-ins by their keys
}

// rowShape is the type and width of the rows that a stand-in reads, and the width of the rows that it computes.
type rowShape struct {
	typ           onnx.DataType
	width, result int
}

func newStandIns(facts *infer.Facts) *standIns {
	return &standIns{facts, map[*onnx.Tensor]int{}, map[string]rowShape{}}
}

// rowsOf returns how many of the first inputs of a node have a row for each token, and its key, if it is a function of
// rows with enough constant weights. Otherwise it returns 0.
func (p *standIns) rowsOf(n *onnx.Node) (inputs int, key string) {
	inputs = rowInputs[onnx.OpName(n.Domain, n.OpType)]
	if inputs == 0 || len(n.Inputs) <= inputs || len(n.Outputs) != 1 || n.Outputs[0] == nil {
		return 0, ""
	}
	weights := int64(0)
	keys := []string{onnx.OpName(n.Domain, n.OpType), n.Overload, onnx.AttributesKey(n.Attributes)}
	for i, v := range n.Inputs {
		k, size := p.constant(v)
		switch {
		case i < inputs && (v == nil || k != ""), i >= inputs && v != nil && k == "":
			return 0, ""
		case i >= inputs:
			keys, weights = append(keys, k), weights+size
		}
	}
	if weights < leastWeights {
		return 0, ""
	}
	rank, ok := p.facts.Rank(n.Inputs[inputs])
	switch n.OpType {
	case "MatMul": // a stack of matrices is another function for each element of the batch
		ok = ok && rank == 2
	case "Gemm": // a transposed input has its rows along the other axis, and so may C have a row for each row
		ok = n.AttrInt("transA", 0) == 0
		if c := n.Input(2); c != nil && ok {
			rank, ok = p.facts.Rank(c)
			if rank > 1 {
				rows, known := p.facts.Dim(c, 0)
				ok = known && rows == 1
			}
		}
	}
	if !ok {
		return 0, ""
	}
	return inputs, strings.Join(keys, " ")
}

// constant returns a key that is equal for equal constants and results of ops on them, and the number of elements. The
// key of other values is "".
func (p *standIns) constant(v *onnx.Value) (key string, size int64) {
	if t := v.Constant(); t != nil {
		id, ok := p.ids[t]
		if !ok {
			id = len(p.ids)
			p.ids[t] = id
		}
		return fmt.Sprintf("#%d", id), t.Len()
	}
	if v == nil || v.Producer == nil || !onnx.IsStandardDomain(v.Producer.Domain) || !weightOps[v.Producer.OpType] {
		return "", 0
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%s%s(", v.Producer.OpType, onnx.AttributesKey(v.Producer.Attributes))
	for _, in := range v.Producer.Inputs {
		k := "none"
		if in != nil {
			if k, _ = p.constant(in); k == "" {
				return "", 0
			}
		}
		b.WriteString(k + " ")
	}
	rank, ok := p.facts.Rank(v)
	size = 1
	for axis := range rank {
		d, known := p.facts.Dim(v, axis)
		ok, size = ok && known, size*d
	}
	if !ok {
		return "", 0
	}
	return b.String() + ")", size
}

// remaining returns about how many weights each token multiplies in a node that has no stand-in, of which w are
// constants: others are computed from constants.
func (p *standIns) remaining(n *onnx.Node, w int64) int64 {
	if rows, _ := p.rowsOf(n); rows > 0 {
		return 0
	}
	if key, _ := p.constant(n.OutputValue(0)); key != "" {
		return 0 // counted by its readers
	}
	for _, v := range n.Inputs {
		if v.Constant() == nil {
			_, size := p.constant(v)
			w += size
		}
	}
	return w
}

// evaluate is an Override: it computes nodes that are functions of rows by their stand-ins.
func (p *standIns) evaluate(n *onnx.Node, s *reference.Scope) ([]*reference.Tensor, error) {
	if n.Is("DequantizeLinear") {
		return p.later(n, s)
	}
	inputs, key := p.rowsOf(n)
	if inputs == 0 {
		return nil, nil
	}
	in := make([]*reference.Tensor, inputs)
	for i := range in {
		var err error
		if in[i], err = s.Bound(n.Inputs[i]).Dense(); err != nil || in[i] == nil {
			return nil, err
		}
	}
	x := in[0]
	if len(x.Shape) < 2 || !x.IsFloat() {
		return nil, nil
	}
	of, ok := p.known[key]
	if !ok {
		width, first := p.facts.Dim(n.Inputs[0], -1)
		result, second := p.facts.Dim(n.Outputs[0], -1)
		if !first || !second || width < 1 || result < 1 {
			return nil, nil
		}
		of = rowShape{p.facts.DataType(n.Inputs[0]), int(width), int(result)}
		p.known[key] = of
	}
	last := len(x.Shape) - 1
	if x.Shape[last] != of.width || x.DataType != of.typ {
		return nil, nil // the node refuses it
	}
	seed := fnv.New64a()
	seed.Write([]byte(key))
	shape := slices.Clone(x.Shape)
	shape[last] = of.result
	rows := len(x.F) / of.width
	y := make([]float64, rows*of.result)
	row := func(t int) (from, to []float64) {
		return x.F[t*of.width : (t+1)*of.width], y[t*of.result : (t+1)*of.result]
	}
	if inputs == 1 {
		f := newRowFunction(seed.Sum64(), 0, of)
		for t := range rows {
			from, to := row(t)
			f.add(to, from, 1)
		}
		return []*reference.Tensor{reference.NewFloats(x.DataType, shape, y)}, nil
	}
	weights, ids := in[1], in[2]
	chosen := ids.Shape[len(ids.Shape)-1]
	if len(ids.I) != rows*chosen || len(weights.F) != len(ids.I) || weights.Shape[len(weights.Shape)-1] != chosen {
		return nil, nil
	}
	experts := map[int64]*rowFunction{}
	for i, id := range ids.I {
		if experts[id] == nil {
			experts[id] = newRowFunction(seed.Sum64(), uint64(id), of)
		}
		from, to := row(i / chosen)
		experts[id].add(to, from, weights.F[i])
	}
	return []*reference.Tensor{reference.NewFloats(x.DataType, shape, y)}, nil
}

// later makes a dequantized weight that is computed when it is read. Stand-ins do not read their weights.
func (p *standIns) later(n *onnx.Node, s *reference.Scope) ([]*reference.Tensor, error) {
	key, size := p.constant(n.Outputs[0])
	if key == "" || size < leastWeights {
		return nil, nil
	}
	shape := make([]int, 0, 2)
	rank, _ := p.facts.Rank(n.Outputs[0])
	for axis := range rank {
		d, _ := p.facts.Dim(n.Outputs[0], axis)
		shape = append(shape, int(d))
	}
	compute := sync.OnceValues(func() ([]*reference.Tensor, error) { return s.Op(n) })
	x, err := reference.NewLazy(p.facts.DataType(n.Outputs[0]), shape, func(dst []float64, offset int) error {
		out, err := compute()
		if err == nil {
			err = out[0].Read(dst, offset, 1)
		}
		return err
	})
	if err != nil {
		return nil, nil // not a float: the node decides
	}
	return []*reference.Tensor{x}, nil
}

// rowFunction is a linear function of rows of x that keeps their magnitude:
// y[j] = 0.8 * (sum of a[t] * x[t mod width] over all t with (t + shift) mod result = j) / sqrt(terms)
// + 0.6 * b[j] * (sum of c[i] * x[i]) / sqrt(width), t from 0 to the greater width, with drawn a, b, c and shift.
type rowFunction struct {
	a, b, c []float64
	shift   int
}

func newRowFunction(seed, stream uint64, of rowShape) *rowFunction {
	most := max(of.width, of.result)
	f := &rowFunction{make([]float64, most), make([]float64, of.result), make([]float64, of.width), 0}
	r := rand.New(rand.NewPCG(seed, stream))
	terms := float64(most) / float64(of.result)
	draw := func(list []float64, scale float64) {
		for i := range list {
			list[i] = scale * (0.5 + r.Float64())
			if r.IntN(2) == 0 {
				list[i] = -list[i]
			}
		}
	}
	draw(f.a, 0.8/math.Sqrt(terms))
	draw(f.b, 0.6)
	draw(f.c, 1/math.Sqrt(float64(of.width)))
	f.shift = r.IntN(of.result)
	return f
}

// add adds w * f(x) to y.
func (f *rowFunction) add(y, x []float64, w float64) {
	sum := 0.0
	for i, c := range f.c {
		sum += c * x[i]
	}
	for j, b := range f.b {
		y[j] += w * b * sum
	}
	for t, i, j := 0, 0, f.shift; t < len(f.a); t++ {
		y[j] += w * f.a[t] * x[i]
		if i++; i == len(x) {
			i = 0
		}
		if j++; j == len(y) {
			j = 0
		}
	}
}
