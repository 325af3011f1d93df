package convert

import (
	"bytes"
	"testing"
)

// TestElements cuts bytes that come in pieces of every length, elements apart among them.
func TestElements(t *testing.T) {
	want := []byte("abcdefghijklmnopqrstuvwx")
	for _, width := range []int{2, 4} {
		for piece := 1; piece <= len(want); piece++ {
			var c elements
			var got []byte
			for b := want; len(b) > 0; b = b[min(piece, len(b)):] {
				for e := range c.of(b[:min(piece, len(b))], width) {
					if len(e) != width {
						t.Errorf("elements of %d in pieces of %d: %q", width, piece, e)
					}
					got = append(got, e...)
				}
			}
			if !bytes.Equal(got, want) || len(c.rest) > 0 {
				t.Errorf("elements of %d in pieces of %d: %q, %q is left", width, piece, got, c.rest)
			}
		}
	}
}
