package sites

import (
	"github.com/mojo-patch/mojo-patch/patterns/reason"
)

const (
	// From shrinkElements elements on, a check first tries smaller leading dimensions. From manyElements on, it tries
	// only few kinds of inputs. From maxElements on, the site is not checked.
	shrinkElements = 1 << 17
	manyElements   = 1 << 20
	maxElements    = 1 << 24
)

// smallDims replace dimensions that are unknown or too large.
var smallDims = []int64{2, 3, 5, 7, 11, 13}

// shapes returns the shapes of a site's inputs in a world. If only the rank is known, it uses small numbers: equal
// ranks get equal shapes, so that elementwise ops fit, and known dimensions stay.
func (k *Checker) shapes(c *Site, w world) ([][]int64, error) {
	shapes := make([][]int64, len(c.Match.Inputs))
	for i, v := range c.Match.Inputs {
		if s, ok := w.facts.Shape(v, w.n); ok {
			shapes[i] = s
			continue
		}
		rank, ok := w.facts.Rank(v)
		if !ok {
			return nil, reason.New(reason.Unknown, v.Producer, "cannot be checked: the shape of %q is unknown", v.Name)
		}
		shapes[i] = make([]int64, rank)
		for axis := range rank {
			d, ok := w.facts.Dim(v, axis)
			if !ok {
				d = smallDims[axis%len(smallDims)]
			}
			shapes[i][axis] = d
		}
	}
	return shapes, nil
}

// shrink returns smaller shapes with the same structure: equal dimensions stay equal, and last dimensions do not
// change, because norms reduce them and halves split them.
func shrink(shapes [][]int64) [][]int64 {
	last := map[int64]bool{1: true}
	for _, s := range shapes {
		if len(s) > 0 {
			last[s[len(s)-1]] = true
		}
	}
	replaced := map[int64]int64{}
	out := make([][]int64, len(shapes))
	for i, s := range shapes {
		out[i] = append([]int64(nil), s...)
		for axis, d := range s[:max(0, len(s)-1)] {
			if last[d] || d <= smallDims[len(replaced)%len(smallDims)] {
				continue
			}
			if _, ok := replaced[d]; !ok {
				replaced[d] = smallDims[len(replaced)%len(smallDims)]
			}
			out[i][axis] = replaced[d]
		}
	}
	return out
}
