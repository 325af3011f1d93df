package infer

import (
	"maps"

	"github.com/mojo-patch/mojo-patch/fused"
	"github.com/mojo-patch/mojo-patch/onnx"
)

// rule finds the types and shapes of a node's outputs in one world, and sometimes their elements. It must only read the
// call. Facts that it does not set stay unknown.
type rule func(c *call)

// ruleKey is an operator; the standard's domain is "".
type ruleKey struct{ domain, op string }

const mojoDomain = fused.Domain

// rules is the table of operators. Ops with graphs inside are in flows.
var rules = map[ruleKey]rule{}

func init() {
	for domain, parts := range map[string][]map[string]rule{
		"": {elementwiseRules, shapeRules, joinRules, indexRules, spaceRules, reduceRules, productRules, neuralRules,
			sequenceRules},
		onnx.Microsoft: {microsoftRules},
		mojoDomain:     {mojoRules},
	} {
		for _, part := range parts {
			for op, r := range part {
				rules[ruleKey{domain, op}] = r
			}
		}
	}
	// onnxruntime accepts these under the standard's name as well.
	for _, op := range []string{"SimplifiedLayerNormalization", "SkipSimplifiedLayerNormalization"} {
		rules[ruleKey{"", op}] = microsoftRules[op]
	}
	for _, op := range []string{"QuantizeLinear", "DequantizeLinear", "Trilu", "Range", "Pad", "Unique"} {
		rules[ruleKey{onnx.Microsoft, op}] = rules[ruleKey{"", op}]
	}
}

// merge merges several tables.
func merge(tables ...map[string]rule) map[string]rule {
	all := map[string]rule{}
	for _, t := range tables {
		maps.Copy(all, t)
	}
	return all
}

// each maps several ops to the same rule.
func each(r rule, ops ...string) map[string]rule {
	t := make(map[string]rule, len(ops))
	for _, op := range ops {
		t[op] = r
	}
	return t
}

// shaped is the rule of an op with one output of this type and shape. The shape is nil if the rank is unknown.
func shaped(dtype func(c *call) onnx.DataType, shape func(c *call) []int64) rule {
	return func(c *call) { c.set(0, dtype(c), shape(c)) }
}

// like returns the type of input i.
func like(i int) func(c *call) onnx.DataType {
	return func(c *call) onnx.DataType { return c.dtype(i) }
}

// firstOf returns the type of all inputs from i on, see firstType.
func firstOf(i int) func(c *call) onnx.DataType {
	return func(c *call) onnx.DataType { return c.firstType(i) }
}

// always returns one type.
func always(t onnx.DataType) func(c *call) onnx.DataType {
	return func(c *call) onnx.DataType { return t }
}

// given returns the type in an attribute, or the type of input 0 if it is absent.
func given(attribute string) func(c *call) onnx.DataType {
	return func(c *call) onnx.DataType { return c.attrType(attribute, c.dtype(0)) }
}

// shapeOf returns the shape of input i.
func shapeOf(i int) func(c *call) []int64 { return func(c *call) []int64 { return c.shape(i) } }

// firstType returns the first known element type of the inputs from i on, for ops whose inputs have one type.
func (c *call) firstType(i int) onnx.DataType {
	for ; i < len(c.in); i++ {
		if t := c.in[i].dtype; t != onnx.Undefined {
			return t
		}
	}
	return onnx.Undefined
}
