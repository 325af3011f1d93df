package quantize

import (
	"encoding/binary"
	"math"
	"path/filepath"
	"testing"

	"github.com/mojo-patch/mojo-patch/fused"
	"github.com/mojo-patch/mojo-patch/internal/blocks"
	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/rewrite"
)

// TestFP8Block rounds a product's weight with 200 rows, the last 72 of which share scales, and experts with 144 rows,
// and reads the result: each panel of 16 rows has the scale of its 128 rows.
func TestFP8Block(t *testing.T) {
	const k, n, experts, inner = 256, 200, 3, 144
	m, b := newBuilder()
	x := b.input("x", onnx.Float, -1, k)
	b.AddOutput(b.node("MatMul", []*onnx.Value{x, b.weight("up", k, n)}))
	choice := b.input("ids", onnx.Int64, -1, 2)
	shares := b.input("shares", onnx.Float, -1, 2)
	y := b.node("MoE", []*onnx.Value{x, shares, choice, b.weight("gate_up", experts, inner, k),
		b.weight("down", experts, k, inner)}, fused.MoE{GLU: fused.GLU{Activation: "relu", Alpha: 1},
		Packing: "none", GateUpLayout: "out_in", DownLayout: "out_in"}.Attributes()...)
	y.Producer.Domain = fused.Domain
	b.AddOutput(y)
	m.ImportOpset(fused.Domain, fused.Version)
	p, err := Find(m, Options{Format: "fp8-block"})
	if err != nil {
		t.Fatal(err)
	}
	if len(p.Weights) != 2 || len(p.Skipped) != 1 || p.Skipped[0].Name != "down" { // rows of 144 are not whole blocks
		t.Fatalf("%+v", p.Skipped)
	}
	if bits := p.Weights[0].Bits; math.Abs(bits-8-32.0/16/128) > 1e-9 {
		t.Errorf("%v bits", bits)
	}
	p.Measure(nil, func(int, int) {})
	for _, w := range p.Weights {
		if !(w.RMS > 0.01 && w.RMS < 0.04) || w.Cosine < 0.999 {
			t.Errorf("%s: %v, %v", w.Name, w.RMS, w.Cosine)
		}
		rows := w.matrix.n / max(w.matrix.experts, 1)
		floats := make([]float32, w.matrix.n*k)
		if err := w.matrix.read(floats, 0); err != nil {
			t.Fatal(err)
		}
		for row := range w.matrix.n {
			first := row/rows*rows + row%rows/128*128
			last := min(first+128, row/rows*rows+rows)
			for block := range int64(k / 128) {
				most := float32(0)
				for r := first; r < last; r++ {
					for c := range int64(128) {
						most = max(most, float32(math.Abs(float64(floats[r*k+block*128+c]))))
					}
				}
				at := w.matrix.sharedOf(row)[block*int64(blocks.FP8Block.Size):]
				if d := math.Float32frombits(binary.LittleEndian.Uint32(at)); d != most/448 {
					t.Fatalf("%s: row %d, block %d: %v in place of %v", w.Name, row, block, d, most/448)
				}
			}
		}
	}
	r, err := p.Apply(rewrite.Request{})
	if err != nil || len(r.Kept) != 1 || r.Refuse[r.Kept[0]] != nil { // the experts' other matrix stays
		t.Fatalf("%v, %+v", err, r)
	}
	want, err := r.Kept[0].Matrix.Codes.Bytes()
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "m.onnx")
	if err := onnx.Write(path, m); err != nil {
		t.Fatal(err)
	}
	written, err := onnx.Read(path)
	if err != nil {
		t.Fatal(err)
	}
	defer written.Close()
	got, err := written.Graph.Value("up_codes").Const.Bytes()
	if err != nil || string(got) != string(want) {
		t.Errorf("other codes: %v", err)
	}
	scale, err := written.Graph.Value("up_scale").Const.Bytes()
	if err != nil || len(scale) != (n+15)/16*k/128*4 {
		t.Fatalf("%d bytes of scales: %v", len(scale), err)
	}
	w := p.Weights[0].matrix
	row, floats := make([]float32, k), make([]float32, n*k)
	if err := w.read(floats, 0); err != nil {
		t.Fatal(err)
	}
	panels := blocks.FP8Block.Panels()
	codes, scales, _, _, _ := panels.Sizes(k)
	for i := range int64(n) {
		at := i / 16
		panels.Decode(row, &blocks.Panel{Codes: got[at*codes:][:codes], Scale: scale[at*scales:][:scales]}, int(i%16))
		for j, v := range row {
			x := floats[i*k+int64(j)]
			d := math.Float32frombits(binary.LittleEndian.Uint32(w.sharedOf(i)[j/128*blocks.FP8Block.Size:]))
			if math.Abs(float64(v-x)) > max(math.Abs(float64(x))/16, float64(d)*0x1p-10)*1.0001 {
				t.Fatalf("element %d of row %d is %v in place of %v", j, i, v, x)
			}
		}
	}
}
