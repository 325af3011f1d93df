package shard

import (
	"path/filepath"
	"slices"
	"testing"

	"github.com/mojo-patch/mojo-patch/fused"
	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/reference/infer"
	"github.com/mojo-patch/mojo-patch/rewrite"
)

// A fault is a wrong division. spoil changes a block that is right, and reports whether the block has what it spoils.
type fault struct {
	name  string
	spoil func(b *block) bool
}

// weightsOf lists the divided constants whose reader is a node of one of these ops.
func weightsOf(b *block, ops ...string) (list []onnx.Use) {
	for _, n := range b.inOrder() {
		for i := range n.Inputs {
			u := onnx.Use{Node: n, Index: i}
			if _, ok := b.weights[u]; ok && (len(ops) == 0 || slices.Contains(ops, n.OpType)) {
				list = append(list, u)
			}
		}
	}
	return list
}

// other divides a constant in another way: the function changes its layout, or returns false.
func other(ops []string, index int, change func(b *block, u onnx.Use, l *Layout) bool) func(*block) bool {
	return func(b *block) bool {
		for _, u := range weightsOf(b, ops...) {
			l := b.weights[u]
			if index >= 0 && u.Index != index || !change(b, u, &l) {
				continue
			}
			dims := u.Node.Inputs[u.Index].Constant().Dims
			if l.Axis < len(dims) && l.fits(dims[l.Axis], b.ranks) == nil {
				b.weights[u] = l // only one, because the same order of all is right
				return true
			}
		}
		return false
	}
}

// otherAxis divides another axis of equal size.
func otherAxis(b *block, u onnx.Use, l *Layout) bool {
	dims := u.Node.Inputs[u.Index].Constant().Dims
	for axis, d := range dims {
		if axis != l.Axis && d == dims[l.Axis] {
			l.Axis = axis
			return true
		}
	}
	return false
}

func oneRun(_ *block, _ onnx.Use, l *Layout) bool {
	spoils := l.Runs != nil
	l.Runs, l.Pieces = nil, nil
	return spoils
}

// twoRuns divides an axis as if it held two tensors.
func twoRuns(_ *block, u onnx.Use, l *Layout) bool {
	size := u.Node.Inputs[u.Index].Constant().Dims[l.Axis]
	spoils := l.Runs == nil && size%2 == 0
	l.Runs = []int64{size / 2, size / 2}
	return spoils
}

// copied gives all ranks the first part.
func copied(b *block, _ onnx.Use, l *Layout) bool {
	spoils := l.Copies <= 1 && l.Ranges == nil && l.Pieces == nil
	l.Copies = b.ranks
	return spoils
}

// dropped makes a set of a block empty.
func dropped[K comparable, V any](of func(*block) map[K]V) func(*block) bool {
	return func(b *block) bool {
		m := of(b)
		some := len(m) > 0
		clear(m)
		return some
	}
}

// ranged divides an axis by ranges: of equal parts of so many units for each rank.
func ranged(units func(ranks int64) int64, change func(ranges [][2]int64)) func(*block, onnx.Use, *Layout) bool {
	return func(b *block, _ onnx.Use, l *Layout) bool {
		if l.Units > 0 || l.Copies > 1 || l.Runs != nil {
			return false
		}
		l.Units = units(b.ranks)
		for r := range b.ranks {
			l.Ranges = append(l.Ranges, [2]int64{r * l.Units / b.ranks, l.Units / b.ranks})
		}
		change(l.Ranges)
		return true
	}
}

// inReverse gives the first rank the last part, and so on.
var inReverse = ranged(func(ranks int64) int64 { return ranks }, slices.Reverse[[][2]int64])

// late lets the part of rank 0 begin behind its first half.
var late = ranged(func(ranks int64) int64 { return 2 * ranks }, func(ranges [][2]int64) { ranges[0][0]++ })

func swapRuns(_ *block, _ onnx.Use, l *Layout) bool {
	if len(l.Runs) < 2 || l.Runs[0] == l.Runs[len(l.Runs)-1] {
		return false
	}
	l.Runs = slices.Clone(l.Runs)
	slices.Reverse(l.Runs)
	return true
}

var quantizedOps = []string{fused.LinearName}

var products = []string{"MatMul", "Gemm", fused.HalfLinearName}

