// Package products has the ops that sum products or windows of elements: matrices, Einsum, convolutions and pools.
package products

import "github.com/mojo-patch/mojo-patch/reference/internal/op"

// Tables map the op types of the package, as domain:type beyond the standard, to their implementations.
var Tables = []map[string]op.Def{convOps, einsumOps, matmulOps, poolOps, resizeOps}
