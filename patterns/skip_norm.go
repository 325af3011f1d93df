package patterns

import (
	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/patterns/reason"
)

// skipNormForm finds onnxruntime's op for a sum and its norm, whose fourth output is the sum.
var skipNormForm = &goForm{name: "AddRMSNorm", op: "AddRMSNorm", find: findSkipNorms}

// The outputs of SkipSimplifiedLayerNormalization and of SkipLayerNormalization.
const (
	skipNormed = iota
	skipMean
	skipInverse
	skipSum
)

func findSkipNorms(f *finder, d *goForm) []*Match {
	var found []*Match
	for _, n := range f.view.Graph.Nodes {
		if n.Domain != onnx.Microsoft {
			continue
		}
		switch n.OpType {
		case "SkipSimplifiedLayerNormalization":
			if m := f.skipNorm(d, n); m != nil {
				found = append(found, m)
			}
		case "SkipLayerNormalization", "EmbedLayerNormalization", "SkipGroupNorm", "GroupNorm":
			f.note("LayerNorm", n, reason.New(reason.Other, n, "%s is onnxruntime's own op, and there is no fused op "+
				"for it: it stays", n.OpType))
		}
	}
	return found
}

// skipNorm has the fused op compute the norm of X + skip + bias, and the sum where it is read.
func (f *finder) skipNorm(d *goForm, n *onnx.Node) *Match {
	left := func(format string, args ...any) *Match {
		f.note(d.name, n, reason.New(reason.Other, n, format, args...))
		return nil
	}
	x, skip, scale, bias := n.Input(0), n.Input(1), n.Input(2), n.Input(3)
	y, sum := n.OutputValue(skipNormed), n.OutputValue(skipSum)
	read := func(v *onnx.Value) bool { return v != nil && (v.IsOutput() || len(v.Uses()) > 0) }
	switch {
	case x == nil || skip == nil || scale == nil || y == nil:
		return left("%s lacks an input or its first output", n.OpType)
	case read(n.OutputValue(skipMean)) || read(n.OutputValue(skipInverse)):
		return left("the mean or the deviation of %s is read, which the op does not give", n.OpType)
	case !f.view.Facts.SameShape(x, skip):
		return left("the inputs of %s are not known to have one shape: skip may be broadcast", n.OpType)
	}
	epsilon := float32(1e-12)
	if a := n.Attr("epsilon"); a != nil {
		epsilon = a.Float
	}
	r := f.newReplacement(d, n)
	residual := r.input(NoRole, "residual", skip)
	if bias != nil {
		residual = r.node("Add", "biased", []*onnx.Value{residual, r.input(NoRole, "bias", bias)})
	}
	outputs := []string{"y", ""}
	if read(sum) {
		outputs[1] = "sum"
	}
	out := r.fused([]*onnx.Value{r.input(NoRole, "x", x), residual, r.input(NoRole, "scale", scale)}, outputs,
		onnx.IntAttr("axis", -1), onnx.FloatAttr("epsilon", epsilon), onnx.IntAttr("scale_after_cast", 0))
	r.output(y, out[0])
	if read(sum) {
		r.output(sum, out[1])
	}
	return r.match([]*onnx.Node{n})
}