var faults = []fault{
	{"no reduction", dropped(func(b *block) map[*onnx.Value]bool { return b.sums })},
	{"no gathering", dropped(func(b *block) map[onnx.Use]bool { return b.gathered })},
	{"a bias on every rank", dropped(func(b *block) map[onnx.Use]bool { return b.once })},
	{"shapes of the whole", dropped(func(b *block) map[onnx.Use]map[int]Layout { return b.divided })},
	{"attributes of the whole", dropped(func(b *block) map[*onnx.Node]map[string]Layout { return b.attrs })},
	{"ids of experts not renumbered", dropped(func(b *block) map[*onnx.Node]bool { return b.experts })},
	{"ids of tokens not renumbered", dropped(func(b *block) map[*onnx.Node]bool { return b.rows })},
	{"slices not taken", dropped(func(b *block) map[onnx.Use]Layout { return b.taken })},
	{"weights whole", dropped(func(b *block) map[onnx.Use]Layout { return b.weights })},
	{"equal parts of units", other(nil, -1, func(_ *block, _ onnx.Use, l *Layout) bool {
		spoils := l.Units > 0
		l.Units = 0
		return spoils
	})},
	{"other units", other(nil, -1, func(b *block, u onnx.Use, l *Layout) bool {
		old := l.Units
		l.Units = u.Node.Inputs[u.Index].Constant().Dims[l.Axis] / 4
		// Ids follow the units of their table, so other ones are right for a table alone.
		return old > 0 && l.Units != old && l.Units > b.ranks && !u.Node.Is("Gather")
	})},
	{"quantized rows in another order", other(quantizedOps, fused.LinearCodes, twoRuns)},
	{"the same quantized rows on every rank", other(quantizedOps, fused.LinearCodes, copied)},
	{"scales of other rows", other(quantizedOps, fused.LinearScale, copied)},
	{"quantized gate and up cut as one", other([]string{fused.QMoEName}, fused.QMoEGateUpCodes, oneRun)},
	{"quantized experts' other down projections", other([]string{fused.QMoEName}, fused.QMoEDownCodes, copied)},
	{"scales of a pool divided by blocks", func(b *block) bool {
		for v, l := range b.held {
			if v.IsInput && scalesPool(v) {
				b.held[v] = l.at(0)
				return true
			}
		}
		return false
	}},
	{"scales of a pool of other heads", func(b *block) bool {
		for v, l := range b.held {
			if v.IsInput && scalesPool(v) {
				l.Units, l.Runs = 0, []int64{b.ranks, 4 - b.ranks}
				b.held[v] = l
				return b.ranks == 2
			}
		}
		return false
	}},
	{"heads of other ranks", other(nil, -1, func(_ *block, _ onnx.Use, l *Layout) bool {
		old := l.Ranges
		l.Ranges = slices.Clone(old)
		slices.Reverse(l.Ranges)
		return !slices.Equal(l.Ranges, old)
	})},
	{"heads of keys divided as those of queries", other(nil, -1, func(_ *block, _ onnx.Use, l *Layout) bool {
		spoils := l.Pieces != nil
		l.Pieces = nil
		return spoils
	})},
	{"rows instead of columns", other(products, 1, otherAxis)},
	{"heads in another order", other(products, 1, twoRuns)},
	{"one part on every rank", other(products, 1, copied)},
	{"queries, keys, values cut as one", other(nil, -1, oneRun)},
	{"gate and up cut as one", other([]string{fused.MoEName}, fused.MoEGateUp, oneRun)},
	{"experts' biases cut as one", other([]string{fused.MoEName}, fused.MoEGateUpBias, oneRun)},
	{"pairs of gate and up cut as halves", other([]string{fused.MoEName}, fused.MoEGateUp, twoRuns)},
	{"the down projection's other axis", other([]string{fused.MoEName}, fused.MoEDown, otherAxis)},
	{"the gates' other axis", other([]string{fused.MoEName}, fused.MoEGateUp, otherAxis)},
	{"down projections in another order", other([]string{fused.MoEName}, fused.MoEDown, twoRuns)},
	{"the same experts on every rank", other([]string{fused.MoEName}, -1, copied)},
	{"the same channels of a convolution", other([]string{fused.CausalConvName}, -1, copied)},
	{"a convolution's channels cut as one", other([]string{fused.CausalConvName}, -1, oneRun)},
	{"a convolution's channels in another order", other([]string{fused.CausalConvName}, -1, swapRuns)},
	{"sinks of the first heads", other([]string{fused.AttentionName}, fused.AttentionSink, copied)},
	{"sinks in another order", other([]string{fused.AttentionName}, fused.AttentionSink, twoRuns)},
	{"latents' weights in another order", other([]string{fused.LatentAttentionName}, -1, twoRuns)},
	{"latents' weights of the first heads", other([]string{fused.LatentAttentionName}, -1, copied)},
	{"scales of a norm in another order", other([]string{fused.GatedRMSNormName}, -1, twoRuns)},
	{"a table's rows in another order", other([]string{"Gather"}, 0, twoRuns)},
	{"a table's first rows on every rank", other([]string{"Gather"}, 0, copied)},
	{"a table's columns", other([]string{"Gather"}, 0, otherAxis)},
	{"a bias of the first columns", other([]string{"Add", "Gemm"}, -1, copied)},
	{"a bias in another order", other([]string{"Add", "Gemm"}, -1, twoRuns)},
	{"a factor of the first channels", other([]string{"Mul"}, -1, copied)},
	{"one product whole", func(b *block) bool {
		list := weightsOf(b, products...)
		if len(list) == 0 {
			return false
		}
		delete(b.weights, list[len(list)-1])
		return true
	}},
	{"the last product in another order", func(b *block) bool {
		list := weightsOf(b, products...)
		if len(list) < 2 {
			return false
		}
		u := list[len(list)-1]
		l := b.weights[u]
		twoRuns(b, u, &l)
		b.weights[u] = l
		return l.fits(u.Node.Inputs[u.Index].Constant().Dims[l.Axis], b.ranks) == nil
	}},
	{"a partial sum added twice", func(b *block) bool {
		for v := range b.sums {
			if p := v.Producer; p != nil && p.Is("Add") && b.nodes[p] {
				b.sums[p.Inputs[0]] = true
				return true
			}
		}
		return false
	}},
	{"a partial sum gathered", func(b *block) bool {
		for v := range b.sums {
			delete(b.sums, v)
			b.held[v] = Layout{}
			return v.Producer != nil
		}
		return false
	}},
	{"a reduced value that was divided", func(b *block) bool {
		for v := range b.held {
			if b.isGathered(v) {
				delete(b.held, v)
				b.sums[v] = true
				return true
			}
		}
		return false
	}},
	{"gathered along another axis", func(b *block) bool {
		for v, l := range b.held {
			if b.isGathered(v) && l.Axis > 0 {
				b.held[v] = l.at(0)
				return true
			}
		}
		return false
	}},
	{"parts in the reverse order of ranks", other(products, 1, inReverse)},
	{"a part that begins later and overlaps the next one", other(products, 1, late)},
	{"biases and factors of another offset", other([]string{"Add", "Gemm", "Mul"}, -1, late)},
	{"experts' parts in the reverse order of ranks", other([]string{fused.MoEName}, -1, inReverse)},
	{"latents' weights of another offset", other([]string{fused.LatentAttentionName}, -1, late)},
	{"a norm's scales of other groups", other([]string{fused.GatedRMSNormName}, -1, inReverse)},
	{"a bias of the queries of other heads", other([]string{fused.AttentionName}, -1, inReverse)},
	{"a cache of other ranks' heads", func(b *block) bool {
		for v, l := range b.held {
			if v.IsInput && inReverse(b, onnx.Use{}, &l) {
				b.held[v] = l
				return true
			}
		}
		return false
	}},
	{"a cache divided by tokens", func(b *block) bool {
		for v, l := range b.held {
			if v.IsInput {
				b.held[v] = l.at(l.Axis ^ 3)
				return true
			}
		}
		return false
	}},
}

