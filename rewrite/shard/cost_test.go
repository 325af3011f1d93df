package shard_test

import (
	"encoding/json"
	"math"
	"strings"
	"testing"

	"github.com/mojo-patch/mojo-patch/rewrite/shard"
)

// TestCost: a mixture of experts reads only the chosen experts, ranks read parts of them, and the estimate is the sum
// of reads and operations.
func TestCost(t *testing.T) {
	m := patched(t, "moe-loop-ts-fp32")
	p, err := shard.New(m, shard.Options{Ranks: 2, Experts: shard.Split, Least: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	c := p.Cost
	b := p.Blocks[0]
	chosen, others := 2*b.Saved, int64(0) // halves of the experts are saved
	for _, w := range p.Whole {
		others += w.Bytes
	}
	if all := p.Before - others; chosen <= 0 || chosen >= all || c.Whole-c.Rank != b.Saved {
		t.Errorf("%d bytes of at most %d in experts are read; a rank saves %d of %d", chosen, all, b.Saved,
			c.Whole-c.Rank)
	}
	for i, e := range c.Estimates {
		want := float64(c.Whole-chosen+chosen/e.Ranks) / c.Device.Bandwidth
		if e.Ranks > 1 {
			want += float64(c.Collectives) * c.Device.Latency
		}
		if e.Ranks != 1<<i || math.Abs(e.Seconds-want) > 1e-12 {
			t.Errorf("%d ranks: %g seconds instead of %g", e.Ranks, e.Seconds, want)
		}
	}
	if n := len(c.Estimates); n != 7 || c.Collectives != 1 {
		t.Errorf("%d estimates, %d operations", n, c.Collectives)
	}
	if p.Loss(&b) <= 0 || p.Loss(&shard.Block{Saved: 1 << 30}) >= 0 {
		t.Error("a block of some KB saves more than it costs, or one of 1 GB less")
	}
}

// TestSlices: a sum of 128 bytes per token is read and written, three quarters of it by other ranks. An
// operation takes as long as that for so many tokens.
func TestSlices(t *testing.T) {
	m := patched(t, "gptoss-batched_mm-dynamo-fp32")
	p, err := shard.New(m, shard.Options{Ranks: 4, Experts: shard.Spread, Least: 1 << 20})
	if err != nil || p.Cost.Slices != int64(math.Round(4.4e-6*4.8e12/(2*128*0.75))) {
		t.Errorf("%v, slices pay from %d tokens", err, p.Cost.Slices)
	}
}

// TestEdited: an unchanged plan gives the same plan. A block that is deleted from it stays whole, and one that the
// model lacks is named.
func TestEdited(t *testing.T) {
	m := patched(t, "llama-kv-dynamo-fp32")
	o := shard.Options{Ranks: 2, Experts: shard.Split, Least: 1024}
	p, err := shard.New(m, o)
	if err != nil {
		t.Fatal(err)
	}
	edit := func(change func(e *shard.Plan)) (*shard.Plan, error) {
		text, err := json.Marshal(p)
		if err != nil {
			t.Fatal(err)
		}
		o.Edited = &shard.Plan{}
		if err := json.Unmarshal(text, o.Edited); err != nil {
			t.Fatal(err)
		}
		change(o.Edited)
		return shard.New(m, o)
	}
	same, err := edit(func(*shard.Plan) {})
	if err != nil || same.Digest != p.Digest {
		t.Errorf("an unchanged plan gives another one: %v", err)
	}
	deleted := p.Blocks[1]
	fewer, err := edit(func(e *shard.Plan) { e.Blocks = append(e.Blocks[:1], e.Blocks[2:]...) })
	if err != nil || len(fewer.Blocks) != len(p.Blocks)-1 || fewer.Digest == p.Digest {
		t.Fatalf("%d of %d blocks after one was deleted: %v", len(fewer.Blocks), len(p.Blocks), err)
	}
	equal(t, m, fewer)
	for _, w := range deleted.Weights {
		found := false
		for _, c := range fewer.Whole {
			found = found || c.Name == w.Name && strings.Contains(c.Reason, "the given plan lacks the block")
		}
		for _, v := range m.Graph.Initializers() {
			if v.Name == w.Name && !found && v.Const.Size() > 4096 {
				t.Errorf("%s is not listed as whole", w.Name)
			}
		}
	}
	if _, err = edit(func(e *shard.Plan) { e.Blocks[0].Last = "elsewhere" }); err == nil ||
		!strings.Contains(err.Error(), `to "elsewhere"`) {
		t.Errorf("the error is %v", err)
	}
}
