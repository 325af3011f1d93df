package quantized

import (
	"fmt"
	"math"
	"math/rand/v2"

	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/patterns/reason"
	"github.com/mojo-patch/mojo-patch/reference"
)

// comparedElements bounds the elements of a weight that the evaluator decodes for the comparison.
const comparedElements = 1 << 20

// decodes returns an error unless the evaluator decodes a node's first elements to the same floats. Each kind of node
// is tried once.
func (v *View) decodes(f *floatNode) error {
	key := f.was.OpType + onnx.AttributesKey(f.was.Attributes)
	for _, in := range f.was.Inputs[1:] {
		if t := in.Constant(); t != nil {
			key += fmt.Sprint(" ", t.DataType, len(t.Dims))
		}
	}
	key += fmt.Sprint(" ", storedCodes(&f.was).Const.DataType)
	return v.decoded.Once(key, func() error {
		err := f.compare()
		if err != nil {
			err = reason.New(reason.Differs, f.node, "the elements of %q were read in another way than %s reads "+
				"them: %w",
				storedCodes(&f.was).Name, onnx.OpName(f.was.Domain, f.was.OpType), err)
		}
		return err
	})
}

func (f *floatNode) compare() error {
	floats := f.floats.Const
	inputs := make([]*reference.Tensor, len(f.was.Inputs))
	read := func(i int, lead int64) error { // the first lead entries of an input's first dimension; -1: all
		t := f.was.Input(i).Constant()
		if t == nil {
			return nil
		}
		if lead >= 0 && len(t.Dims) > 0 && lead < t.Dims[0] {
			b, err := t.Bytes()
			if err != nil {
				return err
			}
			dims := append([]int64{lead}, t.Dims[1:]...)
			size := (&onnx.Tensor{DataType: t.DataType, Dims: dims}).Size()
			if size > int64(len(b)) {
				return fmt.Errorf("%q has %d bytes", t.Name, len(b))
			}
			if t, err = onnx.NewTensor(t.Name, t.DataType, dims, b[:size]); err != nil {
				return err
			}
		}
		x, err := reference.FromONNX(t)
		inputs[i] = x
		return err
	}
	evaluate := func(n *onnx.Node) (*reference.Tensor, error) {
		out, err := reference.NewForOpset(25, nil, reference.Options{Exact: true}).Op(n, inputs)
		if err != nil {
			return nil, err
		}
		return out[0].Dense()
	}
	n := f.was
	if n.Is("DequantizeLinear") {
		dims := n.Inputs[0].Const.Dims
		axis, block := n.AttrInt("axis", 1), n.AttrInt("block_size", 0)
		if axis < 0 {
			axis += int64(len(dims))
		}
		lead := max(1, min(dims[0], comparedElements*dims[0]/floats.Len()))
		of := int64(-1) // number of scale entries; -1: all
		switch {
		case block > 0 && axis == 0:
			of = max(1, lead/block)
			lead = min(dims[0], of*block)
		case block > 0 || axis == 0:
			of = lead
		}
		if floats.Len()/dims[0]*lead > 16*comparedElements {
			return nil
		}
		for i, first := range []int64{lead, of, of} {
			if i < len(n.Inputs) {
				if s := n.Input(i).Constant(); i > 0 && s != nil && s.Len() == 1 {
					first = -1
				}
				if err := read(i, first); err != nil {
					return err
				}
			}
		}
		got, err := evaluate(&n)
		if err != nil {
			return err
		}
		return sameFloats(got.F, floats, 0, 1)
	}
	// Multiply a few rows of the matrix.
	k, columns := floats.Dims[0], floats.Dims[1]
	rows := min(columns, 3)
	n.Attributes = append([]*onnx.Attribute(nil), n.Attributes...)
	n.SetAttr(onnx.IntAttr("N", rows))
	for i := 1; i < min(len(n.Inputs), 4); i++ {
		t := n.Input(i).Constant()
		lead := rows
		if t != nil && len(t.Dims) == 1 {
			lead = t.Dims[0] / columns * rows
		}
		if err := read(i, lead); err != nil {
			return err
		}
	}
	x := make([]float64, k)
	r := rand.New(rand.NewPCG(1, 2))
	for i := range x {
		x[i] = r.NormFloat64()
	}
	n.Inputs, inputs = n.Inputs[:min(len(n.Inputs), 4)], inputs[:min(len(inputs), 4)]
	inputs[0] = reference.NewFloats(floats.DataType, []int{1, int(k)}, x)
	got, err := evaluate(&n)
	if err != nil {
		return err
	}
	for row, y := range got.F {
		want, size := 0.0, 0.0
		column, err := floatsOf(floats, int64(row), columns, k)
		if err != nil {
			return err
		}
		for i, w := range column {
			want += x[i] * w
			size += math.Abs(x[i] * w)
		}
		if math.Abs(want-y) > 1e-6*size && floats.DataType == onnx.Float || math.Abs(want-y) > 1e-2*size {
			return fmt.Errorf("row %d returns %v instead of %v", row, want, y)
		}
	}
	return nil
}

// floatsOf returns count elements of a tensor, step apart, starting at first.
func floatsOf(t *onnx.Tensor, first, step, count int64) ([]float64, error) {
	lazy, err := reference.Deferred(t)
	if err != nil {
		return nil, err
	}
	list := make([]float64, count)
	return list, lazy.Read(list, int(first), int(step))
}

// sameFloats returns an error unless the elements equal want.
func sameFloats(want []float64, t *onnx.Tensor, first, step int64) error {
	got, err := floatsOf(t, first, step, int64(len(want)))
	if err != nil {
		return err
	}
	for i, x := range want {
		if d := math.Abs(got[i] - x); d > 1e-6*math.Abs(x) && t.DataType == onnx.Float || d > 1e-2*math.Abs(x)+1e-7 {
			return fmt.Errorf("element %d is %v instead of %v", first+int64(i)*step, got[i], x)
		}
	}
	return nil
}
