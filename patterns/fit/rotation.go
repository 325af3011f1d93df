package fit

import (
	"math"
	"slices"

	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/patterns/match"
	"github.com/mojo-patch/mojo-patch/patterns/reason"
	"github.com/mojo-patch/mojo-patch/reference"
)

// Rotation is a rotary position embedding. Its fields are those of mojo.RotaryEmbedding.
type Rotation struct {
	X, Y         *onnx.Value
	Nodes        []*onnx.Node
	Cos, Sin     Table
	Interleaved  bool
	RotaryDim    int
	RotatedSide  string
	OutputLayout string
}

// pair is where two channels that are rotated together stand: in x, and their results in y.
type pair struct{ a, b, first, second int }

// maxRotated bounds the channels of a head.
const maxRotated = 512

// Rotations finds rotary embeddings among the nodes that are not taken.
func Rotations(g *match.View, taken func(*onnx.Node) bool) ([]*Rotation, []*Miss) {
	f := newFinder(g, taken, activations...)
	known := readings[Rotation]{}
	tried := map[*onnx.Value]bool{}
	var found []*Rotation
	for i := len(g.Graph.Nodes) - 1; i >= 0; i-- {
		if n := g.Graph.Nodes[i]; f.joinsTable(n) {
			if r := f.rotationAt(n, known, tried); r != nil {
				found = append(found, r)
			}
		}
	}
	slices.Reverse(found)
	return found, f.misses
}

// joinsTable reports whether a node multiplies rows with what is made of sines, or of fewer numbers than there are rows
// of them, but not one for each.
func (f *finder) joinsTable(n *onnx.Node) bool {
	if !(n.Is("Mul") || n.Is("Einsum") || n.Is("MatMul")) || len(n.Outputs) == 0 || n.Outputs[0] == nil || f.taken(n) ||
		!f.g.Facts.DataType(n.Outputs[0]).IsFloat() || n.Is("MatMul") && slices.ContainsFunc(n.Inputs, isMatrix) {
		return false
	}
	out, ok := f.lab.shape(n.Outputs[0])
	if !ok || len(out) < 2 {
		return false
	}
	least, tables := 0, 0
	for _, v := range n.Inputs {
		shape, ok := f.lab.shape(v)
		if !ok || len(shape) == 0 || shape[len(shape)-1] < 2 ||
			v.Constant() != nil && !n.Is("Einsum") && (isVector(v.Constant()) || f.plain(v)) {
			return false
		}
		if size := match.Elements(shape); least == 0 || size < least {
			least = size
		}
		if f.tabular(v) {
			tables++
		}
	}
	return (tables > 0 && tables < len(n.Inputs) || least > 1 && least < match.Elements(out)) &&
		f.mayStandInside(n) && !f.isSide(n.Outputs[0])
}

// isVector reports whether a constant has one axis alone besides those of length 1: it is the same for all positions.
func isVector(c *onnx.Tensor) bool { return slices.Contains(c.Dims, c.Len()) }

// isMatrix reports whether a value is a constant matrix, which is the same for all positions.
func isMatrix(v *onnx.Value) bool { return v.Constant() != nil && len(v.Constant().Dims) == 2 }

// tabular reports whether a value is made of sines and cosines, or of rows of a table, alone.
func (f *finder) tabular(v *onnx.Value) bool {
	if is, ok := f.tables[v]; ok {
		return is
	}
	f.tables[v] = false
	n := v.Producer
	is := n != nil && v.Graph == f.g.Graph && (n.Is("Sin") || n.Is("Cos") || f.picksTable(n))
	if !is && n != nil && v.Graph == f.g.Graph && len(n.Subgraphs()) == 0 && !n.Is("Shape") {
		for _, in := range n.Inputs {
			switch {
			case in == nil || !f.g.Facts.DataType(in).IsFloat():
			case f.tabular(in):
				is = true
			case f.g.IsData(in):
				is = false
				f.tables[v] = false
				return false
			}
		}
	}
	f.tables[v] = is
	return is
}

