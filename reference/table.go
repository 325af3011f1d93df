package reference

import (
	"maps"
	"slices"

	"github.com/mojo-patch/mojo-patch/reference/internal/op"
	"github.com/mojo-patch/mojo-patch/reference/internal/ops/attention"
	"github.com/mojo-patch/mojo-patch/reference/internal/ops/control"
	"github.com/mojo-patch/mojo-patch/reference/internal/ops/elementwise"
	"github.com/mojo-patch/mojo-patch/reference/internal/ops/norms"
	"github.com/mojo-patch/mojo-patch/reference/internal/ops/products"
	"github.com/mojo-patch/mojo-patch/reference/internal/ops/quantized"
	"github.com/mojo-patch/mojo-patch/reference/internal/ops/recurrent"
	"github.com/mojo-patch/mojo-patch/reference/internal/ops/shapes"
)

// table maps the standard's op types, and domain:type of others, to their implementation. The ops check the opset
// themselves if versions differ.
var table = tableOf(slices.Concat(attention.Tables, control.Tables, elementwise.Tables, norms.Tables, products.Tables,
	quantized.Tables, recurrent.Tables, shapes.Tables))

func tableOf(lists []map[string]op.Def) map[string]op.Def {
	all := map[string]op.Def{}
	for _, ops := range lists {
		maps.Copy(all, ops)
	}
	return all
}
