package target

import (
	"errors"
	"slices"

	"github.com/mojo-patch/mojo-patch/fused"
	"github.com/mojo-patch/mojo-patch/onnx"
)

// writeProducts writes the two products of Attention with only a scale, a cap, an added mask, a sink and a softmax
// between them. empty marks the queries that can attend to no key; their results are set to zero at the end. mask and
// empty have at most the rank of the scores, or are nil.
func (c *Call) writeProducts(mask, empty *onnx.Value) error {
	a := c.asAttention()
	for _, lack := range []struct {
		is   bool
		what string
	}{
		{c.Input(fused.AttentionPastLength) != nil, "Concat cannot write into a cache"},
		{a.HeadOrder == "cyclic", "heads that share keys are not adjacent"},
	} {
		if lack.is {
			return errors.New(lack.what)
		}
	}
	q, k, v := c.byHeads(fused.AttentionQ, a.QLayout), c.byHeads(fused.AttentionK, a.KLayout),
		c.byHeads(fused.AttentionV, a.VLayout)
	heads, keyHeads := c.headsOf(fused.AttentionQ, a.QLayout), c.headsOf(fused.AttentionK, a.KLayout)
	if heads < 1 || keyHeads < 1 {
		return errors.New("the number of heads is unknown")
	}
	for i, t := range []**onnx.Value{&k, &v} {
		width := c.lastDim(fused.AttentionK + i)
		if past := c.Input(fused.AttentionPastKey + i); past != nil {
			*t = c.Op1("Concat", []*onnx.Value{past, *t}, onnx.IntAttr("axis", 2))
			c.Output(1+i, *t)
		} else if c.Node.OutputValue(1+i) != nil {
			*t = c.Op1("Identity", []*onnx.Value{*t})
			c.Output(1+i, *t)
		}
		if heads > keyHeads && width < 0 {
			return errors.New("the width of a head is unknown")
		}
		if heads > keyHeads {
			*t = c.repeatHeads(*t, heads, keyHeads, width)
		}
	}
	typ := c.Type(fused.AttentionQ)
	turned := c.Op1("Transpose", []*onnx.Value{k}, onnx.IntsAttr("perm", []int64{0, 1, 3, 2}))
	scores := c.times(c.Op1("MatMul", []*onnx.Value{q, turned}), a.Scale, typ)
	if limit := a.Softcap; limit > 0 {
		scores = c.times(c.Op1("Tanh", []*onnx.Value{c.times(scores, 1/limit, typ)}), limit, typ)
	}
	if mask != nil {
		scores = c.Op1("Add", []*onnx.Value{scores, mask})
	}
	weights, err := c.softmaxWithSink(scores)
	if err != nil {
		return err
	}
	y := c.Op1("MatMul", []*onnx.Value{weights, v})
	if empty != nil {
		y = c.Op1("Where", []*onnx.Value{empty, c.Number(0, typ), y})
	}
	if a.YLayout == "bsnh" {
		y = c.swapHeads(y)
	}
	c.Output(0, y)
	return nil
}

// softmaxWithSink returns the softmax of scores. A sink takes part as one more score of each row.
func (c *Call) softmaxWithSink(scores *onnx.Value) (*onnx.Value, error) {
	last, sink := onnx.IntAttr("axis", -1), c.Input(fused.AttentionSink)
	if sink == nil {
		return c.Op1("Softmax", []*onnx.Value{scores}, last), nil
	}
	dims := c.Dims(fused.AttentionQ)
	if len(dims) != 4 || slices.Contains(dims, -1) {
		return nil, errors.New("a sink is repeated for each query, but the number of queries is unknown")
	}
	layout := c.asAttention().QLayout
	heads, queries := c.headsOf(fused.AttentionQ, layout), dims[lengthAxis(layout)]
	each := c.Op1("Reshape", []*onnx.Value{c.Cast(sink, onnx.Float, c.Type(fused.AttentionQ)),
		c.Integers(1, heads, 1, 1)})
	each = c.Op1("Expand", []*onnx.Value{each, c.Integers(dims[0], heads, queries, 1)})
	all := c.Op1("Softmax", []*onnx.Value{c.Op1("Concat", []*onnx.Value{scores, each}, last)}, last)
	return c.Op1("Slice", []*onnx.Value{all, c.Integers(0), c.Integers(-1), c.Integers(-1)}), nil
}

// biasMask returns the bias as the mask of writeProducts, and marks rows that are minus infinity throughout.
func (c *Call) biasMask() (mask, empty *onnx.Value) {
	bias := c.Input(fused.AttentionBias)
	if bias == nil {
		return nil, nil
	}
	return c.Cast(bias, onnx.Float, c.Type(fused.AttentionQ)),
		c.Op1("IsInf", []*onnx.Value{c.greatest(bias)}, onnx.IntAttr("detect_positive", 0))
}

// byHeads returns an input with its heads before its positions.
func (c *Call) byHeads(i int, layout string) *onnx.Value {
	if layout == "bsnh" {
		return c.swapHeads(c.Input(i))
	}
	return c.Input(i)
}

// headsOf returns the number of heads of an input, or -1 if it is unknown.
func (c *Call) headsOf(i int, layout string) int64 {
	if dims := c.Dims(i); len(dims) == 4 {
		return dims[3-lengthAxis(layout)]
	}
	return -1
}

// repeatHeads repeats each head of keys or values for the query heads that share it.
func (c *Call) repeatHeads(v *onnx.Value, heads, keyHeads, width int64) *onnx.Value {
	each := c.Op1("Unsqueeze", []*onnx.Value{v, c.Integers(2)})
	each = c.Op1("Expand", []*onnx.Value{each, c.Integers(1, 1, heads/keyHeads, 1, 1)})
	return c.Op1("Reshape", []*onnx.Value{each, c.Integers(0, heads, -1, width)})
}

// times multiplies by a number.
func (c *Call) times(v *onnx.Value, x float32, t onnx.DataType) *onnx.Value {
	return c.Op1("Mul", []*onnx.Value{v, c.Number(x, t)})
}

// greatest returns the maximum of each row.
func (c *Call) greatest(v *onnx.Value) *onnx.Value {
	if c.Site.Opset < 18 {
		return c.Op1("ReduceMax", []*onnx.Value{v}, onnx.IntsAttr("axes", []int64{-1}))
	}
	return c.Op1("ReduceMax", []*onnx.Value{v, c.Integers(-1)})
}
