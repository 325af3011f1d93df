package spellings

import (
	"fmt"
	"maps"
	"strings"

	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/reference"
)

// sameTalk is Same for models with caches of different forms: both read the same tokens, first without a past, then
// after the past that each computed.
func sameTalk(k Kind, m, rewritten *onnx.Model) error {
	for _, exact := range []bool{true, false} {
		pasts, past := [2]map[string]*reference.Tensor{{}, {}}, 0
		for _, queries := range []int{3, 1, 2} {
			var y [2]*reference.Tensor
			var tokens map[string]*reference.Tensor
			for i, m := range []*onnx.Model{m, rewritten} {
				given := maps.Clone(pasts[i])
				for name, x := range tokens {
					if !strings.HasPrefix(name, "past") {
						given[name] = x
					}
				}
				in, err := seeded(m, 1, map[string]int{"batch": 2, "queries": queries, "past": past}, given)
				if err != nil {
					return err
				}
				tokens = in
				out, err := run(m, reference.Options{Exact: exact}, in)
				if err != nil {
					return fmt.Errorf("%d tokens behind %d: %w", queries, past, err)
				}
				y[i], pasts[i] = out[m.Graph.Outputs[0].Name], map[string]*reference.Tensor{}
				presents := m.Graph.Outputs[1:]
				for _, v := range m.Graph.Inputs {
					if strings.HasPrefix(v.Name, "past") {
						pasts[i][v.Name], presents = out[presents[0].Name], presents[1:]
					}
				}
			}
			past += queries
			d, scale := distance(y[0].F, y[1].F), magnitudeOf(y[0].F)
			if allowed := tolerance(k, y[0].DataType, exact, scale); d > allowed {
				return fmt.Errorf("%d tokens of %d differ by %.3g, their greatest magnitude being %.3g and %.3g "+
					"allowed (exact %v)", queries, past, d, scale, allowed, exact)
			}
		}
	}
	return nil
}
