package gguf

import (
	"encoding/binary"
	"fmt"
)

// cursor reads a file from front to back. After the first error it returns zeros.
type cursor struct {
	data []byte
	at   uint64
	err  error
}

// fail records the first error.
func (c *cursor) fail(format string, args ...any) {
	if c.err == nil {
		c.err = fmt.Errorf(format, args...)
	}
}

func (c *cursor) left() uint64 { return uint64(len(c.data)) - c.at }

// take returns the next n bytes, or nil if fewer remain.
func (c *cursor) take(n uint64, what string) []byte {
	if c.err == nil && n > c.left() {
		c.fail("the file ends at byte %d, within %s (%d bytes from byte %d on): it is truncated or damaged",
			len(c.data), what, n, c.at)
	}
	if c.err != nil {
		return nil
	}
	c.at += n
	return c.data[c.at-n : c.at]
}

func (c *cursor) uint32(what string) uint32 {
	if b := c.take(4, what); b != nil {
		return binary.LittleEndian.Uint32(b)
	}
	return 0
}

func (c *cursor) uint64(what string) uint64 {
	if b := c.take(8, what); b != nil {
		return binary.LittleEndian.Uint64(b)
	}
	return 0
}

func (c *cursor) string(what string) string { return string(c.take(c.uint64(what), what)) }

// count reads a count of items that take at least size bytes each.
func (c *cursor) count(size uint64, what string) uint64 {
	n := c.uint64("the number of " + what)
	if c.err == nil && n > c.left()/size {
		c.fail("it announces %d %s, but only %d bytes follow: it is truncated or damaged", n, what, c.left())
	}
	if c.err != nil {
		return 0
	}
	return n
}
