// Package attention has the standard's and onnxruntime's attention, rotary embeddings and linear attention.
package attention

import "github.com/mojo-patch/mojo-patch/reference/internal/op"

// Tables map the op types of the package, as domain:type beyond the standard, to their implementations.
var Tables = []map[string]op.Def{attentionOps, linearOps}
