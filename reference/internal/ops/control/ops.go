// Package control has the ops that run subgraphs, and the ops on sequences.
package control

import "github.com/mojo-patch/mojo-patch/reference/internal/op"

// Tables map the op types of the package, as domain:type beyond the standard, to their implementations.
var Tables = []map[string]op.Def{controlOps, sequenceOps}
