package kernels

import (
	"fmt"
	"slices"
	"strings"

	"github.com/mojo-patch/mojo-patch/cmd/mojo-patch/cli"
	"github.com/mojo-patch/mojo-patch/cmd/mojo-patch/feeds"
	"github.com/mojo-patch/mojo-patch/cmd/mojo-patch/prober"
	"github.com/mojo-patch/mojo-patch/fused"
	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/reference/infer"
	"github.com/mojo-patch/mojo-patch/rewrite"
	"github.com/mojo-patch/mojo-patch/rewrite/registry"
)

// mostElements limits the input elements of a node that is tried, since its definition is evaluated on them.
const mostElements = 1 << 24

// neededKernel is a fused op with the attributes, types and shapes of nodes in a model.
type neededKernel struct {
	op    *fused.Op
	site  fused.Site
	nodes int
}

// neededKernels lists the distinct fused ops of a model or, if it was not patched yet, those that apply would make.
func neededKernels(a *cli.App, path string, inputs *feeds.InputFlags) ([]*neededKernel, error) {
	m, err := a.Read(path)
	if err != nil {
		return nil, err
	}
	defer m.Close()
	if !hasFused(m) {
		_, err := rewrite.Apply(m, rewrite.Request{AssumeAvailable: true, Verify: rewrite.VerifyOff, DrawMissing: true})
		if err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
	}
	if _, err := feeds.FixInputDims(m, inputs); err != nil {
		return nil, err
	}
	facts := infer.Analyze(m)
	var list []*neededKernel
	known := map[string]*neededKernel{}
	m.Graph.Walk(func(g *onnx.Graph) {
		for _, n := range g.Nodes {
			op := fused.Lookup(n.OpType)
			if n.Domain != fused.Domain || op == nil {
				continue
			}
			k := &neededKernel{op: op, site: fused.Site{Attributes: n.Attributes, Opset: prober.ProbeOpset}, nodes: 1}
			for _, v := range n.Inputs {
				shape, _ := facts.Shape(v, 0)
				k.site.Types, k.site.Dims = append(k.site.Types, facts.DataType(v)), append(k.site.Dims, shape)
			}
			for len(k.site.Types) < len(op.Inputs) { // omitted inputs
				k.site.Types, k.site.Dims = append(k.site.Types, onnx.Undefined), append(k.site.Dims, nil)
			}
			key := fmt.Sprint(op.Name, onnx.AttributesKey(n.Attributes), k.site.Types, k.site.Dims)
			if known[key] != nil {
				known[key].nodes++
				continue
			}
			known[key], list = k, append(list, k)
		}
	})
	return list, nil
}

func hasFused(m *onnx.Model) (found bool) {
	m.Graph.Walk(func(g *onnx.Graph) {
		found = found || slices.ContainsFunc(g.Nodes, func(n *onnx.Node) bool { return n.Domain == fused.Domain })
	})
	return found
}

// tryNeeded runs the kernels that a model needs on every device that has them.
func tryNeeded(needed []*neededKernel, onnxruntime, lib string) (rows []prober.KernelRow, missing error) {
	probers, missing := prober.NewProbers(onnxruntime, lib)
	defer probers.CloseAll()
	for _, n := range needed {
		for _, k := range append(registry.ScanAllKernels(), registry.StoredKernels()...) {
			if !slices.Contains(k.Ops, n.op.Name) {
				continue
			}
			p, reason := probers.Of(k.Device)
			r := prober.KernelRow{Kernel: k.ID, Op: n.op.Name, Device: k.Device, Status: prober.KernelUnknown, Forms: 1,
				Nodes: n.nodes, Reason: reason, Away: p == nil, Types: []string{}, Shapes: [][]int64{}}
			for i, t := range n.site.Types {
				name := t.String()
				if t == onnx.Undefined {
					name = ""
				}
				r.Types = append(r.Types, name)
				r.Shapes = append(r.Shapes, append([]int64{}, n.site.Dims[i]...))
			}
			tryOne(&r, p, n)
			rows = append(rows, r)
		}
	}
	return rows, missing
}

// tryNeeded fills in the row's status, as far as the kernel can be tried.
func tryOne(r *prober.KernelRow, p *prober.Prober, n *neededKernel) {
	elements := int64(0)
	for i, t := range n.site.Types {
		if t == onnx.Undefined {
			continue
		}
		if n.site.Dims[i] == nil {
			r.Reason = fmt.Sprintf("the shape of input %s is not known", n.op.Inputs[i].Name)
			return
		}
		x := onnx.Tensor{DataType: t, Dims: n.site.Dims[i]}
		elements += x.Len()
	}
	switch err := n.op.Supports(n.site); {
	case err != nil:
		r.Status, r.Reason, r.Away = prober.KernelFails, err.Error(), false
	case p == nil:
	case p.Lacks(n.op) != "":
		r.Reason = p.Lacks(n.op)
	case n.op.Name == fused.QMoEName: // its definition leaves the rounding between its products open
		r.Reason = "its definition does not fix how it rounds: it is not tried"
	case elements > mostElements:
		r.Reason = fmt.Sprintf("its inputs have %d elements, more than the limit of %d", elements, mostElements)
	default:
		rel, err := p.TryForms(n.op, []fused.Site{n.site}, false)
		if err != nil {
			r.Status, r.Reason = prober.KernelFails, err.Error()
			return
		}
		r.Status, r.Reason, r.MaxRel = prober.KernelRuns, "", &rel
	}
}

// inputsText formats types with shapes, such as "float32[2 6 64], none, float32[64]", without omitted inputs at the
// end.
func inputsText(types []string, shapes [][]int64) string {
	var list []string
	last := 0
	for i, t := range types {
		if t == "" {
			list = append(list, "none")
			continue
		}
		list, last = append(list, t+fmt.Sprint(shapes[i])), i+1
	}
	return strings.Join(list[:last], ", ")
}
