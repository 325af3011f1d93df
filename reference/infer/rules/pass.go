package rules

import (
	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/reference/infer/term"
)

// Pass holds the data that the rules share in one pass through a model, and their findings.
type Pass struct {
	Table *term.Table // the expressions of the proof world
	// Fresh returns a number for the k-th length of a node that depends on the data, in a world.
	Fresh func(n *onnx.Node, k, world int) int64
	// Solving means that another pass may follow, so differences are recorded and guessed over.
	Solving    bool
	Equalities [][2]int64                  // proven pairs of equal numbers in the proof world
	Misfits    map[*onnx.Node][Worlds]bool // the nodes that cannot run in a world
	Short      map[*onnx.Node]int64        // the nodes whose windows do not fit, with their strides
}

// MaxDifferences bounds the differences of one pass.
const MaxDifferences = 256

// misfit records that the node cannot run in this world.
func (c *Call) misfit() {
	if c.Gather || c.w == Proof {
		return
	}
	m := c.Pass.Misfits[c.Node]
	m[c.w] = true
	c.Pass.Misfits[c.Node] = m
}

// tooShort records that a dimension is too short for a node's windows, which are stride apart.
func (c *Call) tooShort(stride int64) {
	if c.Pass.Short == nil || c.Gather {
		return
	}
	c.Pass.Short[c.Node] = max(c.Pass.Short[c.Node], stride)
}
