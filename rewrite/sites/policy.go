package sites

import (
	"github.com/mojo-patch/mojo-patch/fused"
	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/rewrite/prove"
)

// policy is what the check knows of an op. The zero value is that of an op that is tried on all kinds of numbers.
type policy struct {
	// try tries a site, unless it is nil.
	try func(k *Checker, c *Site, worlds []int, r *prove.CheckReport) error
	// routed is the claim of a site whose op sends tokens to experts; sizes returns the elements of a token, the number
	// of experts and how many of them a token takes.
	routed func(x *routed) *prove.Claim
	sizes  func(s fused.Site) (hidden, experts, chosen int64)
	// hard lists the hard inputs of the op's kernel, unless it is nil.
	hard func(s fused.Site, coarse onnx.DataType) []HardInputs
	// positional says that the op computes with the positions of tokens, which are compared.
	positional bool
	// growing says that what a target writes is no gain if it holds all ops that the matched nodes have: beside them
	// there would be one more, for the mask or for the bias of a residual.
	growing bool
}

// policies are those of the ops that are not tried as others are, by name.
var policies map[string]policy

func init() { // they lead back to the table
	policies = map[string]policy{
		fused.AttentionName:       {try: (*Checker).tryAttention, hard: hardAttention, positional: true, growing: true},
		fused.LatentAttentionName: {hard: hardLatents, positional: true},
		fused.TopKRouterName:      {routed: (*routed).routerClaim, sizes: routerSizes, hard: hardLogits},
		fused.MoEName:             {routed: (*routed).expertsClaim, sizes: expertSizesOf, hard: hardTokens},
		"AddRMSNorm":              {growing: true},
	}
}

func routerSizes(s fused.Site) (hidden, experts, chosen int64) {
	return 1, dimOf(s, 0, -1), s.Attr("top_k").Int
}

func expertSizesOf(s fused.Site) (hidden, experts, chosen int64) {
	return dimOf(s, 0, -1), dimOf(s, 3, 0), dimOf(s, 2, -1)
}
