package rewrite

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/mojo-patch/mojo-patch/internal/english"
	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/rewrite/convert"
)

// findForeign counts the nodes that are no ops of the standard and have no definition in the model, for a target that
// is for runtimes of the standard, and drops the import of onnxruntime's domain where no node is of it any more.
func (p *Plan) findForeign() error {
	a := p.applier
	if t := a.request.Target; t == nil || !t.Standard {
		return nil
	}
	m, used := a.Model, map[string]bool{}
	for _, g := range m.Graphs() {
		for _, n := range g.Nodes {
			used[n.Domain] = true
			if m.Function(n.Domain, n.OpType, n.Overload) != nil ||
				onnx.IsStandardDomain(n.Domain) && convert.Since(n.OpType) > 0 {
				continue
			}
			if a.report.Foreign == nil {
				a.report.Foreign = map[string]int{}
			}
			a.report.Foreign[onnx.OpName(n.Domain, n.OpType)]++
		}
	}
	m.Opsets = slices.DeleteFunc(m.Opsets, func(o onnx.Opset) bool {
		return o.Domain == onnx.Microsoft && !used[onnx.Microsoft]
	})
	return nil
}

// foreignText says which ops only some runtimes have.
func (r *Report) foreignText() string {
	if len(r.Foreign) == 0 {
		return ""
	}
	var list []string
	count := 0
	for _, op := range slices.Sorted(maps.Keys(r.Foreign)) {
		list = append(list, fmt.Sprintf("%d %s", r.Foreign[op], op))
		count += r.Foreign[op]
	}
	return fmt.Sprintf("%-18s %s not of the standard, and only runtimes with these ops run the model: %s\n",
		"not portable", english.Counted(count, "node"), strings.Join(list, ", "))
}
