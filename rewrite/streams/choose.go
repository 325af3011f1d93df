package streams

import (
	"fmt"
	"maps"
	"math"
	"slices"

	"github.com/mojo-patch/mojo-patch/golden"
	"github.com/mojo-patch/mojo-patch/onnx"
)

const (
	// greatestHalf is the largest number of float16.
	greatestHalf = 65504
	// leastUseful bounds the magnitudes of scaled float16 values from below. Relative to such a largest element, the
	// distance of the smallest float16 numbers, 2^-24, is at most a unit in the last place.
	leastUseful = 0x1p-12
	// mostExponent bounds exponents, and mostFloat32 the numbers in float32.
	mostExponent, mostFloat32 = 40, 0x1p127
)

// item is a value that may be scaled: a computed value, or a constant at one reader.
type item struct {
	value *onnx.Value
	node  *onnx.Node // computes the value or reads the constant
	x     int        // its exponent
	// measured is its largest magnitude. greatest includes the headroom if the value is computed.
	measured, greatest float64
	// least is its least magnitude if it may not fall below kept: the constant has a type that would lose digits.
	least, kept float64
	half        bool   // whether it is float16 in the converted model
	failed      string // why it could not be lowered
}

// chooser chooses exponents with which no value overflows.
type chooser struct {
	*builder
	ranges   *ranges
	half     map[*onnx.Value]bool
	headroom float64

	chosen map[int]int
	items  []*item         // in graph order
	on     map[int][]*item // the items that depend on each free exponent
}

// choose lowers overflowing values, in graph order.
func (c *chooser) choose() error {
	c.chosen, c.on = map[int]int{}, map[int][]*item{}
	c.pinIdle()
	if err := c.list(); err != nil {
		return err
	}
	c.lowerAll()
	return nil
}

func (c *chooser) lowerAll() {
	for range 4 { // lowering one product may undo another, or make room for it
		changed := false
		for _, i := range c.items {
			if c.overflows(i) && c.lower(i) {
				changed = true
			}
		}
		if !changed {
			return
		}
	}
}

// pinIdle keeps the graphs that did not run as they are, because nothing proves their changes.
func (c *chooser) pinIdle() {
	for _, n := range c.idle() {
		for _, x := range append(c.inputs(n), c.outputs(n)...) {
			c.because(x, fmt.Sprintf("node %q is in a branch or loop that did not run on the inputs", n.Label()))
		}
	}
}

// idle lists the nodes with float results in graphs that did not run.
func (c *chooser) idle() []*onnx.Node {
	return slices.DeleteFunc(nodes(c.graph), func(n *onnx.Node) bool {
		return c.ranges.ran[n.Graph] || n.Graph == c.graph || !slices.ContainsFunc(c.outputs(n), func(x int) bool {
			return x != none
		})
	})
}

// list creates the items.
func (c *chooser) list() error {
	type extent struct{ least, most float64 }
	known := map[*onnx.Value]extent{}
	add := func(i *item) {
		c.items = append(c.items, i)
		for x := range c.system.of(i.x) {
			c.on[x] = append(c.on[x], i)
		}
	}
	for _, n := range nodes(c.graph) {
		for at, v := range n.Inputs {
			x, ok := c.reads[onnx.Use{Node: n, Index: at}]
			if !ok {
				continue
			}
			r, ok := known[v]
			if !ok {
				var err error
				if r.least, r.most, err = rangeOf(v.Constant()); err != nil {
					return err
				}
				known[v] = r
			}
			_, mask := c.ranges.masks[v]
			i := &item{value: v, node: n, x: x, measured: r.most, greatest: r.most, half: c.half[v] && !mask}
			if t := v.Constant().DataType; t != onnx.Float && t != onnx.Double { // it keeps its type, or gets float32
				i.half = false
				if !c.widens[onnx.Use{Node: n, Index: at}] {
					i.least, i.kept = r.least, elements[t].least
				}
			}
			add(i)
		}
		for at, v := range n.Outputs {
			if c.out(n, at) != none {
				g := c.ranges.greatest[v]
				add(&item{value: v, node: n, x: c.values[v], measured: g, greatest: g * c.headroom, half: c.half[v]})
			}
		}
	}
	return nil
}

