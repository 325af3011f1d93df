// Package shapes has the ops that move elements, or make them from their positions.
package shapes

import "github.com/mojo-patch/mojo-patch/reference/internal/op"

// Tables map the op types of the package, as domain:type beyond the standard, to their implementations.
var Tables = []map[string]op.Def{constantOps, gatherOps, scatterOps, shapeOps, sliceOps, sortOps, spaceOps}
