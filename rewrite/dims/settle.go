package dims

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/reference"
)

// settled refuses a choice that depends on facts that neither the model nor recorded outputs show.
func (a *analysis) settled(c *choice) error {
	for i, v := range c.variants {
		d := a.dims[i]
		if !v.related() && c.recorded[i] <= d.Size && d.isCache(a.model) {
			return &Refusal{d.Name, "",
				"constants may hold positions that depend on the length of a cache, and the " +
					"model does not show it; pass recorded outputs of a greater length"}
		}
		if !v.related() && c.recorded[i] <= d.Size && v.chained {
			return &Refusal{d.Name, "", "several constants must follow it together, and the model does not show " +
				"that no others do; pass recorded outputs of another size"}
		}
		for k := range v.numbers {
			return &Refusal{d.Name, k.node.Label(), fmt.Sprintf("its constant %q depends on the size, but is not a "+
				"size itself", k.value.Name)}
		}
		for s, f := range c.factors {
			if f[i].den != 1 && !divides(a.constantOf(s)) {
				return &Refusal{d.Name, s.node.Label(), "its number is a fraction of the size, but the node also " +
					"runs at sizes that are not divisible"}
			}
			k := a.constantOf(s)
			if v.evidence.causal && !v.rows && !a.ExtendMasks && c.recorded[i] > d.Size && k.open(c, i) {
				return &Refusal{d.Name, s.node.Label(), fmt.Sprintf("its constant %q, a mask of %v, shows no "+
					"window, but only a window has such a mask, and recorded outputs up to %d are within it; pass "+
					"longer ones, or --extend-masks if it has no window", k.value.Name, k.tensor.Shape, c.recorded[i])}
			}
			if v.rows || c.recorded[i] > d.Size {
				continue
			}
			if axis, ok := s.axis(); k.family.short && s.part < 0 && f[i].num != 0 &&
				!(ok && k.tensor.Shape[axis] >= fewest) {
				return &Refusal{d.Name, s.node.Label(), fmt.Sprintf("its constant %q, [0, 1], need not be a count; "+
					"pass recorded outputs of a greater size", k.value.Name)}
			}
			if f[i].num != 0 && k.family.plane != nil && k.indices(false) {
				return &Refusal{d.Name, s.node.Label(), fmt.Sprintf("its constant %q of %v has indices by the "+
					"distance of two positions, which may have a limit that is not reached at the size %d; pass "+
					"recorded outputs of a greater size", k.value.Name, k.tensor.Shape, d.Size)}
			}
			if f[i].num != 0 && !a.ExtendMasks && c.isMask(a, k, i) {
				return &Refusal{d.Name, s.node.Label(), fmt.Sprintf("its constant %q, a mask of %v, is made for the "+
					"size %d; a window of at least as many positions looks the same; pass recorded outputs of a "+
					"greater size, or --extend-masks if it has no window", k.value.Name, k.tensor.Shape, d.Size)}
			}
		}
	}
	return nil
}

// isCache reports whether a dimension may be the length of a cache, according to the places where Find looks for it.
func (d *Dim) isCache(m *onnx.Model) bool {
	return slices.ContainsFunc(d.places, func(p place) bool {
		t, _ := p.input.Type()
		return len(t.Dims) >= 3 && p.axis == len(t.Dims)-2 && len(m.Graph.Inputs) > 1 && d.Name != Sequence
	})
}

// open reports whether a table is a mask that leaves out nothing. It grows with pairs of positions.
func (c *constant) open(found *choice, dim int) bool {
	n := c.tensor.Rank()
	if c.family.step || c.family.window > 0 || !c.family.windowed(c.tensor) {
		return false
	}
	for axis := n - 2; axis < n; axis++ {
		if f := found.factors[slot{c.node, c.input, lengthOf(axis)}]; f == nil || f[dim].num == 0 {
			return false
		}
	}
	return true
}

// isMask reports whether a table that grows with a dimension may be a mask of positions: it has steps, or it is
// constant along its last axis or along several growing axes. Positions times rates are none, nor are equal elements
// of which Trilu makes a mask, or from which only indices follow.
func (c *choice) isMask(a *analysis, k *constant, dim int) bool {
	if k.family.waves != nil || k.family.plane != nil || !k.family.step && (k.node.Is("Trilu") ||
		k.tensor.DataType.IsInteger() && k.indices(true)) {
		return false
	}
	grows := 0
	for axis := range k.tensor.Shape {
		f := c.factors[slot{k.node, k.input, lengthOf(axis)}]
		if f == nil || f[dim].num == 0 {
			continue
		}
		if grows++; k.family.step || k.family.linear < 0 && k.family.grid == nil &&
			(grows > 1 || axis == k.tensor.Rank()-1) {
			return true
		}
	}
	f := c.factors[slot{k.node, k.input, diagonal}]
	return k.family.step && f != nil && f[dim].num != 0
}

// unlimited are the ops whose results grow with distances.
var unlimited = onnx.Words("Add Sub Mul Div Neg Abs Cast Floor Ceil Round Sqrt Log")

