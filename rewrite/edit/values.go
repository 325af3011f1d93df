package edit

import (
	"slices"

	"github.com/mojo-patch/mojo-patch/onnx"
)

// AddInitializer adds a constant to a graph, named after the tensor.
func (c *Change) AddInitializer(g *onnx.Graph, t *onnx.Tensor) *onnx.Value {
	c.keepGraph(g)
	return g.AddInitializer(t)
}

// SetConst replaces the elements of an initializer.
func (c *Change) SetConst(v *onnx.Value, t *onnx.Tensor) {
	c.keepValues(v)
	v.Const = t
}

// SetType declares the type of a value.
func (c *Change) SetType(v *onnx.Value, t onnx.Type) {
	c.keepValues(v)
	v.SetType(t)
}

// AddInput adds an input to a graph.
func (c *Change) AddInput(g *onnx.Graph, name string, t onnx.Type) *onnx.Value {
	c.keepGraph(g)
	return g.AddInput(name, t)
}

// AddDefault adds an input with a default to a graph, as onnx.Graph.AddDefault does.
func (c *Change) AddDefault(g *onnx.Graph, t onnx.Type, d *onnx.Tensor) *onnx.Value {
	c.keepGraph(g)
	return g.AddDefault(t, d)
}

// AddOutput makes a value an output of a graph.
func (c *Change) AddOutput(g *onnx.Graph, v *onnx.Value) {
	c.keepGraph(g)
	c.keepValues(v)
	g.AddOutput(v)
}

// SetOutput makes a value output i of a graph.
func (c *Change) SetOutput(g *onnx.Graph, i int, v *onnx.Value) {
	old := g.Outputs[i]
	c.AddOutput(g, v)
	c.keepValues(old)
	outputs := slices.Clone(g.Outputs[:len(g.Outputs)-1])
	outputs[i] = v
	g.RemovePort(old)
	g.Outputs = outputs
}

// RemovePort removes an unread input, or an output, from the graph's list, and reports whether it did.
func (c *Change) RemovePort(g *onnx.Graph, v *onnx.Value) bool {
	c.keepGraph(g)
	c.keepValues(v)
	return g.RemovePort(v)
}

// Rename renames a value of a graph. The name must be free in the whole model.
func (c *Change) Rename(g *onnx.Graph, v *onnx.Value, name string) error {
	c.keepValues(v)
	return g.Rename(v, name)
}
