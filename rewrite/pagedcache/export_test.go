package pagedcache

import "github.com/mojo-patch/mojo-patch/onnx"

// ApplyChanged is Apply with a change of the converted model before the proof.
func (c *Change) ApplyChanged(b Buffers, change func(*onnx.Model)) error {
	_, err := c.apply(b, func() error { change(c.Model); return nil })
	return err
}
