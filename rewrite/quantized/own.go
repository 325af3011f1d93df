package quantized

import (
	"fmt"

	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/reference/infer"
	"github.com/mojo-patch/mojo-patch/rewrite/prove"
)

// Own replaces other tools' quantized products by mojo's ops. kept is the number of weights that these read.
func (a *View) Own() (r *ProductsReport, kept int, err error) {
	r = &ProductsReport{Emits: map[string]int{}, Open: map[string]int{}}
	var weights []*Weight
	from := map[*Weight]string{}
	seen := map[*onnx.Value]bool{}
	for _, s := range a.Scopes() {
		for _, n := range s.Graph.Nodes {
			codes := storedCodes(n)
			if codes == nil || seen[codes] {
				continue
			}
			seen[codes] = true
			name := onnx.OpName(n.Domain, n.OpType)
			w, err := otherWeight(n, codes)
			if err == nil {
				err = readAlike(n, codes)
			}
			if err != nil {
				r.Open[name+": "+err.Error()]++
				continue
			}
			weights, from[w] = append(weights, w), name
		}
	}
	mine, err := a.takeMixtures(r)
	if err != nil {
		return nil, 0, err
	}
	var facts *infer.Facts
	if len(mine) > 0 {
		facts = a.Facts
	}
	mixtures := map[*Weight]*expertsSite{}
	for _, w := range mine {
		weights, mixtures[w] = append(weights, w), nil
	}
	known := map[*onnx.Value]bool{}
	for _, e := range a.experts {
		facts = a.Facts
		for _, w := range e.weights() {
			if !known[w.Value] { // two sites may share an initializer
				known[w.Value] = true
				weights, mixtures[w] = append(weights, w), e
			}
		}
	}
	if len(weights) == 0 {
		return r, 0, nil
	}
	q, err := newQuantizer(a.Run, facts, a.activations).apply(weights)
	if err != nil {
		return nil, 0, err
	}
	for w, err := range q.Refuse {
		if _, is := mixtures[w]; is { // they passed before
			return nil, 0, fmt.Errorf("the experts of %q cannot stay quantized: %w", w.Value.Name, err)
		}
		r.Open[from[w]+": "+err.Error()]++
	}
	for _, w := range q.Kept {
		if e, is := mixtures[w]; is {
			if e != nil && w == e.gateUpRows {
				r.Emits["mojo.QMoE instead of "+e.from] += len(w.nodes)
			}
			continue
		}
		for _, s := range w.nodes {
			to := "mojo.Linear"
			if s.gathers() {
				to = "mojo.Embedding"
			}
			r.Emits[to+" instead of "+from[w]]++
		}
	}
	r.Check = &prove.CheckReport{MaxRel: q.Definition, Structural: q.Structural}
	if q.Kernels > 0 {
		r.Check.Kernel = &q.Kernel
	}
	return r, len(q.Kept), nil
}

// storedCodes returns the initializer with a node's quantized elements, or nil for other nodes.
func storedCodes(n *onnx.Node) *onnx.Value {
	v := (*onnx.Value)(nil)
	switch {
	case n.Domain == onnx.Microsoft && n.OpType == "MatMulNBits":
		v = n.Input(1)
	case n.Domain == onnx.Microsoft && n.OpType == "GatherBlockQuantized", n.Is("DequantizeLinear"):
		v = n.Input(0)
	}
	if v == nil || !v.IsConstant() || v.Producer != nil {
		return nil
	}
	return v
}

// readAlike returns an error if another node reads the same elements with other scales.
func readAlike(n *onnx.Node, codes *onnx.Value) error {
	for _, u := range codes.Uses() {
		if o := u.Node; o.Domain != n.Domain || o.OpType != n.OpType || o.Input(2) != n.Input(2) ||
			n.OpType == "DequantizeLinear" && o.Input(1) != n.Input(1) ||
			n.OpType == "MatMulNBits" && o.Input(3) != n.Input(3) ||
			onnx.AttributesKey(o.Attributes) != onnx.AttributesKey(n.Attributes) {
			return fmt.Errorf("node %q (%s) reads the same elements in another way", o.Label(),
				onnx.OpName(o.Domain, o.OpType))
		}
	}
	return nil
}
