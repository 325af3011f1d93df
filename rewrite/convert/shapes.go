package convert

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/reference"
	"github.com/mojo-patch/mojo-patch/reference/infer"
	"github.com/mojo-patch/mojo-patch/rewrite/edit"
)

// Shapes fixes the dimensions of the named inputs of the model, for compilers that do not support symbolic ones. A
// symbolic dimension gets its size in all inputs that use its name.
//
// Shapes then propagates the sizes: it replaces an If whose condition is now constant by the taken branch, turns
// integers and booleans computed from the shapes into initializers, removes unread values, and declares every value
// with its known shape. The results stay the same. Shapes that depend on data stay; Dynamic lists them.
//
// Shapes returns a joined error for inputs that the model lacks, wrong ranks, and sizes that contradict a fixed size or
// the size of the same name elsewhere. The model is then unchanged.
func Shapes(m *onnx.Model, shapes map[string][]int64) error {
	sizes, err := sizesOf(m, shapes)
	if err != nil {
		return err
	}
	bind(m, sizes)
	for _, v := range m.Graph.Inputs {
		if shape, ok := shapes[v.Name]; ok {
			t, _ := v.Type()
			t.HasShape, t.Dims = true, fixed(shape)
			new(edit.Change).SetType(v, t)
		}
	}
	return settle(m)
}

// sizesOf checks the shapes and returns the sizes of the symbolic dimensions that they fix.
func sizesOf(m *onnx.Model, shapes map[string][]int64) (map[string]int64, error) {
	inputs := map[string]*onnx.Value{}
	for _, v := range m.Graph.Inputs {
		inputs[v.Name] = v
	}
	sizes := map[string]int64{}
	from := map[string]string{} // the input that set a size
	var errs []error
	fail := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	for _, name := range slices.Sorted(maps.Keys(shapes)) {
		v, shape := inputs[name], shapes[name]
		if v == nil {
			fail("the model has no input %q; its inputs are %q", name, slices.Sorted(maps.Keys(inputs)))
			continue
		}
		t, ok := v.Type()
		switch {
		case !ok:
			fail("input %q is not a tensor and has no shape to fix", name)
		case t.HasShape && len(t.Dims) != len(shape):
			fail("input %q is %v, of rank %d: %v has %d dimensions", name, t, len(t.Dims), shape, len(shape))
		case slices.ContainsFunc(shape, func(n int64) bool { return n < 0 }):
			fail("input %q cannot have the shape %v", name, shape)
		default:
			for axis, d := range t.Dims {
				n := shape[axis]
				have, bound := sizes[d.Param]
				switch {
				case d.Value >= 0 && d.Value != n:
					fail("dimension %d of input %q is %d: it cannot be %d", axis, name, d.Value, n)
				case d.Value < 0 && d.Param != "" && bound && have != n:
					fail("dimension %d of input %q, %q, cannot be %d: it is %d in input %q",
						axis, name, d.Param, n, have, from[d.Param])
				case d.Value < 0 && d.Param != "" && !bound:
					sizes[d.Param], from[d.Param] = n, name
				}
			}
		}
	}
	return sizes, errors.Join(append(errs, contradictions(inputs, shapes, sizes)...)...)
}

// contradictions returns an error for each fixed dimension, or expression of other names, that contradicts the given
// size.
func contradictions(inputs map[string]*onnx.Value, shapes map[string][]int64, sizes map[string]int64) (errs []error) {
	for _, name := range slices.Sorted(maps.Keys(shapes)) {
		if inputs[name] == nil {
			continue
		}
		t, _ := inputs[name].Type()
		if len(t.Dims) != len(shapes[name]) {
			continue
		}
		for axis, d := range t.Dims {
			if d.Value >= 0 || d.Param == "" {
				continue
			}
			others := maps.Clone(sizes)
			delete(others, d.Param)
			n := shapes[name][axis]
			if bound := infer.BindDim(d.Param, others).Value; bound >= 0 && bound != n {
				errs = append(errs, fmt.Errorf("dimension %d of input %q, %q, is %d: it cannot be %d", axis, name,
					d.Param, bound, n))
			}
		}
	}
	return errs
}

func fixed(shape []int64) []onnx.Dim {
	dims := make([]onnx.Dim, len(shape))
	for i, n := range shape {
		dims[i] = onnx.Dim{Value: n}
	}
	return dims
}

// settle propagates the shapes of the inputs.
func settle(m *onnx.Model) error {
	c := new(edit.Change)
	facts, err := inlineBranches(c, m)
	if err != nil {
		return err
	}
	if err := fold(c, m, facts); err != nil {
		return err
	}
	if err := c.RemoveUnread(m.Graph); err != nil {
		return err
	}
	declare(c, m, facts)
	return nil
}

// inlineBranches replaces every If whose condition is constant by the taken branch, and returns the facts afterwards.
func inlineBranches(c *edit.Change, m *onnx.Model) (*infer.Facts, error) {
	for {
		facts := infer.Analyze(m)
		count, err := c.InlineBranches(m, func(n *onnx.Node) *onnx.Graph { return TakenBranch(n, facts) })
		if err != nil || count == 0 {
			return facts, err
		}
	}
}

