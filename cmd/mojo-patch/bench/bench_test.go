package bench

import (
	"encoding/json"
	"math"
	"strings"
	"testing"

	"github.com/mojo-patch/mojo-patch/golden"
	"github.com/mojo-patch/mojo-patch/onnx"
)

// profile is what onnxruntime writes for three runs of one node, the last two of which also run a second node.
const profile = `[
{"cat":"Session","name":"model_loading_uri","ts":1,"dur":5,"args":{}},
{"cat":"Session","name":"model_run","ts":100,"dur":50,"args":{}},
{"cat":"Node","name":"a_kernel_time","ts":110,"dur":40,"args":{"op_name":"MoE","provider":"CUDAExecutionProvider"}},
{"cat":"Session","name":"model_run","ts":300,"dur":50,"args":{}},
{"cat":"Node","name":"a_fence_before","ts":305,"dur":1,"args":{"op_name":"MoE"}},
{"cat":"Node","name":"a_kernel_time","ts":310,"dur":10,"args":{"op_name":"MoE","provider":"CUDAExecutionProvider"}},
{"cat":"Node","name":"b_kernel_time","ts":320,"dur":3,"args":{"op_name":"Shape","provider":"CPUExecutionProvider"}},
{"cat":"Session","name":"model_run","ts":200,"dur":50,"args":{}},
{"cat":"Node","name":"a_kernel_time","ts":210,"dur":20,"args":{"op_name":"MoE","provider":"CUDAExecutionProvider"}},
{"cat":"Node","name":"b_kernel_time","ts":220,"dur":1,"args":{"op_name":"Shape","provider":"CPUExecutionProvider"}}
]`

func TestNodeTimes(t *testing.T) {
	got, err := nodeTimes([]byte(profile), 1)
	if err != nil {
		t.Fatal(err)
	}
	want := []opTime{{"MoE", "CUDA", 1, 15}, {"Shape", "CPU", 1, 2}}
	if len(got) != 2 || got[0] != want[0] || got[1] != want[1] {
		t.Errorf("got %v, want %v", got, want)
	}
	if _, err := nodeTimes([]byte(profile), 3); err == nil {
		t.Error("no run is left, and there are times")
	}
	if _, err := nodeTimes([]byte("{"), 0); err == nil {
		t.Error("half a profile was read")
	}
}

func TestQuantile(t *testing.T) {
	for _, c := range []struct {
		sorted  []float64
		q, want float64
	}{{[]float64{7}, 0.75, 7}, {[]float64{1, 3}, 0.5, 2}, {[]float64{1, 2, 3, 4, 5}, 0.25, 2},
		{[]float64{1, 2, 4}, 0.75, 3}} {
		if got := quantile(c.sorted, c.q); got != c.want {
			t.Errorf("quantile %g of %v is %g, want %g", c.q, c.sorted, got, c.want)
		}
	}
}

func TestApart(t *testing.T) {
	floats := func(v ...float32) []*onnx.Tensor {
		return []*onnx.Tensor{onnx.NewFloat32s("y", []int64{int64(len(v))}, v)}
	}
	nan := float32(math.NaN())
	for _, c := range []struct {
		got, want []*onnx.Tensor
		apart     golden.Number
	}{{floats(1, 4), floats(1, 4), 0}, {floats(1, 3), floats(1, -4), 1.75},
		{floats(1, nan), floats(1, 2), golden.Number(math.Inf(1))},
		{floats(0, 0), floats(0, 0), 0}} {
		if got, err := apart(c.got, c.want); err != nil || got != c.apart {
			t.Errorf("%v and %v are %g apart, want %g; %v", c.got, c.want, got, c.apart, err)
		}
	}
	all := []*timedModel{{Median: 1, outputs: floats(1, 2)}, {Median: 2, outputs: floats(1, nan)}}
	compare(all)
	if b, err := json.Marshal(all[1]); err != nil || !strings.Contains(string(b), `"difference":"+Inf"`) {
		t.Errorf("outputs that are no numbers are written as %s; %v", b, err)
	}
	if _, err := apart(floats(1), floats(1, 2)); err == nil {
		t.Error("tensors of other shapes were compared")
	}
}
