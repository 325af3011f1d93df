package convert

import "iter"

// elements cuts what is written in pieces of any length into elements: it keeps the beginning of one whose end comes
// with the next piece.
type elements struct{ rest []byte }

// of returns the elements of so many bytes that b completes. They are valid until the next one is asked for.
func (c *elements) of(b []byte, width int) iter.Seq[[]byte] {
	return func(yield func([]byte) bool) {
		if len(c.rest) > 0 {
			n := min(width-len(c.rest), len(b))
			c.rest, b = append(c.rest, b[:n]...), b[n:]
			if len(c.rest) < width {
				return
			}
			if !yield(c.rest) {
				return
			}
			c.rest = c.rest[:0]
		}
		for ; len(b) >= width; b = b[width:] {
			if !yield(b[:width]) {
				return
			}
		}
		c.rest = append(c.rest, b...)
	}
}
