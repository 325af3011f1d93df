package fit

import (
	"math"

	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/patterns/match"
	"github.com/mojo-patch/mojo-patch/patterns/reason"
)

// rotationReader runs a region to find out whether it is a rotation.
type rotationReader struct {
	*finder
	*region
	x      *onnx.Value
	shape  []int
	last   int
	tables map[int64]place // the elements of the tables in a run, by key
	env    values
	// factors holds, for each row, the factors of x's channels in each channel of y.
	factors [][][]float64
}

// place is an element of a table.
type place struct {
	table   *onnx.Value
	element int
}

func (f *finder) readRotation(r *region) (*Rotation, *reason.Reason) {
	if f.followsSizes(r) {
		return nil, nil
	}
	around, why := f.around(r)
	if why != nil {
		return nil, nil
	}
	n := &rotationReader{finder: f, region: r, x: r.Operands[0], tables: map[int64]place{}, env: values{}}
	n.shape, _ = f.lab.Shape(n.x)
	n.last = n.shape[len(n.shape)-1]
	for i, v := range r.Operands[1:] {
		shape, ok := f.lab.Shape(v)
		if !ok || match.Elements(shape) > maxRunElements {
			return nil, nil
		}
		list := make([]float64, match.Elements(shape))
		for k, x := range random(len(list), uint64(23+i)) {
			list[k] = 1 + math.Abs(x)
		}
		n.env[v] = f.tensor(v, list)
	}
	if !n.readFactors(around) {
		return nil, nil
	}
	for _, v := range r.Operands[1:] {
		for k, x := range n.env[v].F {
			n.tables[key(x)] = place{v, k}
		}
	}
	return n.layout(), nil
}

// run returns the elements of y for the elements of x.
func (n *rotationReader) run(x []float64) []float64 {
	env := values{n.x: n.tensor(n.x, x)}
	for v, t := range n.env {
		env[v] = t
	}
	out, err := n.compute(n.Result, env)
	if err != nil || len(out) != len(x) || !finite(out) {
		return nil
	}
	return out
}

// readFactors sets the channels of x one after the other. It reports whether the region is linear in x, also near the
// numbers around, and each channel goes to at most two.
func (n *rotationReader) readFactors(around []float64) bool {
	size := match.Elements(n.shape)
	zero := n.run(make([]float64, size))
	if zero == nil || greatest(zero) != 0 {
		return false
	}
	n.factors = make([][][]float64, size/n.last)
	for row := range n.factors {
		n.factors[row] = make([][]float64, n.last)
		for j := range n.last {
			n.factors[row][j] = make([]float64, n.last)
		}
	}
	if !n.readChannel(0) || !n.readChannel(n.last-1) || n.reaches(0) < 2 && n.reaches(n.last-1) < 2 {
		return false // the first or the last channels must be rotated
	}
	for c := 1; c < n.last-1; c++ {
		if !n.readChannel(c) {
			return false
		}
	}
	samples := [][]float64{random(size, 3), times(random(size, 3), 1e5), times(random(size, 3), 1e12)}
	for at := 0; at < len(around); at += size {
		sample := random(size, 61)
		copy(sample, around[at:])
		samples = append(samples, sample)
	}
	for _, x := range samples {
		y, magnitude := n.run(x), greatest(x)
		for row, of := range n.factors {
			for j := range n.last {
				want := 0.0
				for c, factor := range of[j] {
					want += factor * x[row*n.last+c]
				}
				if y == nil || !(math.Abs(y[row*n.last+j]-want) <= tolerance*magnitude) {
					return false
				}
			}
		}
	}
	return true
}

// readChannel sets one channel of x to 1. It reports whether at most two channels of the result change.
func (n *rotationReader) readChannel(c int) bool {
	x := make([]float64, match.Elements(n.shape))
	for at := c; at < len(x); at += n.last {
		x[at] = 1
	}
	y := n.run(x)
	if y == nil {
		return false
	}
	for row := range n.factors {
		for j := range n.last {
			n.factors[row][j][c] = y[row*n.last+j]
		}
	}
	return n.reaches(c) <= 2
}

// reaches counts the channels that channel c goes to in the first row.
func (n *rotationReader) reaches(c int) int {
	count := 0
	for _, factors := range n.factors[0] {
		if factors[c] != 0 {
			count++
		}
	}
	return count
}

