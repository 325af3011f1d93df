// Package plans prints plans of sharded models for shard and inspect.
package plans

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/mojo-patch/mojo-patch/cmd/mojo-patch/cli"
	"github.com/mojo-patch/mojo-patch/internal/english"
	"github.com/mojo-patch/mojo-patch/rewrite/shard"
)

// Say prints a plan: the weights of a rank and the collective operations of a step. With all it also prints each block,
// and the weights that stay whole.
func Say(a *cli.App, p *shard.Plan, all bool) {
	runtime := map[shard.Form]string{shard.TensorRT: ", collectives tensorrt"}[p.Form]
	a.Say("ranks     %d, experts %s%s", p.Ranks, p.Experts, runtime)
	a.Say("weights   %s per rank, of %s", english.Bytes(p.Bytes), english.Bytes(p.Before))
	a.Say("blocks    %s", strings.TrimSuffix(fmt.Sprintf("%d divided; %s", len(p.Blocks), collectives(p)), "; "))
	assumed := 0
	for _, b := range p.Blocks {
		if strings.HasPrefix(b.Proof, shard.Assumed) {
			assumed++
		}
	}
	if assumed > 0 {
		a.Say("assumed   %s not compared with the whole: too large to be evaluated", cli.Counted(assumed, "block"))
	}
	split := len(p.Inputs) + len(p.Outputs)
	if split > 0 {
		a.Say("caches    %d inputs and %d outputs, of which each rank has a part", len(p.Inputs), len(p.Outputs))
	}
	whole := int64(0)
	for _, c := range p.Whole {
		whole += c.Bytes
	}
	if whole > 0 {
		a.Say("whole     %s of %s on every rank", english.Bytes(whole), cli.Counted(len(p.Whole), "weight"))
	}
	if all {
		explain(a, p)
	}
}

// collectives counts the operations of a step by kind.
func collectives(p *shard.Plan) string {
	counts, bytes := map[string]int{}, map[string]int64{}
	for _, b := range p.Blocks {
		for _, c := range b.Collectives {
			counts[c.Op]++
			bytes[c.Op] += c.Bytes
		}
	}
	var list []string
	for _, op := range slices.Sorted(maps.Keys(counts)) {
		list = append(list, fmt.Sprintf("%d %s of %s per token in all", counts[op], op, english.Bytes(bytes[op])))
	}
	return strings.Join(list, ", ")
}

func explain(a *cli.App, p *shard.Plan) {
	t := cli.NewTable("block", ">nodes", "weights", "joined by", "compared")
	for _, b := range p.Blocks {
		var weights, joins []string
		for _, w := range b.Weights {
			weights = append(weights, weight(w))
		}
		for _, c := range b.Collectives {
			joins = append(joins, fmt.Sprintf("%s of %s (%s per token)", c.Op, c.Value, english.Bytes(c.Bytes)))
		}
		n := max(len(weights), len(joins), 1)
		for i := range n {
			name, nodes, proof := "", "", ""
			if i == 0 {
				name, nodes, proof = b.First, fmt.Sprint(b.Nodes), b.Proof
			}
			t.Add(name, nodes, at(weights, i), at(joins, i), proof)
		}
	}
	t.Write(a.Human())
	estimate(a, p)
	for _, node := range slices.Sorted(maps.Keys(p.Undivided)) {
		a.Say("every rank computes all of %s: %s", node, p.Undivided[node])
	}
	if len(p.Whole) == 0 {
		return
	}
	t = cli.NewTable("whole on every rank", ">bytes", "reason")
	for _, c := range p.Whole {
		t.Add(c.Name, c.Bytes, cmp.Or(c.Reason, "no block divides it"))
	}
	t.Write(a.Human())
}

// estimate prints the time of a step on paper, and the blocks that take more time than they save.
func estimate(a *cli.App, p *shard.Plan) {
	c := p.Cost
	a.Say("a step with one token reads %s of weights per rank, of %s, and has %s of %s", english.Bytes(c.Rank),
		english.Bytes(c.Whole), cli.Counted(c.Collectives, "collective operation"), english.Bytes(c.Bytes))
	t := cli.NewTable(">ranks", ">weights read", ">microseconds on paper")
	for _, e := range c.Estimates {
		t.Add(e.Ranks, english.Bytes(e.Read), fmt.Sprintf("%.1f", e.Seconds*1e6))
	}
	t.Write(a.Human())
	a.Say("on paper: %s, memory %s per second, %.1f us per collective operation", c.Device.Name,
		english.Bytes(int64(c.Device.Bandwidth)), c.Device.Latency*1e6)
	if c.Slices > 0 {
		a.Say("prompts of %d tokens and more would take less time, on paper, with norms of slices of tokens between "+
			"ReduceScatter and AllGather; plans do not have them", c.Slices)
	}
	for i := range p.Blocks {
		if loss := p.Loss(&p.Blocks[i]); p.Ranks > 1 && loss > 0 {
			a.Say("the block from %s takes %.1f us longer than whole, on paper: it saves reads of %s per token",
				p.Blocks[i].First, loss*1e6, english.Bytes(p.Blocks[i].Saved))
		}
	}
}

func at(list []string, i int) string {
	if i < len(list) {
		return list[i]
	}
	return ""
}

func weight(w shard.Weight) string {
	if w.Once {
		return w.Name + " on rank 0 only"
	}
	text := fmt.Sprintf("%s by axis %d", w.Name, w.Axis)
	if w.Runs != nil {
		text += fmt.Sprintf(" in pieces of %v", w.Runs)
	}
	if w.Pieces != nil {
		text += ", divided in different ways"
	}
	if w.Units > 0 {
		text += fmt.Sprintf(" in %d units", w.Units)
	}
	if w.Ranges != nil {
		text += fmt.Sprintf(", %v (first, count) by rank", w.Ranges)
	}
	if w.Copies > 1 {
		text += fmt.Sprintf(", each part on %d ranks", w.Copies)
	}
	return text
}

// Result is the result of shard, and of inspect for a folder of shard.
type Result struct {
	Schema int         `json:"schema"`
	Folder string      `json:"folder"`
	Plan   *shard.Plan `json:"plan"`
}

// NewResult returns the result for a folder.
func NewResult(folder string, p *shard.Plan) *Result { return &Result{cli.JSONSchema, folder, p} }
