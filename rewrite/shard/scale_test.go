package shard

import (
	"encoding/binary"
	"math"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/mojo-patch/mojo-patch/fused"
	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/onnx/onnxtest"
	"github.com/mojo-patch/mojo-patch/reference/infer"
)

// TestScale divides layers with large weights, whose elements are computed when they are read. The proof reads those
// that it uses, once for the whole and once for the ranks, and holds few: it allocates a fraction of their size.
func TestScale(t *testing.T) {
	var read atomic.Int64
	m := &maker{Builder: onnxtest.New(20), t: t}
	weight := func(dims ...int64) *onnx.Value {
		m.count++
		seed := uint64(m.count)
		w, err := onnx.NewComputed("w", onnx.Float, dims, func(dst []byte, first int64) error {
			read.Add(int64(len(dst)))
			for i := range len(dst) / 4 {
				x := (uint64(first) + uint64(i) + seed<<40) * 0x9e3779b97f4a7c15
				binary.LittleEndian.PutUint32(dst[4*i:], math.Float32bits(float32(int32(x>>32))/(1<<36)))
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		return m.Graph.AddInitializer(w)
	}
	const hidden, width, experts = 512, 1024, 64
	x := m.Input("x", onnx.Float, "batch", "sequence", hidden)
	transposed := m.Op("Transpose", weight(16*width, hidden), onnx.IntsAttr("perm", []int64{1, 0}))
	x = m.Op("MatMul", m.Op("Relu", m.Op("MatMul", x, transposed)), weight(16*width, hidden))
	weights := m.Input("weights", onnx.Float, "batch", "sequence", 2)
	ids := m.Input("ids", onnx.Int64, "batch", "sequence", 2)
	moe := fused.MoE{GLU: fused.GLU{Activation: "silu", Alpha: 1}, Packing: "halves", GateUpLayout: "out_in",
		DownLayout: "out_in"}
	m.Output(m.fused(1, moe, x, weights, ids, weight(experts, 2*width, hidden), weight(experts, hidden, width))[0])

	for _, how := range []Experts{Split, Spread} {
		read.Store(0)
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		p, err := New(m.Model, Options{Ranks: 4, Experts: how, Least: 1 << 20})
		runtime.ReadMemStats(&after)
		if err != nil {
			t.Fatal(err)
		}
		if len(p.Blocks) != 2 || p.Bytes*4 > p.Before+1<<20 {
			t.Errorf("%s: %d blocks, %d of %d bytes on a rank", how, len(p.Blocks), p.Bytes, p.Before)
		}
		for _, b := range p.Blocks {
			if !strings.Contains(b.Proof, "equal to the whole") {
				t.Errorf("%s: the block of %s: %s", how, b.First, b.Proof)
			}
		}
		allocated := int64(after.TotalAlloc - before.TotalAlloc)
		t.Logf("%s: weights of %d MiB, %d MiB read, %d MiB allocated", how, p.Before>>20, read.Load()>>20,
			allocated>>20)
		if allocated > p.Before/4 {
			t.Errorf("%s: %d bytes allocated for weights of %d", how, allocated, p.Before)
		}
		if read.Load() > 2*p.Before {
			t.Errorf("%s: %d bytes read of weights of %d", how, read.Load(), p.Before)
		}
	}
}

// TestAssumed: a block whose packed weights are too large to be evaluated says so, and another one is compared.
func TestAssumed(t *testing.T) {
	m := &maker{Builder: onnxtest.New(20), t: t}
	codes := func(rows, columns int64) *onnx.Value {
		c, err := onnx.NewTensor("codes", onnx.Int8, []int64{rows, columns}, make([]byte, rows*columns))
		if err != nil {
			t.Fatal(err)
		}
		return m.Op("Cast", m.Graph.AddInitializer(c), onnx.IntAttr("to", int64(onnx.Float)))
	}
	x := m.Input("x", onnx.Float, "batch", "sequence", 16)
	m.Output(m.Op("MatMul", m.Op("Relu", m.Op("MatMul", x, codes(16, 32))), codes(32, 16)))
	facts := infer.Analyze(m.Model)
	f := newFinder(m.Model, facts, Options{Ranks: 2, Experts: Split, Least: 1024})
	f.find()
	if len(f.blocks) != 1 {
		t.Fatal(len(f.blocks), "blocks:", f.reasons)
	}
	for most, want := range map[int64]string{511: Assumed, 512: "all ranks evaluated"} {
		p := newProofs(m.Model, facts)
		p.mostPacked = most
		if proof, err := p.prove(f.blocks[0]); err != nil || !strings.HasPrefix(proof, want) {
			t.Errorf("up to %d elements: %q, %v instead of %q", most, proof, err, want)
		}
	}
}
