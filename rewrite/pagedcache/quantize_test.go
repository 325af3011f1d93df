package pagedcache_test

import (
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/mojo-patch/mojo-patch/fused"
	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/reference/infer"
	"github.com/mojo-patch/mojo-patch/rewrite"
	"github.com/mojo-patch/mojo-patch/rewrite/applytest"
	"github.com/mojo-patch/mojo-patch/rewrite/edit"
	"github.com/mojo-patch/mojo-patch/rewrite/pagedcache"
	"github.com/mojo-patch/mojo-patch/rewrite/rewritetest"
)

// TestPoolsOfCodes: pools become codes with scales, in models of any opset and type, within the bounds of the rounding.
func TestPoolsOfCodes(t *testing.T) {
	for _, c := range []struct {
		name  string
		codes onnx.DataType
		in    onnx.DataType
	}{
		{"llama-kv-dynamo-fp32", onnx.Int8, onnx.Undefined},
		{"llama-kv-dynamo-fp32", onnx.Float8E4M3FN, onnx.Undefined},
		{"llama-kv-dynamo-fp32", onnx.Int8, onnx.Float16},
		{"llama-kv-dynamo-fp32", onnx.Float8E4M3FN, onnx.Float16},
		{"llama-merged-ts-fp32", onnx.Float8E4M3FN, onnx.Undefined}, // an older opset
		{"deepseek3naive-kv-dynamo-fp32", onnx.Int8, onnx.Undefined},
	} {
		m := rewritetest.ReadModel(t, c.name)
		for _, v := range m.Graph.Inputs { // some exporters write numbers as names
			if ty, _ := v.Type(); len(ty.Dims) == 4 {
				ty.Dims = slices.Clone(ty.Dims)
				ty.Dims[1] = onnx.Dim{Value: -1, Param: strconv.FormatInt(ty.Dims[1].Value, 10)}
				v.SetType(ty)
			}
		}
		r := applytest.Apply(t, m, rewrite.Request{PagedCache: 4, PagedType: c.codes, DType: c.in}).Paged
		if r == nil || r.Type != c.codes.String() || len(r.Scales) != 4 || r.Rounding == nil {
			t.Fatalf("%s: reported %+v", c.name, r)
		}
		for what, x := range map[string]float64{"keys": r.Rounding.Keys, "values": r.Rounding.Values,
			"results": r.Rounding.Results} {
			if !(x > 0.001 && x <= 1) {
				t.Errorf("%s: %s use %g of the bound", c.name, what, x)
			}
		}
		if !(r.Rounding.Outputs > 1e-6 && r.Rounding.Outputs < 0.2) {
			t.Errorf("%s: outputs differ by %g", c.name, r.Rounding.Outputs)
		}
		heads, width := int64(2), int64(16)
		if strings.HasPrefix(c.name, "llama") && (r.ScaleBytes != 4*4*heads || r.BytesPerToken != 4*heads*width) {
			t.Errorf("%s: %d bytes per token, %d of scales per block", c.name, r.BytesPerToken, r.ScaleBytes)
		}
		rewritetest.CheckOrder(t, m)
		if n := rewritetest.CountOps(m); n["QPagedAttention"] != 2 || n["PagedAttention"] != 0 {
			t.Errorf("%s: %v", c.name, n)
		}
		outputs := onnx.Names(m.Graph.Outputs)
		for _, name := range r.Scales {
			v, out := m.Graph.Value(name), m.Graph.Value(strings.Replace(name, "past", "present", 1))
			for _, v := range []*onnx.Value{v, out} {
				if ty, _ := v.Type(); ty.DataType != onnx.Float || len(ty.Dims) != 2 || ty.Dims[1].Value < 1 {
					t.Errorf("%s: %s is %s", c.name, v.Name, ty)
				}
			}
			if !slices.Contains(outputs, out.Name) {
				t.Errorf("%s: %s is no output", c.name, out.Name)
			}
		}
	}
}

// TestWrongCodes: a pool that is read with other scales, or that is not written, is an error.
func TestWrongCodes(t *testing.T) {
	swap := func(a, b int) func(*edit.Change, *onnx.Node) {
		return func(c *edit.Change, n *onnx.Node) {
			x, y := n.Input(a), n.Input(b)
			c.SetInput(n, a, y)
			c.SetInput(n, b, x)
		}
	}
	for want, change := range map[string]func(*edit.Change, *onnx.Node){
		"pools of int8, step 1: key 0 of sequence 0": swap(fused.QPagedAttentionK, fused.QPagedAttentionV),
		"pools of int8, step 2: key 4 of sequence 0": swap(fused.QPagedAttentionKeyScale,
			fused.QPagedAttentionValueScale),
		"pools of int8, step 1: the result of token": func(c *edit.Change, n *onnx.Node) {
			c.SetAttr(n, onnx.FloatAttr(fused.AttrScale, 40))
		},
	} {
		m := rewritetest.ReadModel(t, "llama-kv-dynamo-fp32")
		facts := infer.Analyze(m)
		applytest.Apply(t, m)
		c, b := buffers(t, m, facts, onnx.Int8, false)
		err := c.ApplyCoded(b, func(m *onnx.Model) {
			var c edit.Change
			for _, n := range m.Graph.Nodes {
				if n.OpType == fused.QPagedAttentionName {
					change(&c, n)
					break
				}
			}
			if err := c.Finish(); err != nil {
				t.Fatal(err)
			}
		})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
}

// TestParseType parses the types of pools.
func TestParseType(t *testing.T) {
	for s, want := range map[string]onnx.DataType{"": onnx.Undefined, "int8": onnx.Int8, "fp8": onnx.Float8E4M3FN} {
		if got, err := pagedcache.ParseType(s); got != want || err != nil {
			t.Errorf("%q: %v, %v", s, got, err)
		}
	}
	if _, err := pagedcache.ParseType("q4"); err == nil || err.Error() != `"q4": must be fp8 or int8` {
		t.Errorf("got %v", err)
	}
}
