package fit

import (
	"math"
	"slices"
	"strings"

	"github.com/mojo-patch/mojo-patch/fused"
	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/patterns/match"
	"github.com/mojo-patch/mojo-patch/patterns/probe"
	"github.com/mojo-patch/mojo-patch/patterns/reason"
	"github.com/mojo-patch/mojo-patch/patterns/site"
	"github.com/mojo-patch/mojo-patch/reference"
)

// A Gate is a gated unit: an activation of Gate, times Up.
type Gate struct {
	Gate, Up, Y *onnx.Value
	Nodes       []*onnx.Node
	Activation  string
	Alpha       float64
	Limit       float64 // or 0
	UpOffset    float64
}

// bends lists the ops that activations contain. Norms and rotations contain only exponentials and logarithms of them.
var (
	bends = append([]string{"Exp", "Log"}, activations...)

	activations = []string{"Sigmoid", "Tanh", "Erf", "Softmax", "LogSoftmax", "Softplus", "Swish", "SwiGLU", "Gelu",
		"QuickGelu", "FastGelu", "BiasGelu"}
)

// Gates finds gated units among the nodes that are not taken, and near misses.
func Gates(g *match.View, others site.Others) (sites []*site.Site, misses []*match.Miss) {
	f := newFinder(g, fused.GLUName, others)
	known := probe.Readings[Gate]{}
	for i := len(g.Graph.Nodes) - 1; i >= 0; i-- {
		n := g.Graph.Nodes[i]
		if !slices.Contains(bends, n.OpType) || len(n.Outputs) == 0 || n.Outputs[0] == nil ||
			!f.mayStandInside(n) || f.isSide(n.Outputs[0]) {
			continue
		}
		if gate := f.gateAt(n, known); gate != nil && !others.Write(gate.Y) {
			sites = append(sites, gate.site(g))
		}
	}
	slices.Reverse(sites)
	return sites, f.misses
}

// gateAt finds the largest unit whose gate a node activates, or nil.
func (f *finder) gateAt(seed *onnx.Node, known probe.Readings[Gate]) *Gate {
	f.budget.Begin(seed)
	gates := f.before(seed)
	for _, y := range f.ahead(seed.Outputs[0]) {
		if !f.joinsNear(y) {
			continue
		}
		var greatest *region
		var found *Gate
		for _, gate := range gates {
			if !f.budget.Spend(lookSteps) {
				return nil
			}
			if !f.mayBeOperand(gate, y) {
				continue
			}
			for r := range f.regions(y, 1, gate) {
				if !r.Has(seed) || !f.mayBeGated(r) || greatest != nil && len(r.Nodes) <= len(greatest.Nodes) {
					continue
				}
				n, why := reading(f, known, r, f.readGate, func(of *Gate, stands func(*onnx.Value) *onnx.Value) *Gate {
					n := *of
					n.Gate, n.Up, n.Y, n.Nodes = stands(n.Gate), stands(n.Up), r.Result, r.Nodes
					return &n
				})
				if n != nil {
					greatest, found = r, n
				}
				f.miss(fused.GLUName, seed, r, why)
			}
		}
		if found != nil {
			f.take(greatest)
			return found
		}
	}
	return nil
}

// maxGates bounds the values that are tried as the gate of a node.
const maxGates = 32

// before lists the values that a node's operands are computed from, the nearest first, back to the last product with
// weights.
func (f *finder) before(n *onnx.Node) []*onnx.Value {
	var list []*onnx.Value
	data := func(v *onnx.Value) bool { return v == nil || f.isSide(v) }
	for v := range onnx.Reach(func(v *onnx.Value) []*onnx.Value {
		if f.position(v) < 0 || v.Producer.IsProduct() || !f.mayStandInside(v.Producer) {
			return nil
		}
		return slices.DeleteFunc(slices.Clone(v.Producer.Inputs), data)
	}, slices.DeleteFunc(slices.Clone(n.Inputs), data)...) {
		if list = append(list, v); len(list) == maxGates || !f.budget.Spend(2*lookSteps) {
			break
		}
	}
	return list
}

// multiplying are the ops that may compute a product, however it is written.
var multiplying = []string{"Mul", "Div", "MatMul", "Gemm", "Einsum", "ReduceProd", "Pow", "Exp"}

