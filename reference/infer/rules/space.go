package rules

// spaceRules: ops that move elements between channels and space, or write into a copy of their first input.
var spaceRules = merge(
	each(unary, "Scatter", "ScatterElements", "ScatterND", "TensorScatter"),
	map[string]Rule{"DepthToSpace": shaped(like(0), depthToSpace), "SpaceToDepth": shaped(like(0), spaceToDepth)},
)

func depthToSpace(c *Call) []int64 {
	s, b := c.shape(0), c.attrInt("blocksize", 1)
	if len(s) != 4 || b <= 0 || !Complete(s) {
		return unknown(4)
	}
	return []int64{s[0], s[1] / (b * b), s[2] * b, s[3] * b}
}

func spaceToDepth(c *Call) []int64 {
	s, b := c.shape(0), c.attrInt("blocksize", 1)
	if len(s) != 4 || b <= 0 || !Complete(s) {
		return unknown(4)
	}
	return []int64{s[0], s[1] * b * b, s[2] / b, s[3] / b}
}
