package generate

import (
	"fmt"
	"slices"

	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/onnx/roles"
)

// cache is a past input with the present output that replaces it.
type cache struct {
	past    port
	present string
	batch   int // the axis of the sequences, -1 if absent
	// sequence is the axis that grows with the tokens, -1 for a state of fixed size.
	sequence int
}

// isBuffer reports whether the model writes into the past in place.
func (c *cache) isBuffer() bool { return c.past.role == roles.Buffer }

// isState reports whether the past has a fixed size for each sequence: all of its tokens change the same elements.
func (c *cache) isState() bool { return c.sequence < 0 }

// hasStates reports whether a cache of the model is a state.
func (l *layout) hasStates() bool {
	return slices.ContainsFunc(l.caches, func(c cache) bool { return c.isState() })
}

// hasBuffers reports whether the model writes a cache in place.
func (l *layout) hasBuffers() bool {
	return slices.ContainsFunc(l.caches, func(c cache) bool { return c.isBuffer() })
}

// shape returns the dimensions of the past for rows sequences of no tokens.
func (c *cache) shape(rows int) []int64 {
	dims := make([]int64, len(c.past.dims))
	for i, d := range c.past.dims {
		switch i {
		case c.batch:
			dims[i] = int64(rows)
		case c.sequence:
		default:
			dims[i] = d.Value
		}
	}
	return dims
}

// findCaches pairs each past with the output that holds its successor.
func (l *layout) findCaches(m *onnx.Model, pasts []*roles.Input) error {
	isLogits := func(v *onnx.Value) bool { return v.Name == l.logits.name }
	presents, err := roles.Presents(pasts, slices.DeleteFunc(slices.Clone(m.Graph.Outputs), isLogits))
	if err != nil {
		return err
	}
	for i, past := range pasts {
		c := cache{past: toPort(past), present: presents[i].Name}
		if err := c.axes(m, l.ids.dims, outputPort(presents[i])); err != nil {
			return err
		}
		l.caches = append(l.caches, c)
	}
	return nil
}

// cacheOf returns the index of the cache whose present is the named output, or -1.
func (l *layout) cacheOf(output string) int {
	return slices.IndexFunc(l.caches, func(c cache) bool { return c.present == output })
}

// axes finds the batch axis and the growing axis of the past.
func (c *cache) axes(m *onnx.Model, ids []onnx.Dim, present port) error {
	if c.isBuffer() {
		c.batch, c.sequence = 0, 2
		return nil
	}
	c.batch, c.sequence = -1, -1
	dims := c.past.dims
	var open []int // the axes without a number
	for i, d := range dims {
		if d.Value < 0 {
			open = append(open, i)
		}
	}
	take := func(axis int) { open = slices.DeleteFunc(open, func(i int) bool { return i == axis }) }
	if axis := concatAxis(m, c.past.name, c.present, len(dims)); slices.Contains(open, axis) {
		c.sequence = axis
		take(axis)
	}
	if batch := ids[0]; len(ids) == 2 && batch.Value < 0 {
		named := slices.IndexFunc(open, func(i int) bool { return batch.Param != "" && dims[i].Param == batch.Param })
		switch {
		case named >= 0:
			c.batch = open[named]
		case c.sequence >= 0 && len(open) > 0, len(open) == 2 && c.grows(present, open[1:]) == open[1]:
			c.batch = open[0]
		case len(open) == 2 && c.grows(present, open[:1]) == open[0]:
			c.batch = open[1]
		case len(open) == 2, len(open) == 1 && open[0] == 0:
			c.batch = open[0]
		}
		take(c.batch)
	}
	if c.sequence < 0 {
		if c.sequence = c.grows(present, open); c.sequence < 0 && len(open) == 1 {
			c.sequence = open[0]
		}
		take(c.sequence)
	}
	if len(open) > 0 {
		return fmt.Errorf("input %s looks like a cache, but the size of its axis %d (%s) is unknown: declare it as a "+
			"number in the export",
			c.past, open[0], axisName(dims[open[0]]))
	}
	return nil
}

// grows returns the only one of these axes whose symbol differs between present and past, or -1.
func (c *cache) grows(present port, axes []int) int {
	found := -1
	for _, i := range axes {
		if i >= len(present.dims) || present.dims[i].Param == "" || present.dims[i].Param == c.past.dims[i].Param {
			continue
		}
		if found >= 0 {
			return -1
		}
		found = i
	}
	return found
}

// concatAxis returns the axis on which one node of the graph joins the past and the new tokens, or -1.
func concatAxis(m *onnx.Model, past, present string, rank int) int {
	v := m.Graph.Value(present)
	for range 4 {
		if v == nil || v.Producer == nil {
			return -1
		}
		n := v.Producer
		if n.Is("Concat") {
			for i := range n.Inputs {
				x := n.Input(i)
				for x != nil && x.Producer != nil && (x.Producer.Is("Identity") || x.Producer.Is("Cast")) {
					x = x.Producer.Input(0)
				}
				if x != nil && x.Name == past && x.IsInput {
					axis := int(n.AttrInt("axis", 0))
					if axis < 0 {
						axis += rank
					}
					return axis
				}
			}
			return -1
		}
		if !n.Is("Identity") && !n.Is("Cast") {
			return -1
		}
		v = n.Input(0)
	}
	return -1
}