// TestFaults plants faults in right blocks: the comparison of the ranks with the whole must refuse each, and each must
// occur in a model.
func TestFaults(t *testing.T) {
	planted, uneven := map[string]int{}, map[string]int{}
	for name, m := range built(t) {
		plant(t, name, m, 2, planted)
		plant(t, name, m, 3, uneven)
	}
	files, err := filepath.Glob("../../models/*.onnx")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		m, err := onnx.Read(file)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := rewrite.Apply(m, rewrite.Request{AssumeAvailable: true, Verify: rewrite.VerifyOff}); err != nil {
			t.Fatal(err)
		}
		plant(t, filepath.Base(file), m, 2, planted)
		m.Close()
	}
	for _, fault := range faults {
		if planted[fault.name]+uneven[fault.name] == 0 {
			t.Errorf("no model has a block for %q", fault.name)
		}
	}
	t.Logf("%d kinds of faults", len(faults))
}

// plant plants each fault in the first blocks that have what it spoils.
func plant(t *testing.T, name string, m *onnx.Model, ranks int64, planted map[string]int) {
	facts := infer.Analyze(m)
	for _, experts := range []Experts{Split, Spread} {
		f := newFinder(m, facts, Options{Ranks: ranks, Experts: experts, Least: 1024})
		f.find()
		for _, b := range f.blocks {
			for _, fault := range faults {
				spoiled := b.clone()
				if planted[fault.name] >= 3 || !fault.spoil(spoiled) {
					continue
				}
				planted[fault.name]++
				for _, limit := range []int64{large, 0} { // also as large blocks are compared
					proofs := newProofs(m, facts)
					proofs.large = limit
					if _, err := proofs.prove(spoiled); err == nil {
						t.Errorf("%s, %d ranks: %q in the block of %q is not noticed (large from %d)", name, ranks,
							fault.name, b.inOrder()[0].Label(), limit)
					}
				}
			}
		}
	}
}
