package diagnose

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"

	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/ort"
	"github.com/mojo-patch/mojo-patch/ort/providers"
)

// ErrOnCPU reports that a provider leaves a model to onnxruntime's CPU provider.
var ErrOnCPU = errors.New("it opens, but leaves a product of two matrices to the CPU provider")

// noFallback is the session config entry that forbids nodes on the CPU provider.
const noFallback = "session.disable_cpu_ep_fallback"

// TryProvider opens a model of one node, a product of two small matrices, with the provider, runs it and checks the
// result. Many providers find out only then whether they have a device.
func TryProvider(name string, options map[string]string, more ...ort.Option) error {
	model, err := product()
	if err != nil {
		return err
	}
	open := append([]ort.Option{ort.WithProvider(name, options), ort.WithThreads(1)}, more...)
	if providers.Same(name, providers.CPU) {
		return tryProduct(model, open)
	}
	strict := tryProduct(model, append(open, ort.WithConfig(noFallback, "1")))
	if strict == nil || errors.Is(strict, errWrongProduct) {
		return strict
	}
	if tryProduct(model, open) != nil {
		return strict
	}
	return ErrOnCPU
}

// The product: x of 2 x 4 times a constant w of 4 x 3.
var (
	productX = []float32{1, 2, 3, 4, -1, 0.5, 0, 2}
	productW = []float32{1, 0, 2, 0, 1, 1, 1, 1, 0, -1, 0, 0.5}
	productY = []float64{0, 5, 6, -3, 0.5, -0.5}
)

var errWrongProduct = errors.New("it returns a wrong product of two matrices")

// product returns the encoded model.
func product() ([]byte, error) {
	m := onnx.New(8, 17)
	m.Graph.Name = "product"
	float := func(dims ...int64) onnx.Type { return onnx.TensorType(onnx.Float, dims) }
	x := m.Graph.AddInput("x", float(2, 4))
	w := m.Graph.AddInitializer(onnx.NewFloat32s("w", []int64{4, 3}, productW))
	y := m.Graph.NewValue("y")
	y.SetType(float(2, 3))
	m.Graph.AddNode("MatMul", []*onnx.Value{x, w}, []*onnx.Value{y})
	m.Graph.AddOutput(y)
	return onnx.Marshal(m)
}

func tryProduct(model []byte, options []ort.Option) error {
	s, err := ort.OpenBytes(model, "", options...)
	if err != nil {
		return err
	}
	defer s.Close()
	out, err := s.Run([]*onnx.Tensor{onnx.NewFloat32s("x", []int64{2, 4}, productX)})
	if err != nil {
		return err
	}
	raw, err := out[0].Bytes()
	if err != nil || len(raw) != 4*len(productY) {
		return errors.Join(errWrongProduct, err)
	}
	for i, want := range productY {
		got := float64(math.Float32frombits(binary.LittleEndian.Uint32(raw[4*i:])))
		if !(math.Abs(got-want) <= 0.02) { // providers for NPUs compute in float16
			return fmt.Errorf("%w: element %d is %g, want %g", errWrongProduct, i, got, want)
		}
	}
	return nil
}
