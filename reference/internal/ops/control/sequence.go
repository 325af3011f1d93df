package control

import (
	"slices"

	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/reference/internal/op"
	"github.com/mojo-patch/mojo-patch/reference/internal/tensor"
)

var sequenceOps = map[string]op.Def{
	"SequenceEmpty":      op.Anything(0, func(c *op.Call) []*tensor.Tensor { return op.One(tensor.Sequence(nil)) }),
	"SequenceConstruct":  op.Plain(1, func(c *op.Call) []*tensor.Tensor { return op.One(tensor.Sequence(c.In)) }),
	"SequenceLength":     op.Anything(1, opSequenceLength),
	"SequenceAt":         op.Anything(2, opSequenceAt),
	"SequenceInsert":     op.Anything(2, opSequenceInsert),
	"SequenceErase":      op.Anything(1, opSequenceErase),
	"SplitToSequence":    op.Anything(1, opSplitToSequence),
	"ConcatFromSequence": op.Anything(1, opConcatFromSequence),
}

// sequenceOf returns the elements of input 0, which must be a sequence.
func sequenceOf(c *op.Call) []*tensor.Tensor {
	if !tensor.IsSequence(c.In[0]) {
		tensor.Fail("input 0 is %s, expected a sequence", c.In[0])
	}
	return tensor.Members(c.In[0])
}

func opSequenceLength(c *op.Call) []*tensor.Tensor {
	return op.One(tensor.NewInts(onnx.Int64, []int{}, []int64{int64(len(sequenceOf(c)))}))
}

func opSequenceAt(c *op.Call) []*tensor.Tensor {
	s := sequenceOf(c)
	return op.One(s[c.Index(c.Integer(1, 0), len(s))])
}

func opSequenceInsert(c *op.Call) []*tensor.Tensor {
	s := sequenceOf(c)
	i := c.Integer(2, int64(len(s)))
	if i < 0 {
		i += int64(len(s))
	}
	if tensor.IsSequence(c.In[1]) {
		tensor.Fail("input 1 is a %s, but a sequence holds only tensors", c.In[1])
	}
	if i < 0 || i > int64(len(s)) {
		tensor.Fail("position %d is outside a sequence of %d", i, len(s))
	}
	return op.One(tensor.Sequence(slices.Insert(slices.Clone(s), int(i), c.In[1])))
}

func opSequenceErase(c *op.Call) []*tensor.Tensor {
	s := sequenceOf(c)
	i := c.Index(c.Integer(1, -1), len(s))
	return op.One(tensor.Sequence(slices.Delete(slices.Clone(s), i, i+1)))
}

// opSplitToSequence splits into parts of the given sizes, or of one given size, or into single slices, which lose the
// dimension if keepdims is 0.
func opSplitToSequence(c *op.Call) []*tensor.Tensor {
	x := c.In[0]
	axis := c.Axis(c.Int("axis", 0), x.Rank())
	sizes, given := c.Integers(1)
	d := int64(x.Shape[axis])
	if !given || c.In[1].Rank() == 0 {
		each := int64(1)
		if given {
			each = sizes[0]
		}
		if each < 1 {
			tensor.Fail("parts of %d elements", each)
		}
		if d > int64(x.Len()+tensor.MaxParts) {
			tensor.Fail("%v has too few elements for %d parts", x.Shape, d)
		}
		sizes = nil
		for i := int64(0); i < d; i += each {
			sizes = append(sizes, min(each, d-i))
		}
	}
	parts := tensor.Split(x, axis, sizes)
	if !given && c.Int("keepdims", 1) == 0 {
		parts = tensor.WithoutAxis(parts, axis)
	}
	return op.One(tensor.Sequence(parts))
}

func opConcatFromSequence(c *op.Call) []*tensor.Tensor {
	s := sequenceOf(c)
	if len(s) == 0 {
		tensor.Fail("the sequence is empty")
	}
	axis := c.Int("axis", 0)
	if c.Int("new_axis", 0) != 0 {
		return op.One(stack(c, s, axis, nil))
	}
	for _, t := range s {
		if t.DataType != s[0].DataType {
			tensor.Fail("%s and %s cannot be joined", s[0], t)
		}
	}
	return op.One(tensor.Concat(s, c.Axis(axis, s[0].Rank())))
}
