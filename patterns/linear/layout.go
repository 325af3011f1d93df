package linear

import (
	"strings"

	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/patterns/site"
)

// layout is an order of sequences (b), tokens (t), heads (h) and channels (c) in the elements of a value. Its axes may
// join neighbors, or split one.
type layout string

// layouts lists the orders to try. The op has the first one.
var layouts = []layout{"bthc", "bhtc", "tbhc", "bhct", "btch", "hbtc"}

// sizes are the numbers of sequences, tokens, heads and channels.
type sizes [4]int

func (s sizes) of(letter byte) int { return s[strings.IndexByte("bthc", letter)] }

// fits reports whether a shape has the sizes in this order.
func (l layout) fits(shape []int, n sizes) bool { return l.groups(shape, n) != nil }

// group is neighboring axes that hold the sizes of neighboring letters. One of both is single.
type group struct {
	axes    []int
	letters string
}

// groups divides the axes that are longer than 1, or returns nil if a shape does not have the sizes in this order.
func (l layout) groups(shape []int, n sizes) []group {
	list := []group{}
	at, letter := 0, 0
	for {
		for at < len(shape) && shape[at] == 1 {
			at++
		}
		for letter < len(l) && n.of(l[letter]) == 1 {
			letter++
		}
		if at == len(shape) || letter == len(l) {
			break
		}
		g := group{[]int{at}, string(l[letter])}
		a, b := shape[at], n.of(l[letter])
		for at, letter = at+1, letter+1; a != b; {
			switch {
			case a == 0 || b == 0:
				return nil
			case a < b && len(g.letters) == 1 && at < len(shape):
				if a *= shape[at]; shape[at] > 1 {
					g.axes = append(g.axes, at)
				}
				at++
			case b < a && len(g.axes) == 1 && letter < len(l):
				b *= n.of(l[letter])
				g.letters += string(l[letter])
				letter++
			default:
				return nil
			}
		}
		list = append(list, g)
	}
	if at < len(shape) || letter < len(l) {
		return nil
	}
	return list
}

// rows returns elements in the op's order.
func (l layout) rows(list []float64, n sizes) []float64 {
	if l == layouts[0] {
		return list
	}
	var step sizes
	for i, stride := len(l)-1, 1; i >= 0; i-- {
		step[strings.IndexByte("bthc", l[i])] = stride
		stride *= n.of(l[i])
	}
	out := make([]float64, 0, len(list))
	for b := range n[0] {
		for t := range n[1] {
			for h := range n[2] {
				for c := range n[3] {
					out = append(out, list[b*step[0]+t*step[1]+h*step[2]+c*step[3]])
				}
			}
		}
	}
	return out
}

// order returns the axes of a shape in the op's order, sequences and tokens first. It returns nil if these two do not
// have one axis each, or if an axis joins letters that are not neighbors in the op's order.
func (l layout) order(shape []int, n sizes) []int64 {
	at := map[byte][]int{}
	var ones []int
	taken := make([]bool, len(shape))
	for _, g := range l.groups(shape, n) {
		if len(g.letters) > 1 && g.letters != "hc" {
			return nil
		}
		at[g.letters[0]] = g.axes
		for _, axis := range g.axes {
			taken[axis] = true
		}
	}
	for axis, t := range taken {
		if !t {
			ones = append(ones, axis)
		}
	}
	var perm []int64
	for _, letter := range []byte("bthc") {
		axes := at[letter]
		if letter == 'b' || letter == 't' {
			if len(axes) == 0 && len(ones) > 0 {
				axes, ones = ones[:1], ones[1:]
			}
			if len(axes) != 1 {
				return nil
			}
		}
		for _, axis := range axes {
			perm = append(perm, int64(axis))
		}
	}
	for _, axis := range ones {
		perm = append(perm, int64(axis))
	}
	return perm
}

func isSorted(perm []int64) bool {
	for i, axis := range perm {
		if axis != int64(i) {
			return false
		}
	}
	return true
}

// asRows brings an operand of this layout to three axes: sequences, tokens, and heads with channels.
func (l layout) asRows(o *site.Operand, name string, shape []int, n sizes) *site.Operand {
	perm := l.order(shape, n)
	if perm == nil {
		return nil
	}
	if !isSorted(perm) {
		o = o.Transpose(name+"_turned", perm...)
	}
	if len(shape) != 3 || !isSorted(perm) && n[2]*n[3] != shape[perm[2]] {
		o = o.With("Reshape", name+"_rows", name+"_shape", 0, 0, int64(n[2]*n[3]))
	}
	return o
}

// fromRows brings rows of the op to this layout and a shape whose first two sizes, in the op's order, are open.
func (l layout) fromRows(o *site.Operand, shape []int, n sizes) *site.Operand {
	perm := l.order(shape, n)
	if perm == nil {
		return nil
	}
	if len(shape) == 3 && isSorted(perm) {
		return o
	}
	dims := []int64{0, 0}
	for _, axis := range perm[2:] {
		dims = append(dims, int64(shape[axis]))
	}
	o = o.With("Reshape", "heads", "heads_shape", dims...)
	if isSorted(perm) {
		return o
	}
	back := make([]int64, len(perm))
	for i, axis := range perm {
		back[axis] = int64(i)
	}
	return o.Transpose("turned", back...)
}

// shapeIn returns the shape of a value in a world.
func (s *span) shapeIn(v *onnx.Value, world int) ([]int, bool) {
	dims, ok := s.g.Facts.Shape(v, world)
	if !ok {
		return nil, false
	}
	shape := make([]int, len(dims))
	for i, d := range dims {
		shape[i] = int(d)
	}
	return shape, true
}
