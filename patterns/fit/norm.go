package fit

import (
	"cmp"
	"math"
	"slices"
	"strconv"

	"github.com/mojo-patch/mojo-patch/fused"
	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/patterns/match"
	"github.com/mojo-patch/mojo-patch/patterns/probe"
	"github.com/mojo-patch/mojo-patch/patterns/reason"
	"github.com/mojo-patch/mojo-patch/patterns/site"
	"github.com/mojo-patch/mojo-patch/reference"
)

// layerNorm is the standard's op for a norm that subtracts the mean.
const layerNorm = "LayerNormalization"

// A Norm is a root-mean-square norm or, if it first subtracts the mean, a layer norm.
type Norm struct {
	X, Y     *onnx.Value
	Nodes    []*onnx.Node
	Axes     []int // axes of X that are normalized together
	Centered bool
	Epsilon  float64
	Scale    Vector
	Bias     *Vector // or nil
	// ScaleAfterCast is set if the normalized values are rounded to the scale's type before they are scaled.
	ScaleAfterCast bool
}

// A Vector is a number for each channel: Factor times an element of Value, plus Offset. If Value is nil, it is Numbers,
// whose only element may apply to all channels.
type Vector struct {
	Value          *onnx.Value
	Factor, Offset float64
	Numbers        []float64
	// Wide is set if the type of Value, or of the result, would round the numbers: they must be float32.
	Wide bool
}

// isNorm reports whether a single node is a norm.
func isNorm(n *onnx.Node) bool {
	switch n.OpType {
	case "InstanceNormalization", "GroupNormalization", "MeanVarianceNormalization",
		"LpNormalization", "RMSNormalization":
		return onnx.IsStandardDomain(n.Domain) || n.Domain == onnx.Microsoft
	}
	return false
}

// normalisesInstances reports whether a node is a norm of images. Unless the scale of a layer norm follows, it is best
// left as it is.
func normalisesInstances(n *onnx.Node) bool {
	return n.Is("InstanceNormalization") || n.Is("GroupNormalization")
}

// Norms finds norms among the nodes that are not taken, and near misses. A norm of a sum becomes one op with the sum,
// once for each sum.
func Norms(g *match.View, others site.Others) (sites []*site.Site, misses []*match.Miss) {
	f := newFinder(g, fused.RMSNormName, others, activations...)
	known := probe.Readings[Norm]{}
	var found []*Norm
	for i := len(g.Graph.Nodes) - 1; i >= 0; i-- {
		if n := g.Graph.Nodes[i]; f.seedsNorm(n) {
			if norm := f.normAt(n, known); norm != nil && !others.Write(norm.Y) {
				found = append(found, norm)
			}
		}
	}
	sums := map[*onnx.Value]bool{}
	for _, n := range slices.Backward(found) {
		s := n.site(g)
		if !sums[n.X] {
			if sum := n.withSum(g, others, s); sum != nil {
				s, sums[n.X] = sum, true
			}
		}
		sites = append(sites, s)
	}
	return sites, f.misses
}

// seedsNorm reports whether a node broadcasts a number for each row to all of its channels.
func (f *finder) seedsNorm(n *onnx.Node) bool {
	if len(n.Outputs) == 0 || n.Outputs[0] == nil || f.taken(n) || !f.g.Facts.DataType(n.Outputs[0]).IsFloat() {
		return false
	}
	switch {
	case isNorm(n):
	case n.MovesElements() && !n.Is("Expand") || n.Is("Pad"):
		return false
	case !n.Is("Tile") && !slices.ContainsFunc(n.Inputs, func(v *onnx.Value) bool {
		return v != nil && v.Constant() == nil && f.factor(n.Outputs[0], v) > 1 && !f.isSide(v)
	}):
		return false
	}
	return f.mayStandInside(n) && !f.isSide(n.Outputs[0])
}

// normAt finds the largest norm that a seed belongs to, or nil.
func (f *finder) normAt(seed *onnx.Node, known probe.Readings[Norm]) *Norm {
	f.budget.Begin(seed)
	for _, y := range f.ahead(seed.Outputs[0]) {
		if f.budget.Spent() {
			return nil
		}
		for r := range f.regions(y, 1) {
			if len(r.Operands) == 0 {
				continue // follows only from weights and sizes
			}
			x := r.Operands[0]
			if !r.Has(seed) || x.Producer != nil && r.Has(x.Producer) || !f.g.Facts.SameShape(x, y) {
				continue
			}
			n, why := reading(f, known, r, f.readNorm, func(of *Norm, stands func(*onnx.Value) *onnx.Value) *Norm {
				return of.with(r, stands)
			})
			if n != nil {
				f.take(r)
				return n
			}
			f.miss(fused.RMSNormName, seed, r, why)
		}
	}
	return nil
}

