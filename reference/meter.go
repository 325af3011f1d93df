package reference

import "fmt"

// The limits of one evaluation, so that a model that claims to be huge, or loops without end, fails with an error
// instead of exhausting the machine. They are variables for the tests.
var (
	// maxElements bounds a tensor that an op makes; at 8 bytes per element that is 2 GiB.
	maxElements = 1 << 28
	// maxStored bounds a tensor in the model's files: it takes at most 16 times their bytes.
	maxStored = 1 << 31
	// maxLazy bounds a tensor whose elements are read on demand: the experts of a DeepSeek-V3 layer have more than
	// maxStored.
	maxLazy = 1 << 40
	// maxLive bounds the elements of all tensors that are needed at the same time: 4 GiB.
	maxLive = 1 << 29
	// maxSteps bounds the evaluated nodes and loop iterations together.
	maxSteps = 1 << 23
	// maxParts bounds the parts without elements that one tensor is split into.
	maxParts = 1 << 16
)

// meter counts the resources of one evaluation.
type meter struct {
	steps int
	live  int
	// watch enables overflow, which reports that a node computed infinities or NaN from finite numbers.
	watch, overflow bool
}

func (m *meter) step() error {
	if m.steps++; m.steps > maxSteps {
		return fmt.Errorf("more than %d nodes and iterations are evaluated: the loops or the nested functions hardly "+
			"end", maxSteps)
	}
	return nil
}

// hold counts tensors that stay while others are made.
func (m *meter) hold(list ...*Tensor) error {
	for _, t := range list {
		m.live += t.footprint()
	}
	if m.live > maxLive {
		return fmt.Errorf("tensors of more than %d elements are needed at the same time", maxLive)
	}
	return nil
}

func (m *meter) release(t *Tensor) { m.live -= t.footprint() }

// footprint is the number of elements, for a sequence of all its tensors, plus a few for each tensor.
func (t *Tensor) footprint() int {
	if t == nil {
		return 0
	}
	if t.lazy != nil {
		return 16 + 8*len(t.lazy.blocks)
	}
	if !t.isSeq {
		return 16 + t.Len()
	}
	n := 16
	for _, x := range t.seq {
		n += x.footprint()
	}
	return n
}
