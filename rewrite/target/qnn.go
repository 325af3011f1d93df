package target

import (
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/mojo-patch/mojo-patch/fused"
	"github.com/mojo-patch/mojo-patch/onnx"
)

// qnn writes ops that onnxruntime's provider for Qualcomm's NPUs (QNN, backend HTP) supports: ops of opset 23 in
// float32 and float16, with fixed shapes. A router stays as exported.
var qnn = &Target{
	Name:    "qnn",
	Summary: "opset 23 with fixed shapes, and dense experts: for Qualcomm's NPUs",
	Opset:   23,
	Static:  true,
	Rules: []Rule{
		{fused.RMSNormName, "RMSNormalization", func(c *Call) error { return c.qnnNorm(1, c.writeNorm) }},
		{fused.AddRMSNormName, "Add, RMSNormalization", func(c *Call) error { return c.qnnNorm(2, c.writeAddNorm) }},
		{fused.GLUName, "Sigmoid, Mul", qnnGLU},
		{fused.AddLayerNormName, "Add, LayerNormalization", (*Call).writeAddLayerNorm},
		{fused.BiasGELUName, "Add, Gelu", (*Call).writeBiasGELU},
		{fused.RotaryEmbeddingName, "RotaryEmbedding", qnnRotary},
		{fused.AttentionName, "MatMul, Softmax, MatMul", qnnAttention},
		{fused.MoEName, "dense experts", qnnMoE},
	},
}

func (c *Call) qnnNorm(s int, write func(norm)) error {
	if err := qnnTypes(c.Type(0), c.Type(s)); err != nil {
		return err
	}
	if rank := len(c.Dims(0)); c.asNorm().Axis != -1 || rank < 1 || rank > 5 || c.lastDim(0) < 0 {
		return fmt.Errorf("QNN has RmsNorm only over a last axis of known size, up to rank 5, not over axis %d of "+
			"X, %s",
			c.asNorm().Axis, shapeText(c.Dims(0)))
	}
	write(qnnRows)
	return nil
}

// qnnRows normalizes the rows of a matrix. With more dimensions, the emulated HTP computes RmsNorm wrongly for many
// shapes, such as [9, 64, 256] and [1, 11, 4, 16].
func qnnRows(c *Call, x, scale *onnx.Value) *onnx.Value {
	dims := c.Dims(0)
	if len(dims) <= 2 || !slices.ContainsFunc(dims[:len(dims)-2], func(d int64) bool { return d != 1 }) {
		return standardNorm(c, x, scale)
	}
	y := standardNorm(c, c.Op1("Reshape", []*onnx.Value{x, c.Integers(-1, dims[len(dims)-1])}), scale)
	return c.Op1("Reshape", []*onnx.Value{y, c.shape(0)})
}

func (c *Call) shape(i int) *onnx.Value {
	if dims := c.Dims(i); dims != nil && !slices.Contains(dims, -1) {
		return c.Integers(dims...)
	}
	return c.Op1("Shape", []*onnx.Value{c.Input(i)})
}

func qnnGLU(c *Call) error {
	if err := qnnTypes(c.Type(0)); err != nil {
		return err
	}
	c.writeGLU(func(gate *onnx.Value) *onnx.Value { return c.activated(gate, c.Type(0)) })
	return nil
}

func qnnRotary(c *Call) error {
	if err := qnnTypes(c.Type(0)); err != nil {
		return err
	}
	return standardRotary(c)
}

// qnnAttention writes the products with masks that the NPU can compute: a constant for positions, and the padding from
// the input, without the GatherND that exporters write.
func qnnAttention(c *Call) error {
	typ := c.Type(fused.AttentionQ)
	if err := qnnTypes(typ); err != nil {
		return err
	}
	valid := c.Input(fused.AttentionKeyValid)
	if c.Input(fused.AttentionBias) != nil && (valid != nil || c.asAttention().Causal || c.asAttention().Window > 0) {
		return errors.New("it has a bias and a mask")
	}
	if c.Input(fused.AttentionBias) != nil {
		return c.writeProducts(c.biasMask())
	}
	lowest := -float32(math.MaxFloat32)
	if typ == onnx.Float16 {
		lowest = -65504
	}
	mask, err := c.positionMask(lowest)
	switch {
	case err != nil:
		return err
	case valid == nil:
		return c.writeProducts(c.maskOf(mask, typ), nil)
	}
	exists := c.Op1("Unsqueeze", []*onnx.Value{valid, c.Integers(1, 2)})
	hidden := c.Op1("Equal", []*onnx.Value{exists, c.Integers(0)})
	padding := c.Op1("Where", []*onnx.Value{hidden, c.Number(lowest, typ), c.Number(0, typ)})
	if mask != nil {
		padding = c.Op1("Min", []*onnx.Value{padding, c.maskOf(mask, typ)})
	}
	if c.asAttention().Empty == "mean" {
		return c.writeProducts(padding, nil)
	}
	return c.writeProducts(padding, c.Op1("Less", []*onnx.Value{c.greatest(padding), c.Number(lowest/2, typ)}))
}

// positionMask returns the [S, L] mask that depends on the positions of queries and keys and is added to the scores, or
// nil if there is none.
func (c *Call) positionMask(lowest float32) (*onnx.Tensor, error) {
	a := c.asAttention()
	causal, window := a.Causal, a.Window
	if !causal && window == 0 {
		return nil, nil
	}
	length := func(i int, layout string) int64 {
		if dims := c.Dims(i); len(dims) == 4 {
			return dims[lengthAxis(layout)]
		}
		return -1
	}
	queries, keys, past := length(fused.AttentionQ, a.QLayout), length(fused.AttentionK, a.KLayout), int64(0)
	if c.Input(fused.AttentionPastKey) != nil {
		past = length(fused.AttentionPastKey, "")
	}
	if min(queries, keys, past) < 0 {
		return nil, errors.New("the number of queries and keys is unknown")
	}
	keys += past
	list := make([]float32, 0, queries*keys)
	for i := range queries {
		at := i + keys - queries
		for j := range keys {
			x := float32(0)
			if causal && j > at || window > 0 && j <= at-window {
				x = lowest
			}
			list = append(list, x)
		}
	}
	return onnx.NewFloat32s("", []int64{queries, keys}, list), nil
}

// maskOf adds the mask as a constant of a type; it returns nil for nil.
func (c *Call) maskOf(t *onnx.Tensor, typ onnx.DataType) *onnx.Value {
	if t == nil {
		return nil
	}
	return c.Cast(c.Constant(t), onnx.Float, typ)
}

func qnnMoE(c *Call) error {
	if err := qnnTypes(c.Type(fused.MoEX), c.Type(fused.MoEWeights), c.Type(fused.MoEGateUp)); err != nil {
		return err
	}
	return denseMoE(c)
}

// qnnTypes returns an error for types that QNN does not compute in.
func qnnTypes(types ...onnx.DataType) error {
	return onlyFloats("QNN takes float32 and float16", types)
}
