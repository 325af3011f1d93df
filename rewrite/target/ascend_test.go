package target

import (
	"strings"
	"testing"

	"github.com/mojo-patch/mojo-patch/fused"
	"github.com/mojo-patch/mojo-patch/onnx"
)

// stays expects the target to keep the op unchanged.
func stays(t *testing.T, to *Target, s site) {
	t.Helper()
	g, n, _ := s.graph(t, 17)
	before := g.Text()
	if _, err := s.write(to, n, 17); err != nil {
		t.Errorf("%s: %s: %v", to.Name, s.op, err)
	}
	if after := g.Text(); after != before {
		t.Errorf("%s: the graph was changed:\n%s\nbefore:\n%s", to.Name, after, before)
	}
}

func TestAscend(t *testing.T) {
	types := func(ts ...onnx.DataType) []onnx.DataType { return ts }
	x, w := []int64{2, -1, 16}, []int64{16}
	rotary := func(interleaved, dim int64) site {
		return rotarySite(interleaved, dim, "first", "halves", []int64{2, 3, -1, 1024},
			[]int64{2, 1, -1, dim}).typed(f16, f16, f16)
	}
	moe := func(x, experts onnx.DataType, gateUp, down []int64) site {
		return site{op: "MoE", attrs: moeAttributes("silu", 1, 0, 0, "halves", "out_in", "out_in"),
			types: types(x, f32, onnx.Int64, experts, experts),
			dims:  [][]int64{{-1, down[1]}, {-1, 2}, {-1, 2}, gateUp, down}}
	}

	for _, to := range []*Target{ascend, ascend310p} {
		stays(t, to, normSite("RMSNorm", 0, types(f16, f16), x, w))
		stays(t, to, normSite("AddRMSNorm", 1, types(f32, f32, f32), x, x, w))
		stays(t, to, gluSite("gelu", 1, 0, 0, f16))
		stays(t, to, rotary(0, 128))
	}
	stays(t, ascend, normSite("RMSNorm", 0, types(bf16, f32), x, w))
	stays(t, ascend, rotary(1, 894))
	open(t, ascend, rotary(0, 896), "less than 896")
	stays(t, ascend, moe(bf16, bf16, []int64{1024, 64, 32}, []int64{1024, 32, 32}))
	attends := attend{layouts: "thht", causal: 1, window: 4, keys: 5, valid: true, empty: "mean", typ: bf16}
	stays(t, ascend, attends.site())
	for words, a := range map[string]attend{"has sinks": {layouts: "hhhh", sink: true},
		"has a bias": {layouts: "hhhh", bias: true}, "has a softcap": {layouts: "hhhh", softcap: 1},
		"a cache in place": {layouts: "hhhh", keys: 5, set: true},
		"are not adjacent": {layouts: "hhhh", order: "cyclic"}} {
		open(t, ascend, a.site(), words)
	}
	wide := attend{layouts: "hhhh"}.site()
	wide.dims[fused.AttentionV][3] = 6
	open(t, ascend, wide, "one width")
	open(t, ascend310p, attends.site(), "has nothing for mojo.Attention")
	open(t, ascend, moe(bf16, f16, []int64{8, 64, 32}, []int64{8, 32, 32}), "matrices of one type")
	open(t, ascend, moe(f16, f16, []int64{1025, 64, 32}, []int64{1025, 32, 32}), "at most 1024")
	open(t, ascend, moe(f16, f16, []int64{8, 65536, 32}, []int64{8, 32, 32768}), "65536 x 32")
	open(t, ascend, moe(f16, f16, []int64{1, 64, 32}, []int64{1, 32, 32}), "2 of 1 experts")

	open(t, ascend310p, normSite("RMSNorm", 0, types(bf16, bf16), x, w), "bfloat16")
	open(t, ascend310p, normSite("AddRMSNorm", 0, types(f16, f16, f32), x, x, w), "one type")
	open(t, ascend310p, normSite("RMSNorm", 0, types(f16, f16), []int64{2, 8}, []int64{8}), "32 bytes")
	open(t, ascend310p, rotary(1, 128), "interleaved")
	open(t, ascend310p, rotary(0, 48), "32, 64, 96 and 128")
	open(t, ascend310p, moe(f16, f16, []int64{8, 64, 32}, []int64{8, 32, 32}), "has nothing for mojo.MoE")
	// The bounds themselves are taken.
	stays(t, ascend, moe(f16, f16, []int64{2, 65534, 65535}, []int64{2, 65535, 32767}))
	open(t, ascend, moe(f16, f16, []int64{8, 64, 65536}, []int64{8, 65536, 32}), "64 x 65536")
	shaped := func(heads, width int64) site {
		s := attend{layouts: "thhh"}.site()
		q := s.dims[fused.AttentionQ]
		q[2], q[3], s.dims[fused.AttentionK][3], s.dims[fused.AttentionV][3] = heads, width, width, width
		return s
	}
	stays(t, ascend, shaped(256, 768))
	open(t, ascend, shaped(258, 768), "there are 258 heads; aclnnFlashAttentionScore takes at most 256")
	open(t, ascend, shaped(256, 769), "takes one width, up to 768")
	stays(t, ascend310p, rotary(0, 32))
	open(t, ascend310p, rotary(0, 160), "it rotates 160 channels")
	open(t, ascend310p, normSite("AddRMSNorm", 0, types(bf16, bf16, bf16), x, x, w), "input 0 is bfloat16")
	for want, r := range map[string]*CANNReport{"": nil,
		"Expand added       for 2 nodes with both inputs broadcast, which onnxruntime's CANN provider gets wrong\n": {
			Expanded: 2},
		"MatMul for Gemm    in 1 nodes without C, for which that provider adds uninitialized memory\n": {MatMuls: 1}} {
		if got := r.Text(); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
	for _, r := range ascend.Rules {
		if !strings.HasPrefix(r.Emits, "aclnn") {
			t.Errorf("%s: %q names no call of CANN", r.Op, r.Emits)
		}
	}
}
