package shapes

import (
	"github.com/mojo-patch/mojo-patch/reference/internal/op"
	"github.com/mojo-patch/mojo-patch/reference/internal/tensor"
)

var spaceOps = map[string]op.Def{
	"DepthToSpace": op.Plain(1, opDepthToSpace),
	"SpaceToDepth": op.Plain(1, opSpaceToDepth),
}

// opDepthToSpace moves blocks of channels into height and width.
func opDepthToSpace(c *op.Call) []*tensor.Tensor {
	x, b := c.In[0], int(c.Int("blocksize", 0))
	if x.Rank() != 4 || b < 1 || x.Shape[1]%(b*b) != 0 {
		tensor.Fail("blocksize %d does not fit %v", b, x.Shape)
	}
	n, ch, h, w := x.Shape[0], x.Shape[1]/(b*b), x.Shape[2], x.Shape[3]
	wide, perm := []int{n, b, b, ch, h, w}, []int{0, 3, 4, 1, 5, 2}
	if c.Str("mode", "DCR") == "CRD" {
		wide, perm = []int{n, ch, b, b, h, w}, []int{0, 1, 4, 2, 5, 3}
	}
	return op.One(tensor.Transpose(x.WithShape(wide), perm).WithShape([]int{n, ch, h * b, w * b}))
}

// opSpaceToDepth moves blocks of height and width into channels.
func opSpaceToDepth(c *op.Call) []*tensor.Tensor {
	x, b := c.In[0], int(c.Int("blocksize", 0))
	if x.Rank() != 4 || b < 1 || x.Shape[2]%b != 0 || x.Shape[3]%b != 0 {
		tensor.Fail("blocksize %d does not fit %v", b, x.Shape)
	}
	n, ch, h, w := x.Shape[0], x.Shape[1], x.Shape[2]/b, x.Shape[3]/b
	perm := []int{0, 3, 5, 1, 2, 4}
	if c.Str("mode", "DCR") == "CRD" {
		perm = []int{0, 1, 3, 5, 2, 4}
	}
	return op.One(tensor.Transpose(x.WithShape([]int{n, ch, h, b, w, b}), perm).WithShape([]int{n, ch * b * b, h, w}))
}
