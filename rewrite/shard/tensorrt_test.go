package shard_test

import (
	"fmt"
	"maps"
	"strings"
	"testing"

	"github.com/mojo-patch/mojo-patch/fused"
	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/rewrite"
	"github.com/mojo-patch/mojo-patch/rewrite/shard"
)

// patched reads a bundled model and replaces its blocks.
func patched(t *testing.T, name string) *onnx.Model {
	t.Helper()
	m, err := onnx.Read("../../models/" + name + ".onnx")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.Close() })
	if _, err := rewrite.Apply(m, rewrite.Request{AssumeAvailable: true, Verify: rewrite.VerifyOff}); err != nil {
		t.Fatal(err)
	}
	return m
}

// TestTensorRT: models for TensorRT have its collective operation, with the attributes that its reference lists, and
// no fused op. All ranks together compute the outputs of the whole model.
func TestTensorRT(t *testing.T) {
	for name, ranks := range map[string]int64{"llama-kv-dynamo-fp32": 2, "moe-loop-ts-fp32": 2, "gemma2-ts-fp32": 3} {
		common := fmt.Sprintf(" root=-1 nb_rank=%d group_size=0 groups=[]", ranks)
		want := map[string]string{"all_reduce": "reduce_op=sum" + common, "all_gather": "reduce_op=none" + common}
		m := patched(t, name)
		p, err := shard.New(m, shard.Options{Ranks: ranks, Experts: shard.Split, Least: 1024, Form: shard.TensorRT})
		if err != nil {
			t.Fatal(err)
		}
		equal(t, m, p)
		rank, err := p.Model(1)
		if err != nil {
			t.Fatal(err)
		}
		seen := map[string]int{}
		for _, n := range rank.Graph.Nodes {
			if !onnx.IsStandardDomain(n.Domain) {
				t.Errorf("%s: node %q is %s", name, n.Label(), onnx.OpName(n.Domain, n.OpType))
			}
			if n.OpType != "DistCollective" {
				continue
			}
			operation := n.AttrString("collective_operation", "")
			seen[operation]++
			text := fmt.Sprintf("reduce_op=%s root=%d nb_rank=%d group_size=%d groups=%v",
				n.AttrString("reduce_op", ""), n.AttrInt("root", 0), n.AttrInt("nb_rank", 0),
				n.AttrInt("group_size", 9), n.AttrInts("groups"))
			if text != want[operation] || len(n.Attributes) != 6 || n.Attr("groups").Type != onnx.AttrInts {
				t.Errorf("%s: %s has %s", name, operation, text)
			}
		}
		planned := map[string]int{}
		operations := map[string]string{fused.AllReduceName: "all_reduce", fused.AllGatherName: "all_gather"}
		for _, b := range p.Blocks {
			for _, c := range b.Collectives {
				planned[operations[c.Op]]++
			}
		}
		if !maps.Equal(seen, planned) || len(rank.Functions) > 0 || rank.Opset(fused.Domain) > 0 {
			t.Errorf("%s: %v instead of %v, %d functions", name, seen, planned, len(rank.Functions))
		}
	}
}

// TestTensorRTRefuses: a fused op without a body is named.
func TestTensorRTRefuses(t *testing.T) {
	m := patched(t, "llama-kv-dynamo-fp32")
	p, err := shard.New(m, shard.Options{Ranks: 2, Experts: shard.Split, Least: 1024, Form: shard.TensorRT})
	if err != nil {
		t.Fatal(err)
	}
	m.Functions = nil
	if _, err = p.Model(0); err == nil || !strings.Contains(err.Error(), "TensorRT has no mojo.") {
		t.Errorf("the error is %v", err)
	}
}
