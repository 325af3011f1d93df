package infer

// spaceRules: ops that move elements between channels and space, or write into a copy of their first input.
var spaceRules = merge(
	each(unary, "Scatter", "ScatterElements", "ScatterND", "TensorScatter"),
	map[string]rule{"DepthToSpace": depthToSpace, "SpaceToDepth": spaceToDepth},
)

func depthToSpace(c *call) {
	s, b := c.shape(0), c.attrInt("blocksize", 1)
	if len(s) != 4 || b <= 0 || !complete(s) {
		c.set(0, c.dtype(0), unknown(4))
		return
	}
	c.set(0, c.dtype(0), []int64{s[0], s[1] / (b * b), s[2] * b, s[3] * b})
}

func spaceToDepth(c *call) {
	s, b := c.shape(0), c.attrInt("blocksize", 1)
	if len(s) != 4 || b <= 0 || !complete(s) {
		c.set(0, c.dtype(0), unknown(4))
		return
	}
	c.set(0, c.dtype(0), []int64{s[0], s[1] * b * b, s[2] / b, s[3] / b})
}
