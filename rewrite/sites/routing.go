package sites

import (
	"slices"

	"github.com/mojo-patch/mojo-patch/fused"
	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/rewrite/prove"
)

// routing describes the op of a site that sends tokens to experts.
type routing struct {
	call    *Call
	roles   []fused.Role // of the match's inputs
	hidden  int64        // elements of a token
	experts int64
	chosen  int64 // experts per token
	logits  bool  // whether a router's logits choose the experts at the same site
}

// routingOf finds the op among the calls of a site, experts before their router. It returns nil if there is no such op,
// or if its sizes are unknown.
func routingOf(c *Site) *routing {
	for _, call := range slices.Backward(c.Calls) {
		sizes := policies[call.Op.Name].sizes
		if sizes == nil {
			continue
		}
		r := &routing{call: call}
		r.hidden, r.experts, r.chosen = sizes(call.Site)
		if r.hidden < 1 || r.chosen < 1 || r.experts < r.chosen {
			return nil
		}
		r.logits = slices.ContainsFunc(c.Calls, func(other *Call) bool {
			return other != call && other.Op.Name == fused.TopKRouterName
		})
		for _, v := range c.Match.Inputs {
			r.roles = append(r.roles, c.Match.Roles[v])
		}
		for i, v := range c.Match.Replacement.Inputs { // the op may read a token once for each choice
			reshaped := slices.ContainsFunc(v.Uses(), func(u onnx.Use) bool { return u.Node.Is("Reshape") })
			if d, ok := c.Facts.Dim(v, -1); ok && reshaped && r.roles[i] == fused.RoleIDs {
				r.chosen = d
			}
		}
		return r
	}
	return nil
}

func dimOf(s fused.Site, input, axis int) int64 {
	if input >= len(s.Dims) || len(s.Dims[input]) == 0 {
		return -1
	}
	d := s.Dims[input]
	return d[(axis+len(d))%len(d)]
}

// tokens returns the number of tokens in inputs of these shapes, or 0 if they do not match.
func (r *routing) tokens(shapes [][]int64) int64 {
	n := int64(0)
	for i, what := range r.roles {
		var width int64
		switch what {
		case fused.RoleTokens, fused.RoleBase:
			width = r.hidden
		case fused.RoleLogits, fused.RoleGates:
			width = r.experts
		case fused.RoleWeights, fused.RoleIDs:
			width = r.chosen
		default:
			continue
		}
		total := prove.Elements(shapes[i : i+1])
		if width == 0 || total%width != 0 || n != 0 && total/width != n {
			return 0
		}
		n = total / width
	}
	return n
}

// route returns the experts of each token: hits different ones in all, starting with start. If hits is the number of
// experts per token, all tokens go to the same experts; if it is larger and there are enough tokens, each expert gets
// some. A token never gets an expert twice.
func (r *routing) route(tokens, hits, start int64) []int64 {
	ids := make([]int64, 0, tokens*r.chosen)
	for i := range tokens * r.chosen {
		ids = append(ids, r.expert(start+i%hits))
	}
	return ids
}

// apart assigns one token to each of the first n listed experts, and all other choices to the experts after them.
func (r *routing) apart(tokens, n int64, list []int64) []int64 {
	var ids []int64
	for i := range tokens {
		ids = append(ids, list[n:n+r.chosen]...)
		if i < n {
			ids[i*r.chosen+i%r.chosen] = list[i]
		}
	}
	return ids
}

// expert returns the n-th of all experts in an order without neighbors, so that an offset shows.
func (r *routing) expert(n int64) int64 {
	for _, step := range []int64{5, 3, 7, 11} {
		if r.experts%step != 0 && step < r.experts {
			return n % r.experts * step % r.experts
		}
	}
	return n % r.experts
}

// startAt is the inverse of expert.
func (r *routing) startAt(e int64) int64 {
	for n := range r.experts {
		if r.expert(n) == e {
			return n
		}
	}
	return 0
}
