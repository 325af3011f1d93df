// Package elementwise has the ops that compute each element from the same element of their inputs, and the casts.
package elementwise

import "github.com/mojo-patch/mojo-patch/reference/internal/op"

// Tables map the op types of the package, as domain:type beyond the standard, to their implementations.
var Tables = []map[string]op.Def{activationOps, binaryOps, castOps, logicOps, unaryOps}
