// Package rules has a rule for each op: the types, shapes and small elements of its outputs in one world, by those of
// its inputs. In the proof world, numbers may be expressions of the open sizes (package term).
package rules

import (
	"maps"
	"slices"
	"strings"

	"github.com/mojo-patch/mojo-patch/fused"
	"github.com/mojo-patch/mojo-patch/onnx"
)

// Rule finds the types and shapes of a node's outputs in one world, and sometimes their elements. It must only read the
// call. Facts that it does not set stay unknown.
type Rule func(c *Call)

// ruleKey is an operator; the standard's domain is "".
type ruleKey struct{ Domain, Op string }

const mojoDomain = fused.Domain

// rules is the table of operators. Ops with graphs inside are in flows.
var rules = map[ruleKey]Rule{}

func init() {
	for domain, parts := range map[string][]map[string]Rule{
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

// Keys lists the ops with rules, in order.
func Keys() []ruleKey {
	return slices.SortedFunc(maps.Keys(rules), func(a, b ruleKey) int {
		return strings.Compare(a.Domain+a.Op, b.Domain+b.Op)
	})
}

// Of returns the rule of a node's op, or nil.
func Of(n *onnx.Node) Rule { return rules[ruleKey{Canonical(n.Domain), n.OpType}] }

// merge merges several tables.
func merge(tables ...map[string]Rule) map[string]Rule {
	all := map[string]Rule{}
	for _, t := range tables {
		maps.Copy(all, t)
	}
	return all
}

// each maps several ops to the same rule.
func each(r Rule, ops ...string) map[string]Rule {
	t := make(map[string]Rule, len(ops))
	for _, op := range ops {
		t[op] = r
	}
	return t
}

// shaped is the rule of an op with one output of this type and shape. The shape is nil if the rank is unknown.
func shaped(dtype func(c *Call) onnx.DataType, shape func(c *Call) []int64) Rule {
	return func(c *Call) { c.set(0, dtype(c), shape(c)) }
}

// like returns the type of input i.
func like(i int) func(c *Call) onnx.DataType {
	return func(c *Call) onnx.DataType { return c.dtype(i) }
}

// firstOf returns the type of all inputs from i on, see firstType.
func firstOf(i int) func(c *Call) onnx.DataType {
	return func(c *Call) onnx.DataType { return c.firstType(i) }
}

// always returns one type.
func always(t onnx.DataType) func(c *Call) onnx.DataType {
	return func(c *Call) onnx.DataType { return t }
}

// given returns the type in an attribute, or the type of input 0 if it is absent.
func given(attribute string) func(c *Call) onnx.DataType {
	return func(c *Call) onnx.DataType { return c.attrType(attribute, c.dtype(0)) }
}

// shapeOf returns the shape of input i.
func shapeOf(i int) func(c *Call) []int64 { return func(c *Call) []int64 { return c.shape(i) } }

// firstType returns the first known element type of the inputs from i on, for ops whose inputs have one type.
func (c *Call) firstType(i int) onnx.DataType {
	for ; i < len(c.In); i++ {
		if t := c.In[i].DataType; t != onnx.Undefined {
			return t
		}
	}
	return onnx.Undefined
}
