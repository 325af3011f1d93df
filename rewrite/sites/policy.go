package sites

import (
	"github.com/mojo-patch/mojo-patch/fused"
	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/rewrite/prove"
)

// policy configures the check for an op. The zero value tries the op on all kinds of numbers.
type policy struct {
	// try tries a site, if it is not nil.
	try func(k *Checker, c *Site, worlds []int, r *prove.CheckReport) error
	// routed returns the claim of a site whose op sends tokens to experts. sizes returns the elements of a token, the
	// number of experts, and the number of experts per token.
	routed func(x *routed) *prove.Claim
	sizes  func(s fused.Site) (hidden, experts, chosen int64)
	// hard lists the hard inputs of the op's kernel, if it is not nil.
	hard func(s fused.Site, coarse onnx.DataType) []HardInputs
	// positional means that the op computes with the positions of tokens. The matched nodes compare these.
	positional bool
	// lengths means that the op is tried on many numbers of tokens, so the matched nodes may compute with these as they
	// like.
	lengths bool
	// growing means that a target's nodes are no improvement if they include all ops of the matched nodes: they would
	// only add another op, for the mask or for the bias of a residual.
	growing bool
}

// policies are the policies other than the zero value, by the name of the op.
var policies map[string]policy

func init() { // set here, because they refer back to the table
	policies = map[string]policy{
		fused.AttentionName:       {try: (*Checker).tryAttention, hard: hardAttention, positional: true, growing: true},
		fused.LatentAttentionName: {hard: hardLatents, positional: true},
		fused.TopKRouterName:      {routed: (*routed).routerClaim, sizes: routerSizes, hard: hardLogits},
		fused.MoEName:             {routed: (*routed).expertsClaim, sizes: expertSizesOf, hard: hardTokens},
		fused.AddRMSNormName:      {growing: true},
		fused.LinearAttentionName: {try: (*Checker).tryLinear, lengths: true},
	}
}

func routerSizes(s fused.Site) (hidden, experts, chosen int64) {
	return 1, dimOf(s, 0, -1), s.Attr(fused.AttrTopK).Int
}

func expertSizesOf(s fused.Site) (hidden, experts, chosen int64) {
	return dimOf(s, 0, -1), dimOf(s, 3, 0), dimOf(s, 2, -1)
}
