package convert

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/reference/infer"
)

// Dims returns symbolic dimensions of the model's inputs their sizes, wherever the types of the main graph and its
// subgraphs name them, in expressions ("past + 1") too. What follows from the sizes is then computed, as Shapes says. A
// name that no input has and a negative size are errors, and the model is then as it was.
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
			errs = append(errs, fmt.Errorf("no input has a dimension named %q: the names are %q", name, names))
		}
	}
	return errors.Join(errs...)
}

// bind puts the sizes into the types that are declared in the main graph and its subgraphs. (Functions have names of
// their own.)
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

// eachValue calls f for the inputs of the main graph and its subgraphs, and for what their nodes write.
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