// plain reports whether a constant is a number, or a matrix of signs: no table.
func (f *finder) plain(v *onnx.Value) bool {
	c := v.Constant()
	if !c.DataType.IsFloat() || c.Len() <= 1 || len(c.Dims) < 2 && c.Len() < 2 {
		return true
	}
	if c.Len() > maxSideElements {
		return false
	}
	t, err := reference.FromONNX(c)
	return err == nil && !slices.ContainsFunc(t.F, func(x float64) bool { return x != 0 && x != 1 && x != -1 })
}

// rotationAt finds the greatest rotation that a seed is of.
func (f *finder) rotationAt(seed *onnx.Node, known readings[Rotation], tried map[*onnx.Value]bool) *Rotation {
	for _, y := range f.ahead(seed.Outputs[0]) {
		if tried[y] || f.taken(y.Producer) {
			continue
		}
		tried[y] = true
		for _, x := range f.alikeBefore(y) {
			for _, r := range f.rotated(x, y) {
				own := func(of *Rotation, stands func(*onnx.Value) *onnx.Value) *Rotation {
					n := *of
					n.X, n.Y, n.Nodes = stands(n.X), r.result, r.nodes
					n.Cos.Value, n.Sin.Value = stands(n.Cos.Value), stands(n.Sin.Value)
					if !f.ofOneAngle(&n.Cos, &n.Sin) {
						return nil
					}
					return &n
				}
				if n, _ := known.of(f, r, f.readRotation, own); n != nil {
					f.take(r)
					return n
				}
			}
		}
	}
	return nil
}

// alikeBefore lists the values of the shape and type of y that it is computed from, the nearest first.
func (f *finder) alikeBefore(y *onnx.Value) []*onnx.Value {
	var list []*onnx.Value
	left := 2 * maxNodes
	for v := range onnx.Reach(func(v *onnx.Value) []*onnx.Value {
		n := v.Producer
		if n == nil || v.Graph != f.g.Graph || !f.mayStandInside(n) || v != y && n.IsProduct() && !f.g.IsData(v) {
			return nil
		}
		return slices.DeleteFunc(slices.Clone(n.Inputs), func(v *onnx.Value) bool { return v == nil || f.isSide(v) })
	}, y) {
		if left--; left < 0 {
			break
		}
		if v != y && f.g.Facts.SameShape(v, y) && f.g.Facts.DataType(v) == f.g.Facts.DataType(y) {
			list = append(list, v)
		}
	}
	return list
}

// rotated lists the regions from x, and tables, to y: those of the smallest tables first.
func (f *finder) rotated(x, y *onnx.Value) []*region {
	shape, ok := f.lab.shape(x)
	if !ok || len(shape) == 0 {
		return nil
	}
	_, fixed := f.g.Facts.Dim(x, -1)
	last := shape[len(shape)-1]
	if !fixed || last < 2 || last > maxRotated || match.Elements(shape) == 0 ||
		match.Elements(shape) > maxRunElements/last {
		return nil
	}
	var list []*region
	open := []*onnx.Value{y}
	var nodes []*onnx.Node
	var tables, sides []*onnx.Value
	for len(nodes) < 2*maxNodes && len(open) > 0 {
		v := f.lastOf(open)
		n := v.Producer
		if f.position(v) < 0 || n.Is("Sin") || n.Is("Cos") || !f.mayStandInside(n) || f.picksTable(n) {
			if f.g.Facts.SameShape(v, y) || !f.g.Facts.DataType(v).IsFloat() {
				break
			}
			tables = append(tables, v)
			open = slices.DeleteFunc(open, func(w *onnx.Value) bool { return w == v })
		} else {
			nodes = append(nodes, n)
			open = slices.DeleteFunc(open, func(v *onnx.Value) bool { return v.Producer == n })
			for _, in := range f.g.Operands(n) {
				switch {
				case in == nil || in == x || slices.Contains(open, in) || slices.Contains(tables, in):
				case f.opens(in):
					open = append(open, in)
				case !slices.Contains(sides, in):
					sides = append(sides, in)
				}
			}
		}
		if k := len(open) + len(tables); k == 1 || k == 2 {
			list = append(list, &region{operands: slices.Concat([]*onnx.Value{x}, tables, open), result: y,
				nodes: slices.Clone(nodes), sides: slices.Clone(sides)})
		}
	}
	slices.Reverse(list)
	return slices.DeleteFunc(list, func(r *region) bool {
		return !slices.ContainsFunc(r.nodes, func(n *onnx.Node) bool { return slices.Contains(n.Inputs, x) }) ||
			slices.ContainsFunc(r.operands[1:], func(v *onnx.Value) bool {
				return !f.g.Facts.DataType(v).IsFloat() || f.g.Facts.SameShape(v, y)
			})
	})
}

