package reference

import (
	"slices"

	"github.com/mojo-patch/mojo-patch/onnx"
)

var sequenceOps = map[string]opDef{
	"SequenceEmpty":      anything(0, func(c *call) []*Tensor { return one(sequence(nil)) }),
	"SequenceConstruct":  plain(1, func(c *call) []*Tensor { return one(sequence(c.in)) }),
	"SequenceLength":     anything(1, opSequenceLength),
	"SequenceAt":         anything(2, opSequenceAt),
	"SequenceInsert":     anything(2, opSequenceInsert),
	"SequenceErase":      anything(1, opSequenceErase),
	"SplitToSequence":    anything(1, opSplitToSequence),
	"ConcatFromSequence": anything(1, opConcatFromSequence),
}

func sequence(s []*Tensor) *Tensor { return &Tensor{isSeq: true, seq: s} }

// elements returns the elements of input 0, which must be a sequence.
func (c *call) elements() []*Tensor {
	if !c.in[0].isSeq {
		fail("input 0 is %s, expected a sequence", c.in[0])
	}
	return c.in[0].seq
}

func opSequenceLength(c *call) []*Tensor {
	return one(NewInts(onnx.Int64, []int{}, []int64{int64(len(c.elements()))}))
}

func opSequenceAt(c *call) []*Tensor {
	s := c.elements()
	return one(s[c.index(c.integer(1, 0), len(s))])
}

func opSequenceInsert(c *call) []*Tensor {
	s := c.elements()
	i := c.integer(2, int64(len(s)))
	if i < 0 {
		i += int64(len(s))
	}
	if c.in[1].isSeq {
		fail("input 1 is a %s, but a sequence holds only tensors", c.in[1])
	}
	if i < 0 || i > int64(len(s)) {
		fail("position %d is outside a sequence of %d", i, len(s))
	}
	return one(sequence(slices.Insert(slices.Clone(s), int(i), c.in[1])))
}

func opSequenceErase(c *call) []*Tensor {
	s := c.elements()
	i := c.index(c.integer(1, -1), len(s))
	return one(sequence(slices.Delete(slices.Clone(s), i, i+1)))
}

// opSplitToSequence splits into parts of the given sizes, or of one given size, or into single slices, which lose the
// dimension if keepdims is 0.
func opSplitToSequence(c *call) []*Tensor {
	x := c.in[0]
	axis := c.axis(c.int("axis", 0), x.Rank())
	sizes, given := c.integers(1)
	d := int64(x.Shape[axis])
	if !given || c.in[1].Rank() == 0 {
		each := int64(1)
		if given {
			each = sizes[0]
		}
		if each < 1 {
			fail("parts of %d elements", each)
		}
		if d > int64(x.Len()+maxParts) {
			fail("%v has too few elements for %d parts", x.Shape, d)
		}
		sizes = nil
		for i := int64(0); i < d; i += each {
			sizes = append(sizes, min(each, d-i))
		}
	}
	parts := split(x, axis, sizes)
	if !given && c.int("keepdims", 1) == 0 {
		parts = withoutAxis(parts, axis)
	}
	return one(sequence(parts))
}

func opConcatFromSequence(c *call) []*Tensor {
	s := c.elements()
	if len(s) == 0 {
		fail("the sequence is empty")
	}
	axis := c.int("axis", 0)
	if c.int("new_axis", 0) != 0 {
		return one(c.stack(s, axis, nil))
	}
	for _, t := range s {
		if t.DataType != s[0].DataType {
			fail("%s and %s cannot be joined", s[0], t)
		}
	}
	return one(concat(s, c.axis(axis, s[0].Rank())))
}