// mayBeGated reports whether a region has two operands that may be a unit's, multiplies, and reduces nothing of the
// shape of its result.
func (f *finder) mayBeGated(r *region) bool {
	return len(r.Operands) == 2 && f.budget.Spend(lookSteps*len(r.Nodes)) &&
		slices.ContainsFunc(r.Nodes, func(n *onnx.Node) bool { return slices.Contains(multiplying, n.OpType) }) &&
		!slices.ContainsFunc(r.Operands, func(v *onnx.Value) bool { return !f.mayBeOperand(v, r.Result) }) &&
		!slices.ContainsFunc(r.Nodes, func(n *onnx.Node) bool {
			return strings.HasPrefix(n.OpType, "Reduce") && f.g.Facts.SameShape(n.Input(0), r.Result)
		})
}

// mayBeOperand reports whether a value has the shape and type of the result y and is not computed by an expert.
func (f *finder) mayBeOperand(v, y *onnx.Value) bool {
	facts := f.g.Facts
	if !facts.DataType(y).IsFloat() || facts.DataType(v) != facts.DataType(y) || !facts.SameShape(v, y) {
		return false
	}
	is, ok := f.routed[v]
	if !ok {
		is = f.g.Routed(v)
		f.routed[v] = is
	}
	return !is
}

// point is a pair of numbers for gate and up.
type point struct{ gate, up float64 }

// gateReader runs a region to find out whether it is a gated unit.
type gateReader struct {
	*finder
	*region
	shape    []int // that it is run with
	size     int
	gate, up *onnx.Value
	around   []float64 // numbers near those that gate and up are compared with
}

func (f *finder) readGate(r *region) (*Gate, *reason.Reason) {
	own, ok := f.lab.Shape(r.Result)
	if !ok || f.followsSizes(r) {
		return nil, nil
	}
	around, not := f.around(r)
	if not != nil {
		return nil, not
	}
	shapes := [][]int{atMost(own, fewElements, 1), atMost(own, fewElements, 1, len(own)-1)}
	if !slices.ContainsFunc(r.Sides, f.isWeights) {
		shapes = append(shapes, own) // weights would make another function of each channel
	}
	shape := f.smallest(r, shapes...)
	if shape == nil {
		return nil, nil
	}
	var why *reason.Reason
	for i, gate := range r.Operands {
		n := &gateReader{f, r, shape, match.Elements(shape), gate, r.Operands[1-i], around}
		if !n.byElements() {
			return nil, nil
		}
		found, not := n.read()
		if found != nil {
			return found, nil
		}
		if not != nil {
			why = not
		}
	}
	return nil, why
}

// run returns the results for tensors of gate and up.
func (n *gateReader) run(gate, up []float64) []float64 {
	env := values{n.gate: n.sized(n.gate, n.shape, gate), n.up: n.sized(n.up, n.shape, up)}
	out, err := n.compute(n.Result, env)
	if err != nil || len(out) != n.size {
		return nil
	}
	return out
}

// byElements reports whether each element of the result is the same function of the elements at its index: moved
// elements move the results, and a changed element changes only its result.
func (n *gateReader) byElements() bool {
	gate, up := random(n.size, 1), random(n.size, 2)
	was := n.run(gate, up)
	if was == nil {
		return false
	}
	moved := func(list []float64) []float64 { return slices.Concat(list[n.size/3:], list[:n.size/3]) }
	if !slices.Equal(n.run(moved(gate), moved(up)), moved(was)) {
		return false
	}
	changed := make([]bool, n.size)
	for i, x := range random(n.size, 3) {
		switch {
		case x > 0.5:
			gate[i] += 0.75
		case x < -0.5:
			up[i] += 0.75
		}
		changed[i] = math.Abs(x) > 0.5
	}
	is := n.run(gate, up)
	for i := range changed {
		if is == nil || (is[i] != was[i]) != changed[i] {
			return false
		}
	}
	return true
}

// at returns the results at points.
func (n *gateReader) at(points ...point) []float64 {
	var out []float64
	for len(points) > 0 {
		gate, up := make([]float64, n.size), make([]float64, n.size)
		for i := range gate {
			p := points[min(i, len(points)-1)]
			gate[i], up[i] = p.gate, p.up
		}
		results := n.run(gate, up)
		if results == nil {
			return nil
		}
		k := min(n.size, len(points))
		out, points = append(out, results[:k]...), points[k:]
	}
	return out
}

// small is less than every limit of a unit.
const small = 0.2

