package weights_test

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/mojo-patch/mojo-patch/fused"
	"github.com/mojo-patch/mojo-patch/internal/blocks"
	"github.com/mojo-patch/mojo-patch/llm/checkpoints"
	"github.com/mojo-patch/mojo-patch/llm/weights"
	"github.com/mojo-patch/mojo-patch/onnx"
)

// randomFP8 makes a matrix in DeepSeek's format, without NaN codes.
func randomFP8(name string, rows, cols int64) []checkpoints.Tensor {
	r := rand.New(rand.NewPCG(uint64(rows), uint64(cols)))
	codes := make([]byte, rows*cols)
	for i := range codes {
		if codes[i] = byte(r.Uint32()); codes[i]&0x7f == 0x7f {
			codes[i]--
		}
	}
	scales := checkpoints.Tensor{Name: name + "_scale_inv", Dims: []int64{(rows + 127) / 128, (cols + 127) / 128}}
	for range scales.Dims[0] * scales.Dims[1] {
		scales.Data = append(scales.Data, float32(math.Exp(r.NormFloat64()))/1000)
	}
	return []checkpoints.Tensor{{Name: name, Dims: []int64{rows, cols}, DType: "F8_E4M3", Raw: codes}, scales}
}

// randomMXFP4 makes stacked matrices in gpt-oss's format.
func randomMXFP4(name string, dims ...int64) []checkpoints.Tensor {
	r := rand.New(rand.NewPCG(5, uint64(dims[0])))
	last := len(dims) - 1
	n := int64(1)
	for _, d := range dims {
		n *= d
	}
	codes, scales := make([]byte, n/2), make([]byte, n/32)
	for i := range codes {
		codes[i] = byte(r.Uint32())
	}
	for i := range scales {
		scales[i] = byte(118 + r.IntN(8))
	}
	blocks := append(slices.Clone(dims[:last]), dims[last]/32)
	return []checkpoints.Tensor{
		{Name: name + "_blocks", Dims: append(slices.Clone(blocks), 16), DType: "U8", Raw: codes},
		{Name: name + "_scales", Dims: blocks, DType: "U8", Raw: scales}}
}

// fp8Value computes one element of a matrix of randomFP8 as DeepSeek's kernels do.
func fp8Value(m []checkpoints.Tensor, row, col int64) float32 {
	cols := m[0].Dims[1]
	code := m[0].Raw[row*cols+col]
	v := math.Ldexp(float64(code&7+8), int(code>>3&15)-10)
	if code>>3&15 == 0 {
		v = math.Ldexp(float64(code&7), -9)
	}
	return float32(math.Copysign(v, 127.5-float64(code))) * m[1].Data[row/128*m[1].Dims[1]+col/128]
}

