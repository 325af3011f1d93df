package attention

import (
	"fmt"
	"slices"
	"strings"

	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/patterns/match"
	"github.com/mojo-patch/mojo-patch/reference/infer"
)

// arrangement is one way to read the shape of the scores: the axis of each dimension, and so the lengths.
type arrangement struct {
	scoreAxes  Axes
	weightAxes []Axes // that the weights may have
	queriesAt  int    // the input of the first product with the queries
	lengths    [infer.Worlds]lengths
	heads      int     // of queries
	headParts  []int64 // the dimensions of the heads in the scores, if several
	merged     bool    // masks of rank 4 are added after the heads are merged
}

// foldedAxes are axes of scores whose heads share a dimension with the batch or with rows.
var foldedAxes = []Axes{"bn s l", "b sn l", "b ns l", "bn l s", "b l sn", "b l ns"}

// scoreAxes lists the axes that scores of the given rank may have, the usual ones first.
func scoreAxes(rank int) []Axes {
	switch rank {
	case 2:
		return []Axes{"s l", "l s"}
	case 3:
		return append(slices.Clone(foldedAxes), "b s l", "n s l", "b l s", "n l s")
	}
	list := []Axes{scores, "b s n l", "b n l s"}
	var permute func(done, rest string)
	permute = func(done, rest string) {
		if a := Axes(strings.TrimSpace(done)); rest == "" && !slices.Contains(list, a) {
			list = append(list, a)
		}
		for i, letter := range rest {
			permute(done+" "+string(letter), rest[:i]+rest[i+1:])
		}
	}
	permute("", scores.letters())
	return list
}

// arrangements lists the ways to read the scores of a region that agree with the sizes of its tensors.
func arrangements(g *match.View, r *region) (list []arrangement) {
	rank, ok := g.Facts.Rank(r.scores())
	if !ok || rank < 2 {
		return nil
	}
	for _, axes := range scoreAxes(rank) {
		for _, queriesAt := range sidesOf(r.product, axes) {
			for _, a := range measured(g, r, arrangement{scoreAxes: axes, queriesAt: queriesAt}) {
				if a.weightAxes = a.axesOf(g, r.weights()); a.weightAxes != nil {
					list = append(list, a)
				}
			}
		}
	}
	return list
}

// sidesOf lists the inputs of a product that may be the queries.
func sidesOf(product *onnx.Node, axes Axes) []int {
	if !product.Is("MatMul") {
		return []int{0, 1}
	}
	fields := axes.Fields()
	switch last := fields[len(fields)-1]; { // in a product, rows of the first input come first
	case strings.Contains(last, "l"):
		return []int{0}
	case strings.Contains(last, "s"):
		return []int{1}
	}
	return nil
}

// sizes returns the size of each letter of the scores' axes.
func (a *arrangement) sizes(n lengths) sizes {
	return sizes{'b': int(n.batch), 'n': a.heads, 's': int(n.queries), 'l': int(n.keys())}
}

// fields returns the axes of the scores that a tensor of the given rank is broadcast to. A four-dimensional tensor is
// added to scores whose heads are a separate dimension. n0, n1, ... are the dimensions of heads, if several.
func (a *arrangement) fields(rank int) []string {
	fields := a.scoreAxes.Fields()
	if rank >= 4 || len(fields) >= 4 {
		fields = strings.Split(a.scoreAxes.letters(), "")
	}
	if i := slices.Index(fields, "n"); i >= 0 && len(a.headParts) > 1 && !(a.merged && rank <= 4) {
		var parts []string
		for k := range a.headParts {
			parts = append(parts, fmt.Sprint("n", k))
		}
		fields = slices.Concat(fields[:i], parts, fields[i+1:])
	}
	return fields
}

// headPart returns the index k of a field nk; ok is false for other fields.
func headPart(field string) (k int, ok bool) {
	if len(field) == 2 && field[0] == 'n' && field[1] >= '0' && field[1] <= '9' {
		return int(field[1] - '0'), true
	}
	return 0, false
}

// onScores returns the shape of scores that a tensor of the given rank is broadcast to.
func (a *arrangement) onScores(rank int, n lengths) []int {
	var shape []int
	for _, f := range a.fields(rank) {
		if k, ok := headPart(f); ok {
			shape = append(shape, int(a.headParts[k]))
		} else {
			shape = append(shape, Axes(f).shape(a.sizes(n))[0])
		}
	}
	return shape
}