// exponent returns the chosen value of exponent x.
func (c *chooser) exponent(x int) (e int) {
	for y, factor := range c.system.of(x) {
		e += factor * c.chosen[y]
	}
	return e
}

// overflows reports whether a value with its present scale exceeds float16.
func (c *chooser) overflows(i *item) bool {
	return i.half && math.Ldexp(i.greatest, c.exponent(i.x)) > greatestHalf
}

// lower brings a value into range with the exponent that changes the fewest others, and reports whether there is one.
func (c *chooser) lower(i *item) bool {
	excess := int(math.Ceil(math.Log2(math.Ldexp(i.greatest, c.exponent(i.x)) / greatestHalf)))
	terms := c.system.of(i.x)
	best, by, cost := none, 0, 0
	for _, x := range sortedKeys(terms) {
		factor := terms[x]
		step := -ceilDiv(excess, max(factor, -factor))
		if factor < 0 {
			step = -step
		}
		if why := c.refuses(x, step); why != "" {
			i.failed = why
		} else if price := len(c.on[x]); best == none || price < cost {
			best, by, cost = x, step, price
		}
	}
	if best == none {
		return false
	}
	c.chosen[best] += by
	return true
}

// refuses says why an exponent cannot change by a step: which value would leave its range.
func (c *chooser) refuses(x, step int) string {
	for _, i := range c.on[x] {
		before := c.exponent(i.x)
		change := c.system.of(i.x)[x] * step
		now, after := math.Ldexp(i.greatest, before), math.Ldexp(i.greatest, before+change)
		switch {
		case change > 0 && (i.half && after > greatestHalf || after > mostFloat32),
			max(before+change, -before-change) > mostExponent:
			return fmt.Sprintf("%q would overflow instead", i.value.Name)
		case change < 0 && (i.half && after > 0 && after < leastUseful ||
			i.least > 0 && math.Ldexp(i.least, before+change) < i.kept):
			return fmt.Sprintf("%q, of magnitudes up to %.3g, would lose digits", i.value.Name, now)
		}
	}
	return ""
}

// wide lists the nodes that must compute in float32: the producers and readers of values that still overflow.
func (c *chooser) wide() (nodes map[*onnx.Node]bool, stays []Stay) {
	nodes, stays = map[*onnx.Node]bool{}, []Stay{}
	named := map[*onnx.Value]bool{}
	for _, i := range c.items {
		if !c.overflows(i) || i.node.Graph == nil {
			continue
		}
		nodes[i.node] = true
		if i.value.Producer == i.node {
			for _, u := range i.value.Uses() {
				nodes[u.Node] = true
			}
		}
		moved := i.value.Producer == i.node && i.node.MovesElements() && named[i.node.Input(0)]
		if !moved && !named[i.value] {
			stays = append(stays, Stay{Value: i.value.Name, Node: i.node.Label(), Op: i.node.OpType,
				Greatest: golden.Number(i.measured), Reason: c.reason(i)})
		}
		named[i.value] = true
	}
	told := map[*onnx.Graph]bool{}
	for _, n := range c.idle() {
		if v := n.Outputs[0]; c.half[v] && !told[n.Graph] {
			told[n.Graph] = true
			stays = append(stays, Stay{Value: v.Name, Node: n.Label(), Op: n.OpType, Reason: c.pins[c.of(v)]})
		}
		nodes[n] = true
	}
	for n := range maps.Clone(nodes) {
		for _, v := range n.Inputs {
			c.maskToo(v, nodes)
		}
	}
	return nodes, stays
}

// maskToo computes a mask in float32 if it is added to a float32 value: the lowest number of float16 might not hide
// anything there.
func (c *chooser) maskToo(v *onnx.Value, nodes map[*onnx.Node]bool) {
	if _, is := c.ranges.masks[v]; !is || !c.ranges.made[v] || nodes[v.Producer] {
		return
	}
	nodes[v.Producer] = true
	for _, w := range v.Producer.Inputs {
		c.maskToo(w, nodes)
	}
}

// reason says why a value is not lowered.
func (c *chooser) reason(i *item) string {
	if i.failed != "" && len(c.system.of(i.x)) > 0 {
		return i.failed
	}
	return c.why(i.x)
}

func ceilDiv(a, b int) int { return (a + b - 1) / b }
