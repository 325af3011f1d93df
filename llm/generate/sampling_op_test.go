package generate

import (
	"encoding/binary"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/mojo-patch/mojo-patch/fused"
	"github.com/mojo-patch/mojo-patch/fused/sample"
	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/ort"
	"github.com/mojo-patch/mojo-patch/ort/orttest"
)

// TestSamplingOp: the kernel of Sample, its definition in onnxruntime and Sampler choose the same tokens, on 240 rows
// of random logits, options and earlier tokens. A part of the rows has many equal logits, or few that are finite.
func TestSamplingOp(t *testing.T) {
	const rows, length = 8, 20
	library := orttest.Kernels(t)
	rng := rand.New(rand.NewPCG(11, 0))
	for trial := range 30 {
		vocabulary := []int{1, 3, 60, 1000, 20000}[trial%5]
		m := onnx.New(10, 18)
		m.Graph.Name = "sample"
		m.ImportOpset(fused.Domain, fused.Version)
		var tensors []*onnx.Tensor
		var inputs []*onnx.Value
		site := fused.Site{Opset: 18}
		add := func(x *onnx.Tensor, dims ...int64) {
			x.Dims = dims
			tensors = append(tensors, x)
			inputs = append(inputs, m.Graph.AddInput(x.Name, onnx.TensorType(x.DataType, dims)))
			site.Types, site.Dims = append(site.Types, x.DataType), append(site.Dims, dims)
		}
		logits := make([]float32, rows*vocabulary)
		for i := range logits {
			logits[i] = float32(4 * rng.NormFloat64())
			switch {
			case trial%3 == 1:
				logits[i] = float32(int(logits[i]))
			case trial%3 == 2 && i%vocabulary != trial%vocabulary && rng.IntN(2) == 0:
				logits[i] = float32(math.Inf(-1))
			}
		}
		var controls []float32
		random, tokens, prompt := make([]int64, rows), make([]int64, rows*length), make([]int64, rows)
		for i := range tokens {
			tokens[i] = rng.Int64N(int64(vocabulary)+2) - 1
		}
		want := make([]int64, rows)
		for i := range rows {
			maybe := func(v float64) float64 { return v * float64(rng.IntN(2)) }
			topK := maybe(float64(rng.IntN(vocabulary + 5)))
			o := Sampling{Temperature: maybe(0.1 + 2*rng.Float64()), TopK: int(topK),
				TopP: maybe(rng.Float64()), MinP: maybe(rng.Float64() / 4),
				RepetitionPenalty: maybe(0.5 + rng.Float64()), FrequencyPenalty: maybe(4*rng.Float64() - 2),
				PresencePenalty: maybe(4*rng.Float64() - 2), Seed: uint64(i)}
			controls = append(controls, o.controls()...)
			s, err := NewSampler(o)
			if err != nil {
				t.Fatal(err)
			}
			random[i], prompt[i] = s.random(), rng.Int64N(length)
			if s, err = NewSampler(o); err != nil {
				t.Fatal(err)
			}
			earlier := tokens[i*length : (i+1)*length]
			want[i], err = s.Next(logits[i*vocabulary:(i+1)*vocabulary], earlier[:prompt[i]], earlier[prompt[i]:])
			if err != nil {
				t.Fatal(err)
			}
		}
		add(onnx.NewFloat32s("logits", nil, logits), rows, int64(vocabulary))
		add(onnx.NewFloat32s("controls", nil, controls), rows, sample.Controls)
		add(onnx.NewInt64s("random", random), rows)
		add(onnx.NewInt64s("tokens", tokens), rows, length)
		add(onnx.NewInt64s("prompt", prompt), rows)
		f, err := sample.Op.Function(site)
		if err != nil {
			t.Fatal(err)
		}
		m.Functions = append(m.Functions, f)
		ids := m.Graph.NewValue("ids")
		ids.SetType(onnx.TensorType(onnx.Int64, []int64{rows}))
		n := m.Graph.AddNode(fused.SampleName, inputs, []*onnx.Value{ids})
		n.Domain, n.Overload = fused.Domain, f.Overload
		m.Graph.AddOutput(ids)
		model, err := onnx.Marshal(m)
		if err != nil {
			t.Fatal(err)
		}
		kernel := []ort.Option{ort.WithKernelLibrary(library)}
		for what, options := range map[string][]ort.Option{"definition": nil, "kernel": kernel} {
			session, err := ort.OpenBytes(model, "sample.onnx", append(options, orttest.Provider())...)
			if err != nil {
				t.Fatal(err)
			}
			out, err := session.Run(tensors)
			if err != nil {
				t.Fatal(err)
			}
			elements, err := out[0].Bytes()
			if err != nil {
				t.Fatal(err)
			}
			for i := range want {
				if got := int64(binary.LittleEndian.Uint64(elements[8*i:])); got != want[i] {
					t.Errorf("trial %d, row %d, options %v: the %s chooses %d, the host %d", trial, i,
						controls[i*sample.Controls:(i+1)*sample.Controls], what, got, want[i])
				}
			}
			if err := session.Close(); err != nil {
				t.Fatal(err)
			}
		}
	}
}