// term is a factor that is an element of a table, or its negative.
type term struct {
	place
	sign float64
}

// key maps numbers that differ by a few roundings of float64 to equal or adjacent integers.
func key(x float64) int64 { return int64(math.Round(math.Ldexp(x, 42))) }

// term returns the element that a factor equals.
func (n *rotationReader) term(factor float64) (term, bool) {
	for _, sign := range []float64{1, -1} {
		for _, more := range []int64{0, 1, -1} {
			if p, ok := n.tables[key(sign*factor)+more]; ok {
				return term{p, sign}, true
			}
		}
	}
	return term{}, false
}

// layout returns the rotation of the channels, or nil.
func (n *rotationReader) layout() *Rotation {
	rot := &Rotation{X: n.x, Y: n.Result, Nodes: n.Nodes, RotatedSide: "first"}
	first, last := -1, -1
	of := make([][]int, n.last) // the channels of x in each channel of y
	for j, factors := range n.factors[0] {
		for c, factor := range factors {
			if factor != 0 {
				of[j] = append(of[j], c)
			}
		}
		switch {
		case len(of[j]) == 2:
			if first < 0 {
				first = j
			}
			last = j
		case len(of[j]) != 1 || of[j][0] != j:
			return nil
		}
	}
	r := last - first + 1
	if first < 0 || r%2 != 0 || first > 0 && last < n.last-1 {
		return nil
	}
	if first > 0 {
		rot.RotatedSide = "last"
	}
	rot.RotaryDim = r
	for _, rot.Interleaved = range []bool{false, true} {
		for _, rot.OutputLayout = range []string{"halves", "interleaved"} {
			pairs := make([]pair, r/2)
			for i := range pairs {
				p := pair{first + i, first + i + r/2, first + i, first + i + r/2}
				if rot.Interleaved {
					p.a, p.b = first+2*i, first+2*i+1
				}
				if rot.OutputLayout == "interleaved" {
					p.first, p.second = first+2*i, first+2*i+1
				}
				pairs[i] = p
			}
			if n.rotates(rot, pairs, first) {
				return rot
			}
		}
	}
	return nil
}

// rotates reports whether all rows are rotated by the pairs, and finds the tables.
func (n *rotationReader) rotates(rot *Rotation, pairs []pair, first int) bool {
	cos, sin := n.newTable(rot.RotaryDim), n.newTable(rot.RotaryDim)
	var sign float64
	for row, factors := range n.factors {
		for j, list := range factors {
			if rotated := j >= first && j < first+rot.RotaryDim; !rotated {
				for c, x := range list {
					if x != map[bool]float64{true: 1}[c == j] {
						return false
					}
				}
			}
		}
		for _, p := range pairs {
			for c := range n.last {
				if c != p.a && c != p.b && (factors[p.first][c] != 0 || factors[p.second][c] != 0) {
					return false
				}
			}
			c1, ok1 := n.term(factors[p.first][p.a])
			s1, ok2 := n.term(-factors[p.first][p.b])
			c2, ok3 := n.term(factors[p.second][p.b])
			s2, ok4 := n.term(factors[p.second][p.a])
			if sign == 0 {
				sign = s1.sign
			}
			if !ok1 || !ok2 || !ok3 || !ok4 || c1.sign != 1 || c2.sign != 1 || s1.sign != sign || s2.sign != sign {
				return false
			}
			if !cos.set(row, p.first-first, c1) || !cos.set(row, p.second-first, c2) ||
				!sin.set(row, p.first-first, s1) || !sin.set(row, p.second-first, s2) {
				return false
			}
		}
	}
	cosines, ok1 := cos.read(rot.OutputLayout)
	sines, ok2 := sin.read(rot.OutputLayout)
	if !ok1 || !ok2 {
		return false
	}
	if len(cosines.Channels) != len(sines.Channels) {
		cosines, ok1 = cos.wide()
		sines, ok2 = sin.wide()
		if !ok1 || !ok2 {
			return false
		}
	}
	rot.Cos, rot.Sin = *cosines, *sines
	rot.Sin.Negative = sign < 0
	return n.ofOneAngle(&rot.Cos, &rot.Sin)
}