// with returns n for a region of the same form, with other values.
func (n *Norm) with(r *region, stands func(*onnx.Value) *onnx.Value) *Norm {
	m := *n
	if len(n.Scale.Numbers) > 1 || n.Bias != nil && len(n.Bias.Numbers) > 1 {
		return nil
	}
	m.Nodes, m.X, m.Y, m.Scale.Value = r.Nodes, stands(n.X), r.Result, stands(n.Scale.Value)
	if m.X == nil { // X was the value before the cast
		m.X = r.Operands[0].Producer.Inputs[0]
		m.Nodes = append(slices.Clone(r.Nodes), r.Operands[0].Producer)
	}
	if n.Bias != nil {
		bias := *n.Bias
		bias.Value = stands(bias.Value)
		m.Bias = &bias
	}
	return &m
}

// normReader runs a region to find out whether it is a norm.
type normReader struct {
	*finder
	*region
	x        *onnx.Value
	channels int    // of a row
	rows     layout // that the region is run with
	norm     *Norm
	without  bool // no epsilon: a row of zeros gets NaN
}

// readNorm returns the norm that a region computes. It returns nil, nil if the region does not resemble a norm.
func (f *finder) readNorm(r *region) (*Norm, *reason.Reason) {
	x := r.Operands[0]
	if !f.g.Facts.DataType(x).IsFloat() || !f.g.Facts.DataType(r.Result).IsFloat() {
		return nil, nil
	}
	n := &normReader{finder: f, region: r, x: x, norm: &Norm{X: x, Y: r.Result, Nodes: r.Nodes}}
	if !n.readRows() || slices.ContainsFunc(r.Nodes, normalisesInstances) && len(n.vectors()) == 0 {
		return nil, nil
	}
	if len(n.norm.Axes) > 1 && n.scaledByFewer() {
		return nil, reason.New(reason.ScaleShape, nil, "rows over several axes are scaled by weights over one axis")
	}
	if few, _, why := n.measure(nil); few == nil || !n.wholeRows() {
		return nil, why
	}
	scale, bias, why := n.measure(nil)
	if scale == nil {
		return nil, why
	}
	why = cmp.Or(n.readEpsilon(scale, bias), n.verify(scale, bias))
	if why != nil {
		return nil, why
	}
	if f.followsSizes(r) {
		return nil, reason.New(reason.Depends, nil, "a number of the norm depends on the sizes of inputs")
	}
	n.norm.Scale = n.vector(scale, 0)
	if slices.ContainsFunc(bias, func(b float64) bool { return b != 0 }) {
		v := n.vector(bias, 1)
		n.norm.Bias = &v
	}
	switch s := n.norm.Scale; {
	case len(s.Numbers) == 1 && s.Numbers[0] != 1:
		return nil, nil // rows of another length that no scale restores: another kind of norm
	case len(s.Numbers) == 1 && slices.ContainsFunc(append(n.norm.Y.MadeFrom(), n.norm.Y), n.weighted):
		return nil, reason.New(reason.ScaleShape, nil,
			"the normalized rows are multiplied by weights of another shape")
	}
	return n.typed(), nil
}

// answer runs the region on x, and returns the elements of the result.
func (n *normReader) answer(x []float64, with values) []float64 {
	env := values{n.x: n.sized(n.x, n.rows.shape, x)}
	for v, t := range with {
		env[v] = t
	}
	out, err := n.compute(n.Result, env)
	if err != nil || len(out) != len(x) {
		return nil
	}
	return out
}

// Magnitudes of samples: no epsilon matters beside the squares of great ones, and the squares of tiny ones do not
// matter beside an epsilon.
const (
	great = 1e6
	tiny  = 1e-15
)