func (n *gateReader) read() (*Gate, *reason.Reason) {
	y := n.at(point{small, 0}, point{small, small}, point{small, -small}, point{small, 2 * small}, point{small, far},
		point{1, small}, point{1, -small})
	if y == nil || !finite(y) {
		return nil, nil
	}
	slope := (y[1] - y[2]) / (2 * small)
	if slope == 0 || math.Abs(y[3]-y[0]-2*small*slope) > tolerance*math.Abs(y[3]) ||
		math.Abs((y[5]-y[6])/(2*small)-5*slope) < tolerance {
		return nil, nil // up is not a factor, or gate is one
	}
	unit := Gate{Gate: n.gate, Up: n.up, Y: n.Result, Nodes: n.Nodes, Alpha: 1, UpOffset: rounded(y[0]/slope, 1)}
	if above := y[4]/slope - unit.UpOffset; math.Abs(above-far) > tolerance*far {
		unit.Limit = decimal(above)
	}
	sigmoid := slope / small
	for _, unit.Activation = range []string{"silu", "gelu", "gelu_tanh"} {
		unit.Alpha = 1
		if unit.Activation == "silu" {
			if !(sigmoid > 0 && sigmoid < 1) {
				continue
			}
			unit.Alpha = decimal(math.Log(sigmoid/(1-sigmoid)) / small)
		}
		if unit.Alpha > 0 && n.agrees(&unit) { // 1 - sigmoid lacks the digits that the op has for an alpha below 0
			return &unit, nil
		}
	}
	return nil, reason.New(reason.OtherConstant, nil,
		"up is multiplied by another function of the gate than in the op")
}

// far is greater than every limit, beyond greater than the bounds of clips.
const far, beyond = 1e4, 1e9

// agrees reports whether the region computes the same as the op.
func (n *gateReader) agrees(unit *Gate) bool {
	gates := []float64{-far, -50, -20, -8, -3, -1, -0.5, -1e-3, 0, 1e-3, 0.5, 1, 1.5, 3, 7, 10, 50, 1e3, far}
	ups := []float64{-far, -10, -1, -1e-3, 0, 1e-3, 0.3, 1, 2.5, 7, 30, 1e3, far}
	if l := unit.Limit; l > 0 {
		gates = append(gates, 0.99*l, 1.01*l, -0.99*l, -1.01*l)
		ups = append(ups, 0.99*l, 1.01*l, -0.99*l, -1.01*l)
	}
	var points []point
	for _, g := range gates {
		for _, u := range ups {
			points = append(points, point{g, u})
		}
	}
	for _, x := range append(n.around, beyond, -beyond) {
		points = append(points, point{x, 0.3}, point{x, -1}, point{0.7, x}, point{-2, x}, point{x, x}, point{x, -x})
	}
	y, op := n.at(points...), unit.of(points)
	if y == nil || op == nil {
		return false
	}
	for i, p := range points {
		want := op[i]
		if overflows := math.Abs(p.gate) > 700; overflows && y[i]-y[i] != 0 {
			continue // an exponential overflows
		}
		most := math.Abs(p.gate * (p.up + unit.UpOffset))
		if !(math.Abs(y[i]-want) <= 3*tolerance*math.Abs(want)+tolerance*tolerance*most) {
			return false
		}
	}
	return true
}

// site returns the site at which mojo.GLU replaces the unit.
func (unit *Gate) site(g *match.View) *site.Site {
	s := site.New(g, fused.GLUName, unit.Y.Producer)
	s.Output(unit.Y, s.Compute(unit.op(), []string{"y"}, s.Input(fused.NoRole, "gate", unit.Gate),
		s.Input(fused.NoRole, "up", unit.Up))[0])
	s.Nodes = unit.Nodes
	return s
}

// op returns mojo.GLU with its attributes.
func (unit *Gate) op() fused.GLU {
	return fused.GLU{Activation: unit.Activation, Alpha: float32(unit.Alpha), Limit: float32(unit.Limit),
		UpOffset: float32(unit.UpOffset)}
}

// of returns the results of the op at points; nil if the op rejects its attributes.
func (unit *Gate) of(points []point) []float64 {
	gate, up := make([]float64, len(points)), make([]float64, len(points))
	for i, p := range points {
		gate[i], up[i] = p.gate, p.up
	}
	shape := []int{len(points)}
	out, err := probe.Fused(unit.op(), nil, reference.NewFloats(onnx.Float, shape, gate),
		reference.NewFloats(onnx.Float, shape, up))
	if err != nil {
		return nil
	}
	return out[0].F
}