// TestKeepFP8 keeps DeepSeek's weights in a graph, multiplied with floats and with 8-bit floats.
func TestKeepFP8(t *testing.T) {
	const n, k = 200, 256
	var list []checkpoints.Tensor
	for _, name := range []string{"embed_tokens", "layers.0.mlp.gate_proj", "layers.0.mlp.up_proj"} {
		list = append(list, randomFP8("model."+name+".weight", n, k)...)
	}
	path := file(t, "m.safetensors", nil, list...)
	floats, r := load(t, readersOf(t, onnx.Float, n, k), open(t, path), weights.MatchOptions{})
	if r.Loaded != 3 || len(r.Unexpected) != 0 {
		t.Fatalf("%+v", r)
	}
	table := values(t, floats, "model.embed_tokens.weight")
	for i := range int64(n * k) {
		if want := fp8Value(list[:2], i/k, i%k); table[i] != want {
			t.Fatalf("row %d, column %d is %v, not %v", i/k, i%k, table[i], want)
		}
	}
	want := outputs(t, floats, onnx.Float, n, k)
	for activations, bound := range map[string]float64{"int16": 1e-6, "fp8": 0.1} {
		m, r, err := keep(t, readersOf(t, onnx.Float, n, k), path, weights.KeepOptions{Activations: activations})
		if err != nil {
			t.Fatal(err)
		}
		if len(r.Quantized) != 1 || r.Quantized[0].Format != "fp8-block" || r.Quantized[0].Matrices != 3 ||
			len(r.Widened) != 0 || r.Quantized[0].File != 3*(n*k+16) || r.Quantized[0].Bits > 8.4 {
			t.Fatalf("%+v", r)
		}
		got := outputs(t, m, onnx.Float, n, k)
		for name, x := range got {
			if d := farthest(x.F, want[name].F); d > bound || activations == "fp8" && d < 1e-5 {
				t.Errorf("%s with %s differs by %g of the greatest magnitude", name, activations, d)
			}
		}
		for _, node := range m.Graph.Nodes {
			if node.Domain != fused.Domain {
				continue
			}
			rows := unpackedFP8(t, node)
			for row := range int64(n) {
				for b := range int64(2) {
					block := rows[row][b*132:][:132]
					if !bytes.Equal(block[4:], list[0].Raw[row*k+b*128:][:128]) ||
						binary.LittleEndian.Uint32(block) != math.Float32bits(list[1].Data[row/128*2+b]) {
						t.Fatalf("%s: block %d of row %d is not the file's", node.Name, b, row)
					}
				}
			}
		}
	}
	m, _, err := keep(t, readersOf(t, onnx.Float, n, k), path, weights.KeepOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, x := range weights.Matrices(m) {
		s, err := x.Statistics()
		if err != nil || s.NaN != 0 || s.Max <= s.Min {
			t.Errorf("%s: %+v (%v)", x.Name, s, err)
		}
	}
}

// unpackedFP8 converts the arrays of a node back to rows of blocks.
func unpackedFP8(t *testing.T, node *onnx.Node) [][]byte {
	t.Helper()
	var arrays [2][]byte
	for i := range arrays {
		b, err := node.Input(i + 1).Constant().Bytes()
		if err != nil {
			t.Fatal(err)
		}
		arrays[i] = b
	}
	p, n, k := blocks.FP8Block.Panels(), node.AttrInt("n", 0), node.AttrInt("k", 0)
	codes, scale, _, _, _ := p.Sizes(k)
	rows := make([][]byte, n)
	for i := range rows {
		rows[i] = make([]byte, k/128*132)
		at := int64(i) / blocks.PanelRows
		p.Unpack(rows[i], &blocks.Panel{Codes: arrays[0][at*codes:][:codes], Scale: arrays[1][at*scale:][:scale]},
			i%blocks.PanelRows)
	}
	return rows
}

// TestKeepMXFP4 keeps a gpt-oss matrix in a product, and compares with GGUF's form of the format.
func TestKeepMXFP4(t *testing.T) {
	const name, n, k = "model.layers.0.mlp.gate_proj.weight", 37, 64
	list := randomMXFP4(name, n, k)
	path := file(t, "m.safetensors", nil, list...)
	floats, _ := load(t, reader(t, name, "MatMul", []int64{k, n}), open(t, path), weights.MatchOptions{})
	columns := values(t, floats, name)
	e2m1 := []float32{0, 0.5, 1, 1.5, 2, 3, 4, 6}
	for i := range int64(n) {
		for j := range int64(k) {
			code := list[0].Raw[(i*k+j)/2] >> (j % 2 * 4) & 15
			want := float32(math.Ldexp(float64(e2m1[code&7]), int(list[1].Raw[(i*k+j)/32])-127))
			if code > 7 {
				want = -want
			}
			if columns[j*n+i] != want {
				t.Fatalf("row %d, column %d is %v, not %v", i, j, columns[j*n+i], want)
			}
		}
	}
	m, r, err := keep(t, reader(t, name, "MatMul", []int64{k, n}), path, weights.KeepOptions{})
	if err != nil || len(r.Quantized) != 1 || r.Quantized[0].Format != "mxfp4" {
		t.Fatalf("%+v (%v)", r, err)
	}
	rows := unpacked(t, m.Graph.Nodes[0], blocks.MXFP4Pairs)
	for b := range len(list[1].Raw) {
		if rows[17*b] != list[1].Raw[b] || !bytes.Equal(rows[17*b+1:][:16], list[0].Raw[16*b:][:16]) {
			t.Fatalf("block %d is not the file's", b)
		}
	}
}

// TestMXFP4Experts covers square experts, whose parameter is [in, out] and whose blocks are [out, in].
func TestMXFP4Experts(t *testing.T) {
	const name, k = "model.layers.0.mlp.experts.down_proj", 32
	list := randomMXFP4(name, 2, k, k)
	m, r := load(t, reader(t, name, "MatMul", []int64{2, k, k}), open(t, file(t, "m.safetensors", nil, list...)),
		weights.MatchOptions{})
	if r.Loaded != 1 || !r.Keys[0].Transposed || r.Keys[0].Types[0] != "MXFP4" {
		t.Fatalf("%+v", r)
	}
	x := values(t, m, name)
	code := list[0].Raw[(1*k*k+5*k+6)/2] & 15 // expert 1, out 5, in 6
	want := []float64{0, 0.5, 1, 1.5, 2, 3, 4, 6}[code&7]
	if got := math.Abs(float64(x[k*k+6*k+5])); got != math.Ldexp(want, int(list[1].Raw[k+5])-127) {
		t.Errorf("in 6, out 5 of expert 1 is %v", got)
	}
}

// TestDamagedScales covers codes and scales that do not match. Nothing may be loaded or written, and the message names
// the tensor and the file.
func TestDamagedScales(t *testing.T) {
	const fp8, experts = "model.layers.0.mlp.gate_proj.weight", "model.layers.0.mlp.experts.down_proj"
	change := func(list []checkpoints.Tensor, i int, f func(t *checkpoints.Tensor)) []checkpoints.Tensor {
		f(&list[i])
		return list
	}
	for _, c := range []struct {
		what string
		list []checkpoints.Tensor
		want string
	}{
		{"too few scales", change(randomFP8(fp8, 200, 256), 1, func(t *checkpoints.Tensor) {
			t.Dims, t.Data = []int64{1, 2}, t.Data[:2]
		}), `tensor "` + fp8 + `_scale_inv" is F32 [1 2]; the scales of ` + fp8 +
			` [200 256], FP8-BLOCK, are float32 [2 2]`},
		{"turned scales", change(randomFP8(fp8, 200, 384), 1, func(t *checkpoints.Tensor) {
			t.Dims = []int64{3, 2}
		}), "are float32 [2 3]"},
		{"scales of another type", change(randomFP8(fp8, 128, 128), 1, func(t *checkpoints.Tensor) {
			t.DType, t.Raw = "BF16", []byte{0, 0x3f}
		}), "is BF16 [1 1]"},
		{"one scale", change(randomFP8(fp8, 128, 128), 1, func(t *checkpoints.Tensor) {
			t.Name = fp8 + "_scale"
		}), `is scaled by "` + fp8 + `_scale", F32 [1 1], in an unsupported way`},
		{"a scale that is no number", change(randomFP8(fp8, 200, 256), 1, func(t *checkpoints.Tensor) {
			t.Data[3] = float32(math.NaN())
		}), `tensor "` + fp8 + `_scale_inv": the scale of rows from 128 and columns from 128 on is NaN`},
		{"an infinite scale", change(randomFP8(fp8, 200, 256), 1, func(t *checkpoints.Tensor) {
			t.Data[0] = float32(math.Inf(1))
		}), "rows from 0 and columns from 0 on is +Inf"},
		{"blocks of another size", change(randomMXFP4(experts, 2, 32, 64), 0, func(t *checkpoints.Tensor) {
			t.Dims = []int64{2, 32, 4, 8}
		}), `tensor "` + experts + `_blocks" has the shape [2 32 4 8], but blocks of MXFP4 have [.., N, K/32, 16]`},
		{"exponents of another count", change(randomMXFP4(experts, 2, 32, 64), 1, func(t *checkpoints.Tensor) {
			t.Dims, t.Raw = []int64{2, 32, 1}, t.Raw[:64]
		}), `tensor "` + experts + `_scales" is U8 [2 32 1]`},
		{"an exponent that is no number", change(randomMXFP4(experts, 2, 32, 64), 1, func(t *checkpoints.Tensor) {
			t.Raw[5] = 255
		}), `tensor "` + experts + `_scales": the scale of block 1 of row 2 is 255`},
	} {
		for _, keeps := range []bool{false, true} {
			path := file(t, "m.safetensors", nil, c.list...)
			name, dims := experts, []int64{2, 64, 32}
			if c.list[0].DType != "U8" {
				name, dims = fp8, []int64{c.list[0].Dims[1], c.list[0].Dims[0]}
			}
			err := loading(t, reader(t, name, "MatMul", dims), path, keeps)
			if !strings.Contains(err, c.want) || !strings.Contains(err, path) {
				t.Errorf("%s: %q, not %q", c.what, err, c.want)
			}
		}
	}
}

// loading returns why a key cannot be loaded: it is missing, or the model cannot be written.
func loading(t *testing.T, m *onnx.Model, path string, keeps bool) string {
	t.Helper()
	p, err := weights.Match(m, open(t, path), weights.MatchOptions{})
	if err == nil && keeps {
		err = p.KeepQuantized(m, weights.KeepOptions{})
	}
	if err == nil {
		err = p.Apply(nil)
	}
	if err == nil {
		err = onnx.Write(t.TempDir()+"/model.onnx", m, onnx.ExternalDataOver(100))
	}
	if missing := p.Report().Missing; err == nil && len(missing) > 0 {
		return missing[0].Reason
	}
	return fmt.Sprint(err)
}

// TestOddFP8 covers rows that are not whole blocks. They are widened, as the report shows.
func TestOddFP8(t *testing.T) {
	const name, n, k = "model.layers.0.mlp.gate_proj.weight", 40, 160
	list := randomFP8(name, n, k)
	m, r, err := keep(t, reader(t, name, "MatMul", []int64{k, n}), file(t, "m.safetensors", nil, list...),
		weights.KeepOptions{})
	if err != nil || len(r.Widened) != 1 ||
		!strings.Contains(r.Widened[0].Reason, "is not a multiple of a block of FP8-BLOCK") {
		t.Fatalf("%+v (%v)", r, err)
	}
	for i, x := range values(t, m, name) {
		if want := fp8Value(list, int64(i)%n, int64(i)/n); x != want {
			t.Fatalf("element %d is %v, not %v", i, x, want)
		}
	}
}
