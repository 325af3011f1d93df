// Package quantized has the ops on quantized elements, and mixtures of experts, whose weights may be quantized.
package quantized

import "github.com/mojo-patch/mojo-patch/reference/internal/op"

// Tables map the op types of the package, as domain:type beyond the standard, to their implementations.
var Tables = []map[string]op.Def{blockOps, mixtureOps, quantOps}