// picksTable reports whether a node takes rows of a table of constants.
func (f *finder) picksTable(n *onnx.Node) bool {
	return match.IsPick(n) && n.Input(0) != nil && n.Input(0).Constant() != nil &&
		n.Input(0).Constant().DataType.IsFloat()
}

// opens reports whether a value may be made of tables: neither a shape, nor a number, nor a matrix of signs.
func (f *finder) opens(v *onnx.Value) bool {
	switch {
	case !f.g.Facts.DataType(v).IsFloat():
		return f.g.IsData(v)
	case v.Constant() != nil:
		return !f.plain(v)
	}
	t, ok := f.g.Facts.Constant(v)
	return !ok || slices.ContainsFunc(t.F, func(x float64) bool { return x != 0 && x != 1 && x != -1 }) && len(t.F) > 1
}

// rotationReader asks a region whether it is a rotation.
type rotationReader struct {
	*finder
	*region
	x      *onnx.Value
	shape  []int
	last   int
	tables map[int64]place // the elements that the tables have in a run, by their key
	env    values
	// factors are those of the channels of x in each channel of y, by rows.
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
	n := &rotationReader{finder: f, region: r, x: r.operands[0], tables: map[int64]place{}, env: values{}}
	n.shape, _ = f.lab.shape(n.x)
	n.last = n.shape[len(n.shape)-1]
	for i, v := range r.operands[1:] {
		shape, ok := f.lab.shape(v)
		if !ok || match.Elements(shape) > maxRunElements {
			return nil, nil
		}
		list := make([]float64, match.Elements(shape))
		for k, x := range random(len(list), uint64(23+i)) {
			list[k] = 1 + math.Abs(x)
		}
		n.env[v] = f.lab.tensor(v, list)
	}
	if !n.readFactors() {
		return nil, nil
	}
	for _, v := range r.operands[1:] {
		for k, x := range n.env[v].F {
			n.tables[key(x)] = place{v, k}
		}
	}
	return n.layout(), nil
}

// run returns the rows of y for those of x.
func (n *rotationReader) run(x []float64) []float64 {
	env := values{n.x: n.lab.tensor(n.x, x)}
	for v, t := range n.env {
		env[v] = t
	}
	out, err := n.lab.run(env, n.result)
	if err != nil || len(out[0]) != len(x) || !finite(out[0]) {
		return nil
	}
	return out[0]
}

// readFactors gives x one channel after the other. False where the region is not linear in x, or gives one channel to
// more than two.
func (n *rotationReader) readFactors() bool {
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
		return false // what is rotated are the first channels or the last
	}
	for c := 1; c < n.last-1; c++ {
		if !n.readChannel(c) {
			return false
		}
	}
	for _, magnitude := range []float64{1, 1e5} {
		x := times(random(size, 3), magnitude)
		y := n.run(x)
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

// readChannel gives x ones in a channel alone.
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

// reaches counts the channels that one goes to, in the first row.
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

// key is the same for numbers that only a few roundings of float64 lie between, or one more or less.
func key(x float64) int64 { return int64(math.Round(math.Ldexp(x, 42))) }

// term returns the element that a factor is.
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

// layout reads how the channels are rotated; nil where they are not.
func (n *rotationReader) layout() *Rotation {
	rot := &Rotation{X: n.x, Y: n.result, Nodes: n.nodes, RotatedSide: "first"}
	first, last := -1, -1
	of := make([][]int, n.last) // the channels of x in each of y
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

// rotates reports whether all rows are rotated by pairs, and finds the tables.
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
