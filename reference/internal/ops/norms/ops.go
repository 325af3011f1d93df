// Package norms has the ops that reduce along axes: sums, softmaxes and norms.
package norms

import "github.com/mojo-patch/mojo-patch/reference/internal/op"

// Tables map the op types of the package, as domain:type beyond the standard, to their implementations.
var Tables = []map[string]op.Def{normOps, reduceOps}
