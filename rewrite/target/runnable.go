package target

import (
	"fmt"
	"slices"

	"github.com/mojo-patch/mojo-patch/fused"
	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/ort/kernels"
	"github.com/mojo-patch/mojo-patch/reference/infer"
	"github.com/mojo-patch/mojo-patch/rewrite/convert"
)

// refusedBy returns the versions without a kernel among those that have to run the result.
func (t *Target) refusedBy(domain, op string, opset int64, types []onnx.DataType) (versions uint64, why error) {
	if t.only == nil {
		return refusedBy(domain, op, opset, types)
	}
	if err := t.only.Refused(kernels.CPU, domain, op, opset, types); err != nil {
		return 1, fmt.Errorf("onnxruntime %s: %w", t.only.Name, err)
	}
	return 0, nil
}

// refusedBy returns the versions of onnxruntime that have no CPU kernel for an op in a model of this opset, as bits in
// the order of the table, and the newest one's reason. Versions that cannot open a model of the opset do not count.
func refusedBy(domain, op string, opset int64, types []onnx.DataType) (versions uint64, why error) {
	for i, v := range kernels.Versions(kernels.CPU) {
		if onnx.IsStandardDomain(domain) && opset > v.Opset {
			continue
		}
		if err := v.Refused(kernels.CPU, domain, op, opset, types); err != nil {
			versions |= 1 << i
			why = fmt.Errorf("onnxruntime %s: %w", v.Name, err)
		}
	}
	return versions, why
}

// Raisable returns the newest opset, up to to, at which onnxruntime's CPU provider still runs all nodes that it runs
// now, and why it is not to. It is at least the model's opset.
func Raisable(m *onnx.Model, facts *infer.Facts, to int64) (opset int64, limit error) {
	type form struct {
		node  *onnx.Node
		from  int64
		types []onnx.DataType
	}
	var forms []form
	seen := map[string]bool{}
	add := func(g *onnx.Graph, from int64) {
		g.Walk(func(g *onnx.Graph) {
			for _, n := range g.Nodes {
				if !onnx.IsStandardDomain(n.Domain) || m.Function(n.Domain, n.OpType, n.Overload) != nil {
					continue
				}
				f := form{n, from, typesOf(n, facts)}
				if key := fmt.Sprint(n.OpType, from, f.types); !seen[key] {
					seen[key] = true
					forms = append(forms, f)
				}
			}
		})
	}
	opset = m.Opset("")
	add(m.Graph, opset)
	for _, f := range m.Functions {
		from := f.Opset("")
		if from == 0 {
			from = opset
		}
		add(f.Body, from)
	}
	for at := to; at > opset; at-- {
		lost := false
		for _, f := range forms {
			before, _ := refusedBy(f.node.Domain, f.node.OpType, f.from, f.types)
			after, why := refusedBy(f.node.Domain, f.node.OpType, at, f.types)
			if lost = after&^before != 0; lost {
				limit = fmt.Errorf("node %q in a model of opset %d: %w", f.node.Label(), at, why)
				break
			}
		}
		if !lost {
			return at, limit
		}
	}
	return opset, limit
}

func typesOf(n *onnx.Node, facts *infer.Facts) []onnx.DataType {
	types := make([]onnx.DataType, len(n.Inputs))
	for i, v := range n.Inputs {
		types[i] = facts.DataType(v)
	}
	return types
}

// has returns why a model of this opset cannot have an op, or why the target's runtime has no kernel for it in any
// types.
func (t *Target) has(n *onnx.Node, opset int64) error {
	if !onnx.IsStandardDomain(n.Domain) {
		opset = 1
	} else if since := convert.Since(n.OpType); since > opset {
		return fmt.Errorf("%s is an op of opset %d, the model has %d", n.OpType, since, opset)
	}
	if !t.OnCPU {
		return nil
	}
	if OnlyOnCUDA(n) {
		return t.refusedByCUDA(n, opset)
	}
	_, why := t.refusedBy(n.Domain, n.OpType, opset, nil)
	return why
}

// OnlyOnCUDA reports whether onnxruntime has kernels for a node's op on CUDA, and none on the CPU.
func OnlyOnCUDA(n *onnx.Node) bool { return n.Domain == onnx.Microsoft && n.OpType == "PagedAttention" }

// refusedByCUDA returns why the newest version whose CUDA kernels are known, or the only one, has no kernel for a node.
func (t *Target) refusedByCUDA(n *onnx.Node, opset int64) error {
	known := kernels.Versions(kernels.CUDA)
	at := len(known) - 1
	if t.only != nil {
		if at = slices.IndexFunc(known, func(v kernels.Version) bool { return v.Name == t.only.Name }); at < 0 {
			return fmt.Errorf("%s runs only on CUDA, and the CUDA kernels of onnxruntime %s are not known", n.OpType,
				t.only.Name)
		}
	}
	if err := known[at].Refused(kernels.CUDA, n.Domain, n.OpType, opset, nil); err != nil {
		return fmt.Errorf("onnxruntime %s: %w", known[at].Name, err)
	}
	return nil
}

// Lacks returns why some version of onnxruntime's CPU provider that runs all others does not run the nodes that replace
// them. It returns nil if there is no such version.
func (t *Target) Lacks(nodes []*onnx.Node, facts *infer.Facts, others []*onnx.Node, of *infer.Facts) error {
	missing := func(nodes []*onnx.Node, facts *infer.Facts) (versions uint64, why error) {
		for _, n := range nodes {
			if n.Domain == fused.Domain {
				continue // it has a definition
			}
			opset := facts.Opset()
			if !onnx.IsStandardDomain(n.Domain) {
				opset = 1
			}
			refused, err := t.refusedBy(n.Domain, n.OpType, opset, typesOf(n, facts))
			if versions |= refused; err != nil {
				why = err
			}
		}
		return versions, why
	}
	lacking, why := missing(nodes, facts)
	if lacking == 0 {
		return nil
	}
	if before, _ := missing(others, of); lacking&^before == 0 {
		return nil
	}
	return why
}