// measure returns the scale and the bias of all channels, with some sides replaced by tensors.
func (n *normReader) measure(with values) (scale, bias []float64, why *reason.Reason) {
	size := match.Elements(n.rows.shape)
	x := times(random(size, 3), great)
	y := n.answer(x, with)
	if y == nil || !finite(y) {
		return nil, nil, nil
	}
	zero := n.answer(make([]float64, size), with)
	if zero == nil {
		return nil, nil, nil
	}
	n.without = !slices.ContainsFunc(zero, func(x float64) bool { return x == x })
	switch {
	case finite(zero):
		bias = n.rows.of(zero)[0]
	case n.without: // NaN hides a bias
		bias = make([]float64, n.rows.channels)
	default:
		return nil, nil, nil
	}
	for _, n.norm.Centered = range []bool{false, true} {
		if scale = n.scaleOf(n.rows.of(x), n.rows.of(y), bias); scale != nil {
			break
		}
	}
	switch {
	case scale == nil:
		return nil, nil, nil
	case n.without && n.norm.Centered:
		return nil, nil, reason.New(reason.NoEpsilon, nil, "a layer norm that returns NaN for a row of zeros")
	case !n.norm.Centered && slices.ContainsFunc(bias, func(b float64) bool { return b != 0 }):
		return nil, nil, nil // a norm and an addition: only the norm is the block
	}
	return scale, bias, nil
}

// scaleOf returns the factors of the channels of normalized rows; nil if they differ between rows.
func (n *normReader) scaleOf(x, y [][]float64, bias []float64) []float64 {
	var scale []float64
	most := 0.0
	for i, normed := range n.normalized(x...) {
		of := make([]float64, len(normed))
		for c, v := range normed {
			of[c] = (y[i][c] - bias[c]) / v
		}
		if scale == nil {
			scale, most = of, greatest(of)
		}
		for c := range of {
			if !(math.Abs((of[c]-scale[c])*normed[c]) <= tolerance*most) {
				return nil
			}
		}
	}
	if most == 0 {
		return nil
	}
	return scale
}

// apply returns the rows after mojo.RMSNorm, or for a centered norm the standard's LayerNormalization.
func (n *normReader) apply(rows [][]float64, epsilon float64, scale, bias []float64) [][]float64 {
	tensor := func(list []float64, shape ...int) *reference.Tensor {
		return reference.NewFloats(onnx.Float, shape, list)
	}
	channels := n.rows.channels
	op, inputs := fused.RMSNormName, []*reference.Tensor{tensor(slices.Concat(rows...), len(rows), channels),
		tensor(scale, channels)}
	if n.norm.Centered {
		op, inputs = layerNorm, append(inputs, tensor(bias, channels))
	}
	norm := &Norm{Axes: []int{0}, Epsilon: epsilon, Centered: n.norm.Centered}
	out, err := probe.Op(op, norm.attributes(), nil, inputs...)
	if err != nil {
		panic(err) // a bug here, which any test catches
	}
	return slices.Collect(slices.Chunk(out[0].F, channels))
}

// normalized returns the rows normalized without epsilon, scale and bias.
func (n *normReader) normalized(rows ...[]float64) [][]float64 {
	channels := n.rows.channels
	return n.apply(rows, 0, slices.Repeat([]float64{1}, channels), make([]float64, channels))
}

// meanSquare returns the number that the epsilon is added to. It follows from the row normalized without epsilon: the
// op divides the distance of two channels, or of one from 0, by the root.
func (n *normReader) meanSquare(row, normed []float64) float64 {
	from, normedFrom := 0.0, 0.0
	if n.norm.Centered {
		from, normedFrom = row[0], normed[0]
	}
	root, most := 0.0, 0.0
	for c, x := range row {
		if d := math.Abs(x - from); d > most {
			most, root = d, d/math.Abs(normed[c]-normedFrom)
		}
	}
	return root * root
}

// readEpsilon solves for the epsilon, with rows so small that it matters but, with a bias, no smaller than necessary.
func (n *normReader) readEpsilon(scale, bias []float64) *reason.Reason {
	if n.without {
		return nil
	}
	magnitude := tiny
	if greatest(bias) > 0 {
		magnitude = 1
	}
	for ; magnitude >= tiny; magnitude /= 4 {
		x := times(random(match.Elements(n.rows.shape), 5), magnitude)
		y := n.answer(x, nil)
		if y == nil || !finite(y) {
			break
		}
		row, result := n.rows.of(x)[0], n.rows.of(y)[0]
		normed := n.normalized(row)[0]
		meanSquare, at := n.meanSquare(row, normed), 0
		for c := range scale {
			if math.Abs(scale[c]*normed[c]) > math.Abs(scale[at]*normed[at]) {
				at = c
			}
		}
		// y = normed * sqrt(meanSquare / (meanSquare + epsilon)) * scale
		part := (result[at] - bias[at]) / (normed[at] * scale[at])
		epsilon := meanSquare/(part*part) - meanSquare
		if epsilon > meanSquare/4 && epsilon < math.MaxFloat32/2 {
			n.norm.Epsilon = decimal(epsilon)
			return nil
		}
	}
	return reason.New(reason.NoEpsilon, nil, "a norm that adds no epsilon for tiny rows")
}

