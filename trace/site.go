package trace

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/mojo-patch/mojo-patch/fused"
	"github.com/mojo-patch/mojo-patch/onnx"
)

// Site is a fused op of a model and its place.
type Site struct {
	Node  *onnx.Node
	Block Block
}

// Filter selects sites by layer and op. An empty filter selects all.
type Filter []rule

type rule struct {
	layer int // -1 for any
	op    string
}

// ParseFilter parses rules "LAYER:OP" separated by semicolons. A site is selected if any rule matches. LAYER is a
// number, OP the name of a fused op, and * matches any. An error names the rule that is invalid.
func ParseFilter(text string) (Filter, error) {
	var f Filter
	for _, entry := range strings.Split(text, ";") {
		layer, op, found := strings.Cut(strings.TrimSpace(entry), ":")
		r := rule{layer: -1, op: op}
		if layer != "*" {
			n, err := strconv.Atoi(layer)
			if err != nil || n < 0 {
				found = false
			}
			r.layer = n
		}
		if !found {
			return nil, fmt.Errorf("%q: write LAYER:OP, such as 3:MoE, *:Attention or 0:*", entry)
		}
		if op != "*" && fused.Lookup(op) == nil {
			return nil, fmt.Errorf("%q: %q is not a fused op; mojo-patch kernels lists the fused ops", entry, op)
		}
		f = append(f, r)
	}
	return f, nil
}

func (f Filter) takes(s Site) bool {
	return len(f) == 0 || slices.ContainsFunc(f, func(r rule) bool {
		return (r.layer < 0 || r.layer == s.Block.Layer) && (r.op == "*" || r.op == s.Node.OpType)
	})
}

// Sites lists the fused ops of the main graph that the filter selects, in graph order.
func Sites(m *onnx.Model, f Filter) []Site {
	blocks := Blocks(m)
	var list []Site
	for _, n := range m.Graph.Nodes {
		if s := (Site{n, blocks[n]}); n.Domain == fused.Domain && f.takes(s) {
			list = append(list, s)
		}
	}
	return list
}
