package rewrite

import (
	"fmt"
	"strings"
)

// What the report names as the kernel of a site whose replacement has no kernel of this toolkit.
const (
	byFunction    = "function"
	byStandard    = "standard"
	byOnnxruntime = "onnxruntime"
)

// withoutKernel says what each of them is.
var withoutKernel = []struct{ id, what string }{
	{byFunction, "a function of the pattern file, which the model carries"},
	{byStandard, "ops of the standard"},
	{byOnnxruntime, "ops that onnxruntime alone has (com.microsoft)"},
}

// microsoft is the domain of the ops that only onnxruntime has.
const microsoft = "com.microsoft"

// writeTargets writes how many sites became something that is no kernel of this toolkit.
func (r *Report) writeTargets(b *strings.Builder) {
	for _, k := range withoutKernel {
		n := 0
		for _, s := range r.Sites {
			if s.Status == Fused && s.Kernel == k.id {
				n++
			}
		}
		if n > 0 {
			fmt.Fprintf(b, "%-18s %s; %s\n", k.id, plural(n, "site"), k.what)
		}
	}
}
