package rewrite

import (
	"fmt"
	"slices"

	"github.com/mojo-patch/mojo-patch/fused"
	"github.com/mojo-patch/mojo-patch/onnx"
)

// overloadsSince is the oldest onnxruntime that keeps the overloads of a function apart (1.26.0 and older run one for
// all of its calls, without an error; 1.27.0 and newer run the right ones). Kernels are not concerned.
const overloadsSince = "1.27"

// variants lists the fused ops that the model holds several definitions of, as overloads of one function.
func variants(m *onnx.Model) []string {
	count := map[string]int{}
	for _, f := range m.Functions {
		if f.Domain == fused.Domain {
			count[f.Name]++
		}
	}
	var names []string
	for name, n := range count {
		if n > 1 {
			names = append(names, opName(fused.Domain, name))
		}
	}
	slices.Sort(names)
	return names
}

// variantsText says what the variants mean for older runtimes; empty when there are none.
func (r *Report) variantsText() string {
	if len(r.Variants) == 0 {
		return ""
	}
	return fmt.Sprintf("variants           %v: where the kernels are not registered this model needs onnxruntime %s "+
		"or newer: older ones mix the definitions up\n", r.Variants, overloadsSince)
}
