// Package recurrent has the recurrent layers: RNN, GRU and LSTM.
package recurrent

import "github.com/mojo-patch/mojo-patch/reference/internal/op"

// Tables map the op types of the package, as domain:type beyond the standard, to their implementations.
var Tables = []map[string]op.Def{recurrentOps}
