package reference

import "fmt"

// What one evaluation may take, so that a model that claims to be huge, or to loop without end, ends in an error and
// not in an exhausted machine. They are variables for the tests.
var (
	// maxElements bounds a tensor that an op makes; at 8 bytes an element that is 2 GiB.
	maxElements = 1 << 28
	// maxStored bounds a tensor that the model's files hold: it takes at most 16 times their bytes.
	maxStored = 1 << 31
	// maxLazy bounds one whose elements are asked for as they are needed: the experts of a layer of DeepSeek-V3 are
	// more than maxStored.
	maxLazy = 1 << 40
	// maxLive bounds the elements of all tensors that are needed at the same time: 4 GiB.
	maxLive = 1 << 29
	// maxSteps bounds the nodes that are evaluated and the iterations of loops, together.
	maxSteps = 1 << 23
	// maxParts bounds the parts without elements that one tensor is split into.
	maxParts = 1 << 16
)

// meter counts what one evaluation takes.
type meter struct {
	steps int
	live  int
	// watch asks for overflow: that a node made infinities or NaN of finite numbers.
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

// footprint is the number of elements, those of a sequence together; an element counts for itself and its tensor for
// a few more.
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