// decimal returns the short decimal number that x is a rounding of, or x as float32.
func decimal(x float64) float64 {
	short, err := strconv.ParseFloat(strconv.FormatFloat(x, 'e', 2, 64), 64)
	if err == nil && math.Abs(short-x) <= tolerance*x {
		x = short
	}
	return float64(float32(x))
}

// verify compares the region with the op on rows of all kinds.
func (n *normReader) verify(scale, bias []float64) *reason.Reason {
	size, root := match.Elements(n.rows.shape), math.Sqrt(n.norm.Epsilon)
	if n.without {
		root = tiny
	}
	samples := [][]float64{n.rows.special(root), n.rows.special(1), n.rows.special(1e4)}
	for i, x := range []float64{root / 30, root / 2, root, 3 * root, 1, 40, 3e4, 1e12, 1e18} {
		samples = append(samples, times(random(size, uint64(7+i)), x))
	}
	around, why := n.finder.around(n.region)
	if why != nil {
		return why
	}
	for at := 0; at < len(around); at += size {
		sample := random(size, 61)
		copy(sample, around[at:])
		samples = append(samples, sample)
	}
	for _, sample := range samples {
		y := n.answer(sample, nil)
		if y == nil {
			return reason.New(reason.Other, nil, "a norm that cannot be computed")
		}
		rows, results := n.rows.of(sample), n.rows.of(y)
		normed := n.normalized(rows...)
		for i, want := range n.apply(rows, n.norm.Epsilon, scale, bias) {
			row, meanSquare := rows[i], n.meanSquare(rows[i], normed[i])
			magnitude := greatest(want)
			if n.norm.Centered { // of equal channels, only the rounding errors of their mean remain
				magnitude = max(magnitude, greatest(row)*greatest(scale)/math.Sqrt(meanSquare+n.norm.Epsilon))
			}
			if n.without && meanSquare == 0 {
				if slices.ContainsFunc(results[i], func(x float64) bool { return x == x }) {
					return n.otherwise(row, results[i], scale)
				}
				continue
			}
			if !near(results[i], want, 3*magnitude) {
				return n.otherwise(row, results[i], scale)
			}
		}
	}
	return nil
}

// otherwise returns the reason for a region that normalizes great rows like the op, but not this row.
func (n *normReader) otherwise(row, result, scale []float64) *reason.Reason {
	normed := n.normalized(row)[0]
	meanSquare := n.meanSquare(row, normed)
	least, rms := math.Sqrt(n.norm.Epsilon), math.Sqrt(meanSquare)
	is := func(divisor float64) bool {
		want := times(normed, rms/divisor)
		for c := range want {
			want[c] *= scale[c]
		}
		return near(result, want, 1e3*greatest(want))
	}
	switch {
	case is(max(rms, least)):
		return reason.New(reason.NoEpsilon, nil, "the norm takes a maximum instead of adding epsilon")
	case is(rms + least):
		return reason.New(reason.EpsilonAfter, nil, "epsilon is added to the root")
	}
	return reason.New(reason.Differs, nil, "large rows are normalized, but rows of magnitude %.2g differ", rms)
}

// weighted reports whether a value of the region with the shape of its result is multiplied with weights.
func (n *normReader) weighted(v *onnx.Value) bool {
	return v != nil && !n.isSide(v) && n.g.Facts.SameShape(v, n.norm.Y) && v != n.norm.X && n.g.Weighted(v)
}

// scaledByFewer reports whether the region reads fewer weights than channels: the op's scale would have to repeat each
// of them.
func (n *normReader) scaledByFewer() bool {
	return len(n.vectors()) == 0 && slices.ContainsFunc(n.region.Sides, n.isWeights)
}

func greatest(list []float64) float64 {
	g := 0.0
	for _, x := range list {
		g = max(g, math.Abs(x))
	}
	return g
}

func finite(list []float64) bool {
	return !slices.ContainsFunc(list, func(x float64) bool { return x-x != 0 })
}
