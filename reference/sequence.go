package reference

import (
	"fmt"
	"slices"

	"github.com/mojo-patch/mojo-patch/onnx"
)

var sequenceOps = map[string]opDef{
	"SequenceEmpty":      anything(0, func(c *call) ([]*Tensor, error) { return one(sequence(nil)) }),
	"SequenceConstruct":  plain(1, func(c *call) ([]*Tensor, error) { return one(sequence(c.in)) }),
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
		c.fail("input 0 is %s, expected a sequence", c.in[0])
	}
	return c.in[0].seq
}

func opSequenceLength(c *call) ([]*Tensor, error) {
	return one(NewInts(onnx.Int64, []int{}, []int64{int64(len(c.elements()))}))
}

func opSequenceAt(c *call) ([]*Tensor, error) {
	s := c.elements()
	i := c.index(c.integer(1, 0), len(s))
	if c.err != nil {
		return nil, c.err
	}
	return one(s[i])
}

func opSequenceInsert(c *call) ([]*Tensor, error) {
	s := c.elements()
	i := c.integer(2, int64(len(s)))
	if i < 0 {
		i += int64(len(s))
	}
	if c.in[1].isSeq {
		c.fail("input 1 is a %s, and a sequence holds tensors alone", c.in[1])
	}
	if c.err == nil && (i < 0 || i > int64(len(s))) {
		c.fail("position %d is outside a sequence of %d", i, len(s))
	}
	if c.err != nil {
		return nil, c.err
	}
	return one(sequence(slices.Insert(slices.Clone(s), int(i), c.in[1])))
}

func opSequenceErase(c *call) ([]*Tensor, error) {
	s := c.elements()
	i := c.index(c.integer(1, -1), len(s))
	if c.err != nil {
		return nil, c.err
	}
	return one(sequence(slices.Delete(slices.Clone(s), i, i+1)))
}

// opSplitToSequence splits into parts of the given sizes, or of one given size, or into single slices, which lose the
// dimension when keepdims is 0.
func opSplitToSequence(c *call) ([]*Tensor, error) {
	x := c.in[0]
	axis := c.axis(c.int("axis", 0), x.Rank())
	sizes, given := c.integers(1)
	if c.err != nil {
		return nil, c.err
	}
	d := int64(x.Shape[axis])
	if !given || c.in[1].Rank() == 0 {
		each := int64(1)
		if given {
			each = sizes[0]
		}
		if each < 1 {
			return nil, fmt.Errorf("parts of %d elements", each)
		}
		if d > int64(x.Len()+maxParts) {
			return nil, fmt.Errorf("%v has too few elements for %d parts", x.Shape, d)
		}
		sizes = nil
		for i := int64(0); i < d; i += each {
			sizes = append(sizes, min(each, d-i))
		}
	}
	parts, err := split(x, axis, sizes)
	if err != nil {
		return nil, err
	}
	if !given && c.int("keepdims", 1) == 0 {
		for i, p := range parts {
			parts[i] = p.withShape(slices.Delete(slices.Clone(p.Shape), axis, axis+1))
		}
	}
	return one(sequence(parts))
}

func opConcatFromSequence(c *call) ([]*Tensor, error) {
	s := c.elements()
	if c.err != nil || len(s) == 0 {
		c.fail("the sequence is empty")
		return nil, c.err
	}
	axis := c.int("axis", 0)
	if c.int("new_axis", 0) != 0 {
		t, err := c.stack(s, axis, nil)
		if err != nil {
			return nil, err
		}
		return one(t)
	}
	for _, t := range s {
		if t.DataType != s[0].DataType {
			return nil, fmt.Errorf("%s and %s cannot be joined", s[0], t)
		}
	}
	return concat(c, s, c.axis(axis, s[0].Rank()))
}
