package op

import (
	"fmt"

	"github.com/mojo-patch/mojo-patch/reference/internal/tensor"
)

// Meter counts the resources of one evaluation.
type Meter struct {
	steps int
	Live  int // the elements of tensors that are needed
	// Watch enables Overflow, which reports that a node computed infinities or NaN from finite numbers.
	Watch, Overflow bool
}

// Step counts a node or an iteration. It returns an error if there are too many.
func (m *Meter) Step() error {
	if m.steps++; m.steps > tensor.MaxSteps {
		return fmt.Errorf("more than %d nodes and iterations are evaluated: the loops or the nested functions hardly "+
			"end", tensor.MaxSteps)
	}
	return nil
}

// Hold counts tensors that stay while others are made.
func (m *Meter) Hold(list ...*tensor.Tensor) error {
	for _, t := range list {
		m.Live += tensor.Footprint(t)
	}
	if m.Live > tensor.MaxLive {
		return fmt.Errorf("tensors of more than %d elements are needed at the same time", tensor.MaxLive)
	}
	return nil
}

// Release takes back a tensor that Hold counted.
func (m *Meter) Release(t *tensor.Tensor) { m.Live -= tensor.Footprint(t) }