// TakenBranch returns the branch taken by an If whose condition is constant according to the facts, or nil for any
// other node.
func TakenBranch(n *onnx.Node, facts *infer.Facts) *onnx.Graph {
	if !n.Is("If") {
		return nil
	}
	c, ok := facts.Constant(n.Input(0))
	if !ok || len(c.I) != 1 {
		return nil
	}
	name := "then_branch"
	if c.I[0] == 0 {
		name = "else_branch"
	}
	if a := n.Attr(name); a != nil {
		return a.Graph
	}
	return nil
}

// floatShapes are the ops whose floating-point inputs determine the shape of the output.
var floatShapes = map[string]bool{"Range": true, "Resize": true}

// fold replaces every known value by an initializer: integers and booleans, which shapes are computed from, and the
// floating-point numbers that determine a shape. Other numbers stay computed, because the patterns look for them.
// Outputs of graphs and values inside functions stay too.
func fold(edit *edit.Change, m *onnx.Model, facts *infer.Facts) error {
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
			c, e := constantOf(edit, m, made, v.Name, t)
			if e != nil {
				err = fmt.Errorf("value %q: %w", v.Name, e)
				return
			}
			edit.SetInput(u.Node, u.Index, c)
		}
	})
	return err
}

// constantOf returns an initializer of the main graph with these elements, and reuses an equal one.
func constantOf(edit *edit.Change, m *onnx.Model, made map[string]*onnx.Value, name string,
	t *reference.Tensor) (*onnx.Value, error) {
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
		made[key] = edit.AddInitializer(m.Graph, c)
	}
	return made[key], nil
}

// declare declares every tensor of the main graph and its subgraphs with its known type. If a dimension is unknown, its
// old declaration stays.
func declare(c *edit.Change, m *onnx.Model, facts *infer.Facts) {
	eachValue(m, func(v *onnx.Value) {
		t, ok := facts.Type(v)
		if !ok {
			return
		}
		if old, ok := v.Type(); ok && old.HasShape && len(old.Dims) == len(t.Dims) {
			for i, d := range old.Dims {
				if t.Dims[i].Value < 0 {
					t.Dims[i] = d
				}
			}
		}
		c.SetType(v, t)
	})
}

// Dynamic lists the values of the main graph and its subgraphs that are not declared as tensors of known shape, in node
// order. After Shapes with all inputs, these are the values whose shape depends on data and the values that are not
// tensors.
func Dynamic(m *onnx.Model) []string {
	var names []string
	eachValue(m, func(v *onnx.Value) {
		t, ok := v.Type()
		known := ok && t.HasShape
		for _, d := range t.Dims {
			known = known && d.Value >= 0
		}
		if !known {
			names = append(names, v.Name)
		}
	})
	return names
}

// Dims fixes symbolic dimensions of the model's inputs by name. It replaces the names wherever the types of the main
// graph and its subgraphs use them, also in expressions ("past + 1"), and then propagates the sizes like Shapes. It
// returns an error for a negative size and for a name that no input has. The model is then unchanged.
func Dims(m *onnx.Model, sizes map[string]int64) error {
	if err := checkSizes(m, sizes); err != nil {
		return err
	}
	bind(m, sizes)
	return settle(m)
}

func checkSizes(m *onnx.Model, sizes map[string]int64) error {
	named := map[string]bool{}
	for _, v := range m.Graph.Inputs {
		t, _ := v.Type()
		for _, d := range t.Dims {
			if d.Value < 0 && d.Param != "" {
				named[d.Param] = true
			}
		}
	}
	names := slices.Sorted(maps.Keys(named))
	var errs []error
	for _, name := range slices.Sorted(maps.Keys(sizes)) {
		switch {
		case sizes[name] < 0:
			errs = append(errs, fmt.Errorf("dimension %q cannot be of size %d", name, sizes[name]))
		case !named[name]:
			errs = append(errs, fmt.Errorf("no input has a dimension %q; the names are %q", name, names))
		}
	}
	return errors.Join(errs...)
}

// bind replaces the names of the dimensions by sizes in the types declared in the main graph and its subgraphs.
// (Functions have their own names.)
func bind(m *onnx.Model, sizes map[string]int64) {
	eachValue(m, func(v *onnx.Value) {
		t, ok := v.Type()
		changed := false
		for i, d := range t.Dims {
			if d.Value >= 0 || d.Param == "" {
				continue
			}
			t.Dims[i] = infer.BindDim(d.Param, sizes)
			changed = changed || t.Dims[i] != d
		}
		if ok && changed {
			v.SetType(t)
		}
	})
}

// eachValue calls f for the inputs of the main graph and its subgraphs, and for the outputs of their nodes.
func eachValue(m *onnx.Model, f func(*onnx.Value)) {
	m.Graph.Walk(func(g *onnx.Graph) {
		for _, v := range g.Inputs {
			f(v)
		}
		for _, n := range g.Nodes {
			for _, v := range n.Outputs {
				if v != nil {
					f(v)
				}
			}
		}
	})
}
