package infer

import (
	"maps"

	"github.com/mojo-patch/mojo-patch/fused"
	"github.com/mojo-patch/mojo-patch/onnx"
)

// rule finds the types and shapes of a node's outputs in one world, and at times their elements. It must not read
// anything but the call. What it does not set stays unknown.
type rule func(c *call)

// ruleKey is an operator; the standard's domain is "".
type ruleKey struct{ domain, op string }

const (
	microsoftDomain = "com.microsoft"
	mojoDomain      = fused.Domain
)

// rules is the table of operators. Ops with graphs inside are in flows.
var rules = map[ruleKey]rule{}

func init() {
	for _, part := range []map[string]rule{elementwiseRules, shapeRules, joinRules, indexRules, spaceRules, reduceRules,
		productRules, neuralRules, sequenceRules} {
		for op, r := range part {
			rules[ruleKey{"", op}] = r
		}
	}
	for op, r := range microsoftRules {
		rules[ruleKey{microsoftDomain, op}] = r
	}
	for op, r := range mojoRules {
		rules[ruleKey{mojoDomain, op}] = r
	}
	// onnxruntime takes these under the standard's name as well.
	for _, op := range []string{"SimplifiedLayerNormalization", "SkipSimplifiedLayerNormalization"} {
		rules[ruleKey{"", op}] = microsoftRules[op]
	}
	for _, op := range []string{"Gelu", "QuantizeLinear", "DequantizeLinear", "Trilu", "Range", "Pad", "Unique"} {
		if _, ok := microsoftRules[op]; !ok {
			rules[ruleKey{microsoftDomain, op}] = rules[ruleKey{"", op}]
		}
	}
}

// merge makes one table of several.
func merge(tables ...map[string]rule) map[string]rule {
	all := map[string]rule{}
	for _, t := range tables {
		maps.Copy(all, t)
	}
	return all
}

// each returns the same rule to several ops.
func each(r rule, ops ...string) map[string]rule {
	t := make(map[string]rule, len(ops))
	for _, op := range ops {
		t[op] = r
	}
	return t
}

// firstType returns the first known element type of the inputs from i on: of ops whose inputs all have one type.
func (c *call) firstType(i int) onnx.DataType {
	for ; i < len(c.in); i++ {
		if t := c.in[i].dtype; t != onnx.Undefined {
			return t
		}
	}
	return onnx.Undefined
}
