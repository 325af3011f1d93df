package shard

import (
	"slices"
	"testing"

	"github.com/mojo-patch/mojo-patch/fused"
	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/reference/infer"
	"github.com/mojo-patch/mojo-patch/rewrite"
)

// merged returns a decoder with a branch for prompts and one for steps.
func merged(t *testing.T) *onnx.Model {
	t.Helper()
	m, err := onnx.Read("../../models/llama-merged-ts-fp32.onnx")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.Close() })
	if _, err := rewrite.Apply(m, rewrite.Request{AssumeAvailable: true, Verify: rewrite.VerifyOff}); err != nil {
		t.Fatal(err)
	}
	return m
}

// attending returns the blocks with attention, by graph.
func attending(blocks []*block) map[*onnx.Graph][]*block {
	found := map[*onnx.Graph][]*block{}
	for _, b := range blocks {
		for n := range b.nodes {
			if n.Domain == fused.Domain && n.OpType == fused.AttentionName {
				found[b.graph] = append(found[b.graph], b)
			}
		}
	}
	return found
}

// TestBranches: the caches of a decoder are in parts whichever branch runs, also if ranks share heads of keys.
func TestBranches(t *testing.T) {
	m := merged(t)
	for _, ranks := range []int64{2, 4} {
		p, err := New(m, Options{Ranks: ranks, Experts: Split, Least: 1024})
		if err != nil {
			t.Fatal(err)
		}
		if len(p.Blocks) != 12 || len(p.Inputs) != 4 || len(p.Outputs) != 4 || p.Cost.Collectives != 6 {
			t.Errorf("%d ranks: %d blocks, the divided inputs %v, outputs %v, and %d operations in a step", ranks,
				len(p.Blocks), p.Inputs, p.Outputs, p.Cost.Collectives)
		}
	}
}

// TestBranchesAgree: attention of one branch stays whole if that of the other one does or divides its cache otherwise.
// If the branch for prompts gathers its caches, only the branch for steps stays whole.
func TestBranchesAgree(t *testing.T) {
	m := merged(t)
	for _, fault := range []struct {
		name  string
		left  int
		spoil func(b *block)
	}{
		{"a cache that one branch gathers", 1, func(b *block) { clear(b.kept) }},
		{"another part of a cache", 0, func(b *block) {
			for v := range b.kept {
				b.held[v] = b.held[v].at(3)
			}
		}},
	} {
		f := newFinder(m, infer.Analyze(m), Options{Ranks: 2, Experts: Split, Least: 1024})
		f.find()
		all := attending(f.blocks)
		if len(all) != 2 || len(agreed(f.blocks, f.reasons)) != len(f.blocks) {
			t.Fatalf("attention is divided in %d branches instead of 2", len(all))
		}
		for _, list := range all {
			for _, b := range list {
				if len(b.kept) > 0 { // of the branch for prompts
					fault.spoil(b)
				}
			}
		}
		if left := attending(agreed(f.blocks, f.reasons)); len(left) != fault.left {
			t.Errorf("%s: attention is divided in %d branches instead of %d", fault.name, len(left), fault.left)
		}
	}
	p, err := New(m, Options{Ranks: 2, Experts: Split, Least: 1024})
	if err != nil {
		t.Fatal(err)
	}
	edited := *p
	edited.Blocks = slices.DeleteFunc(slices.Clone(p.Blocks), func(b Block) bool {
		return b.First == p.Blocks[0].First // attention of the branch for prompts
	})
	less, err := New(m, Options{Ranks: 2, Experts: Split, Least: 1024, Edited: &edited})
	if err != nil || len(less.Blocks) != len(p.Blocks)-2 || len(less.Inputs) != 2 {
		t.Errorf("without the first block: %v, %d of %d blocks, caches %v", err, len(less.Blocks), len(p.Blocks),
			less.Inputs)
	}
}
