package convert

import (
	"fmt"

	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/reference"
	"github.com/mojo-patch/mojo-patch/reference/infer"
)

// floatShapes are the ops whose floating-point inputs say what shape the output has.
var floatShapes = map[string]bool{"Range": true, "Resize": true}

// fold puts an initializer in the place of every value that is known: integers and booleans, which shapes are computed
// with, and the floating-point numbers that an op takes a shape from. Other numbers stay computed, as the patterns look
// for them. Outputs of graphs stay, too, and what functions compute in themselves.
func fold(m *onnx.Model, facts *infer.Facts) error {
	made := map[string]*onnx.Value{}
	var err error
	eachValue(m, func(v *onnx.Value) {
		if err != nil || v.Producer == nil || v.Producer.Is("Constant") || len(v.Uses()) == 0 {
			return
		}
		t, ok := facts.Constant(v)
		if !ok || t.S != nil {
			return
		}
		for _, u := range append([]onnx.Use(nil), v.Uses()...) {
			if t.F != nil && !(floatShapes[u.Node.OpType] && onnx.IsStandardDomain(u.Node.Domain)) {
				continue
			}
			c, e := constantOf(m, made, v.Name, t)
			if e != nil {
				err = fmt.Errorf("value %q: %w", v.Name, e)
				return
			}
			u.Node.SetInput(u.Index, c)
		}
	})
	return err
}

// constantOf makes an initializer of the main graph, or gives the equal one.
func constantOf(m *onnx.Model, made map[string]*onnx.Value, name string, t *reference.Tensor) (*onnx.Value, error) {
	c, err := t.ToONNX(name)
	if err != nil {
		return nil, err
	}
	b, err := c.Bytes()
	if err != nil {
		return nil, err
	}
	key := fmt.Sprintf("%v%v%x", c.DataType, c.Dims, b)
	if made[key] == nil {
		made[key] = m.Graph.AddInitializer(c)
	}
	return made[key], nil
}
