package pagedcache

import "github.com/mojo-patch/mojo-patch/onnx"

// BoundWork bounds the multiplications of a proof, and returns a function that restores the bound.
func BoundWork(n int64) (restore func()) {
	was := mostProducts
	mostProducts = n
	return func() { mostProducts = was }
}

// ByParts makes proofs use stand-ins for all products with constant weights, and returns a function that restores the
// bounds.
func ByParts() (restore func()) {
	whole, least := mostWhole, leastWeights
	mostWhole, leastWeights = 0, 1
	return func() { mostWhole, leastWeights = whole, least }
}

// ApplyChanged is Apply with a change of the converted model before the proof.
func (c *Change) ApplyChanged(b Buffers, change func(*onnx.Model)) error {
	_, err := c.apply(b, func() error { change(c.Model); return nil }, func() error { return nil })
	return err
}

// ApplyCoded is Apply with a change of the model with codes before its check.
func (c *Change) ApplyCoded(b Buffers, change func(*onnx.Model)) error {
	_, err := c.apply(b, func() error { return nil }, func() error { change(c.Model); return nil })
	return err
}