// indices reports whether what follows from a table are indices of other tensors: all of it, whatever computes them, or
// else some of it, without an op that may limit them.
func (c *constant) indices(all bool) bool {
	seen := map[*onnx.Node]bool{}
	var follow func(n *onnx.Node, from *onnx.Value) bool
	follow = func(n *onnx.Node, from *onnx.Value) bool {
		if strings.HasPrefix(n.OpType, "Gather") && n.Input(1) == from {
			return n.Input(0) != from
		}
		if seen[n] {
			return all
		}
		seen[n] = true
		if !n.MovesElements() && !(all && elementwise[n.OpType]) && !unlimited[n.OpType] ||
			len(n.Outputs) != 1 || n.Outputs[0].IsOutput() {
			return false
		}
		for _, u := range n.Outputs[0].Uses() {
			if follow(u.Node, n.Outputs[0]) != all {
				return !all
			}
		}
		return all
	}
	return follow(c.node, c.value)
}

// errUnlike means that no window reproduces the recorded outputs.
var errUnlike = errors.New("no window reproduces the recorded outputs")

// windows looks for the only window with which a choice reproduces the recorded outputs, in one or more of its masks
// that do not show one: a window of at least as many positions as the table has columns leaves no trace in it.
func (a *analysis) windows(c *choice, samples []*sample) error {
	masks, values := map[*onnx.Value][]*constant{}, []*onnx.Value{}
	least, most := int64(0), int64(0)
	for _, k := range a.constants {
		n := k.tensor.Rank()
		columns, rows := slot{k.node, k.input, lengthOf(n - 1)}, slot{k.node, k.input, lengthOf(n - 2)}
		if !k.family.windowed(k.tensor) || c.factors[columns] == nil || c.factors[rows] == nil {
			continue
		}
		if masks[k.value] == nil {
			values = append(values, k.value)
		}
		masks[k.value] = append(masks[k.value], k)
		least = max(least, int64(k.tensor.Shape[n-1]))
		for _, s := range samples {
			if length, err := a.number(c.reading, k, columns, s.sizes); err == nil {
				most = max(most, length)
			}
		}
	}
	if len(values) == 0 || len(values) > 4 {
		return errUnlike
	}
	set := func(which int, window int64) {
		for i, v := range values {
			for _, k := range masks[v] {
				k.family.window = window * int64(which>>i&1)
			}
		}
	}
	var found [][2]int64
	for which := 1; which < 1<<len(values); which++ {
		for window := least; window < most; window++ {
			set(which, window)
			same := true
			for _, s := range samples {
				ok, err := a.reproduces(c, s)
				if err != nil {
					return err
				}
				if same = ok; !same {
					break
				}
			}
			if same {
				found = append(found, [2]int64{int64(which), window})
			}
		}
	}
	set(0, 0)
	if len(found) != 1 {
		return errUnlike
	}
	set(int(found[0][0]), found[0][1])
	err := a.together(c, samples)
	if c.window = found[0][1]; err != nil {
		set(0, 0)
	}
	return err
}

// divides reports whether the node fails if a number of its constant was rounded.
func divides(c *constant) bool {
	return c.node.Is("Reshape") && c.input == 1 && c.inferred < 0 && !slices.Contains(c.tensor.I, 0)
}

// attributes refuses a dimension that an attribute of a node may depend on, because attributes cannot change.
func (a *analysis) attributes(c *choice) error {
	for i, v := range c.variants {
		size := a.dims[i].Size
		if v.rows || c.recorded[i] > size || size < 3 {
			continue
		}
		short, err := a.firstShapes(c, a.exported())
		if err != nil {
			return err
		}
		long, err := a.firstShapes(c, a.sizes(i, v.evidence.size))
		if err != nil {
			return err
		}
		for _, n := range a.model.Graph.Nodes {
			if slices.Equal(short[n], long[n]) {
				continue
			}
			for _, at := range n.Attributes {
				if sized[at.Name] && slices.Contains(append(at.Ints, at.Int), size) {
					return &Refusal{a.dims[i].Name, n.Label(),
						fmt.Sprintf("its attribute %s may come from the size %d, "+
							"and attributes cannot change with it", at.Name, size)}
				}
			}
			if n.Is("Split") && int64(len(n.Outputs)) == size && longer(short[n], long[n], int(n.AttrInt("axis", 0))) {
				return &Refusal{a.dims[i].Name, n.Label(), fmt.Sprintf("it has %d outputs, as many as the size", size)}
			}
		}
	}
	return nil
}

// longer reports whether two shapes differ in one axis.
func longer(short, long []int, axis int) bool {
	axis = (axis + len(short)) % max(len(short), 1)
	return axis >= len(short) || axis >= len(long) || short[axis] != long[axis]
}

// sized are the attributes that may be sizes of inputs.
var sized = onnx.Words("kernel_shape strides split k pads starts ends output_shape shape repeats")

// firstShapes returns the shapes of the nodes' first inputs.
func (a *analysis) firstShapes(c *choice, sizes []int64) (map[*onnx.Node][]int, error) {
	in, err := a.inputs(1, sizes)
	if err != nil {
		return nil, err
	}
	list := map[*onnx.Node][]int{}
	a.see = func(n *onnx.Node, s *reference.Scope) {
		if v := n.Input(0); v != nil {
			if x, err := s.Value(v); err == nil {
				list[n] = x.Shape
			}
		}
	}
	defer func() { a.see = nil }()
	return list, a.run(c.reading, sizes, in).err
}