// dims returns the size of each field in all worlds; the heads n may be several dimensions of the value.
func dims(g *match.View, v *onnx.Value, fields []string) (list [][infer.Worlds]int64) {
	rank, ok := g.Facts.Rank(v)
	more := rank - len(fields)
	if !ok || more < 0 || more > 0 && !slices.Contains(fields, "n") {
		return nil
	}
	axis := 0
	for _, f := range fields {
		var size [infer.Worlds]int64
		for w := range size {
			size[w] = g.Facts.Size(v, w, axis)
			for k := 1; f == "n" && k <= more; k++ {
				size[w] *= g.Facts.Size(v, w, axis+k)
			}
			if size[w] < 1 {
				return nil
			}
		}
		if axis++; f == "n" {
			axis += more
		}
		list = append(list, size)
	}
	return list
}

// measured finds the lengths that fit the axes of the scores. A dimension that holds heads and another axis may have
// several splits.
func measured(g *match.View, r *region, a arrangement) (list []arrangement) {
	ones := [infer.Worlds]int64{}
	for w := range ones {
		ones[w] = 1
	}
	of := map[string][infer.Worlds]int64{"b": ones, "n": ones}
	fields := a.scoreAxes.Fields()
	sizes := dims(g, r.scores(), fields)
	if sizes == nil {
		return nil
	}
	if rank, _ := g.Facts.Rank(r.scores()); rank > len(fields) {
		from := slices.Index(fields, "n")
		for k := range rank - len(fields) + 1 {
			d, _ := g.Facts.Dim(r.scores(), from+k)
			a.headParts = append(a.headParts, d)
		}
		if slices.Contains(a.headParts, 0) {
			return nil
		}
		weighed, _ := g.Facts.Rank(r.anchor.OutputValue(0))
		a.merged = weighed == len(fields)
	}
	with, parts := "", [][infer.Worlds]int64{ones} // the letter that shares a dimension with the heads, and its sizes
	for i, f := range fields {
		of[f] = sizes[i]
		if len(f) > 1 {
			with, of["n"] = strings.Trim(f, "n"), sizes[i]
			parts = partsOf(g, r.product.Inputs[a.queriesAt], sizes[i], with)
		}
	}
	whole := of["n"]
	for _, part := range parts {
		of[with] = part
		a.heads = int(whole[0] / part[0])
		same := true
		for w := range infer.Worlds {
			same = same && whole[w] == part[w]*int64(a.heads)
			a.lengths[w] = lengths{of["b"][w], of["s"][w], of["l"][w] - of["s"][w]}
		}
		if same {
			list = append(list, a)
		}
	}
	if with != "" { // with one head these are axes of fewer letters
		list = slices.DeleteFunc(list, func(a arrangement) bool { return a.heads == 1 })
	}
	return list
}

// partsOf lists the sizes that letter may have in a dimension shared with heads. They are sizes of earlier values of
// the queries.
func partsOf(g *match.View, v *onnx.Value, whole [infer.Worlds]int64, letter string) (list [][infer.Worlds]int64) {
	var rest [][infer.Worlds]int64
	for range maxChain {
		rank, _ := g.Facts.Rank(v)
		for axis := range rank {
			var part [infer.Worlds]int64
			ok := true
			for w := range part {
				part[w] = g.Facts.Size(v, w, axis)
				ok = ok && part[w] > 0 && whole[w]%part[w] == 0 && whole[w]/part[w] == whole[0]/part[0]
			}
			switch {
			case !ok || slices.Contains(list, part):
			case rank == 4 && (axis == 0) == (letter == "b"): // values of rank 4 first
				list = append(list, part)
			case !slices.Contains(rest, part):
				rest = append(rest, part)
			}
		}
		if v.Producer == nil {
			break
		}
		if v = movedFrom(g, v.Producer); v == nil {
			break
		}
	}
	for _, part := range rest {
		if !slices.Contains(list, part) {
			list = append(list, part)
		}
	}
	return list
}

// axesOf lists the axes that the weights may have, the axes of the scores first.
func (a *arrangement) axesOf(g *match.View, weights *onnx.Value) (list []Axes) {
	rank, _ := g.Facts.Rank(weights)
	for _, axes := range append([]Axes{a.scoreAxes}, scoreAxes(rank)...) {
		fields := axes.Fields()
		sizes := dims(g, weights, fields)
		same := sizes != nil && !slices.Contains(list, axes)
		for i := range sizes {
			for w, n := range a.lengths {
				same = same && sizes[i][w] == int64(Axes(fields[i]).shape(a.sizes(n))[0])
			}
		}
		if same && axes.covers(a) {
			list = append(list, axes)
		}
	}
	return list
}

// covers reports whether the heads and the batch have size 1 if the axes lack their letter.
func (axes Axes) covers(a *arrangement) bool {
	batch := func(n lengths) bool { return n.batch != 1 }
	return (axes.Has("n") || a.heads == 1) && (axes.Has("b") || !slices.ContainsFunc(a.lengths[:], batch))
}
