package patterns

import (
	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/patterns/fit"
)

var fitGateForm = &goForm{name: "fit:GLU", op: "GLU", joins: true, find: findFittedGates}

func findFittedGates(f *finder, d *goForm) []*Match {
	gates, misses := fit.Gates(f.view, func(n *onnx.Node) bool { return f.claimed[n] })
	f.near = append(f.near, misses...)
	var found []*Match
	for _, n := range gates {
		if f.written[n.Y] {
			continue
		}
		r := f.newReplacement(d, n.Y.Producer)
		out := r.fused([]*onnx.Value{r.input(NoRole, "gate", n.Gate), r.input(NoRole, "up", n.Up)}, []string{"y"},
			n.Attributes()...)
		r.output(n.Y, out[0])
		found = append(found, r.match(n.Nodes))
	}
	return found
}
