package reference

var spaceOps = map[string]opDef{
	"DepthToSpace": plain(1, opDepthToSpace),
	"SpaceToDepth": plain(1, opSpaceToDepth),
	"Einsum":       arith(1, opEinsum),
}

// opDepthToSpace moves blocks of channels into height and width.
func opDepthToSpace(c *call) []*Tensor {
	x, b := c.in[0], int(c.int("blocksize", 0))
	if x.Rank() != 4 || b < 1 || x.Shape[1]%(b*b) != 0 {
		fail("blocksize %d does not fit %v", b, x.Shape)
	}
	n, ch, h, w := x.Shape[0], x.Shape[1]/(b*b), x.Shape[2], x.Shape[3]
	wide, perm := []int{n, b, b, ch, h, w}, []int{0, 3, 4, 1, 5, 2}
	if c.str("mode", "DCR") == "CRD" {
		wide, perm = []int{n, ch, b, b, h, w}, []int{0, 1, 4, 2, 5, 3}
	}
	return one(x.WithShape(wide).transpose(perm).WithShape([]int{n, ch, h * b, w * b}))
}

// opSpaceToDepth moves blocks of height and width into channels.
func opSpaceToDepth(c *call) []*Tensor {
	x, b := c.in[0], int(c.int("blocksize", 0))
	if x.Rank() != 4 || b < 1 || x.Shape[2]%b != 0 || x.Shape[3]%b != 0 {
		fail("blocksize %d does not fit %v", b, x.Shape)
	}
	n, ch, h, w := x.Shape[0], x.Shape[1], x.Shape[2]/b, x.Shape[3]/b
	perm := []int{0, 3, 5, 1, 2, 4}
	if c.str("mode", "DCR") == "CRD" {
		perm = []int{0, 1, 3, 5, 2, 4}
	}
	return one(x.WithShape([]int{n, ch, h, b, w, b}).transpose(perm).WithShape([]int{n, ch * b * b, h, w}))
}
