package registry

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/mojo-patch/mojo-patch/fused"
)

func TestParseBackend(t *testing.T) {
	tests := []struct {
		text, written string
		devices       []string
		err           string
	}{
		{"+CPU", "+CPU", []string{"CPU"}, ""},
		{" +cpu , ref ", "+CPU,REF", []string{"CPU", "REF"}, ""},
		{"+all", "+ALL", []string{"CUDA", "NPU", "CPU"}, ""},
		{"+All,Ref", "+ALL,REF", []string{"CUDA", "NPU", "CPU", "REF"}, ""},
		{"+CPU,ALL", "+CPU,ALL", []string{"CPU", "CUDA", "NPU"}, ""},
		{"+ALL,CPU", "+ALL,CPU", []string{"CUDA", "NPU", "CPU"}, ""},
		{"CPU", "", nil, `does not begin with +: write "+" and devices`},
		{"", "", nil, "does not begin with +"},
		{"-CPU", "", nil, "does not begin with +"},
		{"+", "", nil, "empty name"},
		{"+CPU,", "", nil, "empty name"},
		{"+CUDA,+CPU", "+CUDA,CPU", []string{"CUDA", "CPU"}, ""},
		{"+CPU,+", "", nil, "empty name"},
		{"+TPU", "", nil, `unknown device "TPU"; the devices are CUDA, NPU, CPU, REF, and ALL`},
		{"+CPU,cpu", "", nil, "names CPU twice"},
	}
	for _, c := range tests {
		b, err := ParseBackend(c.text)
		if (err == nil) != (c.err == "") || err != nil && !strings.Contains(err.Error(), c.err) {
			t.Errorf("%q: got error %v, want %q", c.text, err, c.err)
		}
		if err == nil && (b.String() != c.written || !slices.Equal(b.Devices(), c.devices)) {
			t.Errorf("%q: got %s, %v", c.text, b, b.Devices())
		}
	}
	var zero Backend
	if zero.String() != "+ALL" || !slices.Equal(zero.Devices(), []string{"CUDA", "NPU", "CPU"}) || zero.Names("CPU") {
		t.Errorf("the zero backend is %s, %v", zero, zero.Devices())
	}
}

// TestBackendChooses selects kernels of two devices.
func TestBackendChooses(t *testing.T) {
	before := registry
	t.Cleanup(func() { registry = before })
	if err := Register(&Kernel{ID: "npu_glu", Device: "npu", Ops: []string{"GLU"}}); err != nil {
		t.Fatal(err)
	}
	with, without := libraryFolder(t)
	both := everyFolder(t)
	cpu := []string{"cpu_fused_rmsnorm", "cpu_fused_swiglu", "cpu_fused_rope", "cpu_fused_moe", "cpu_fused_attention",
		"cpu_fused_layernorm", "cpu_fused_gelu", "cpu_fused_linear_attention"}
	cuda := []string{"cuda_fused_rmsnorm", "cuda_fused_swiglu", "cuda_fused_rope", "cuda_fused_moe",
		"cuda_fused_attention", "cuda_fused_layernorm", "cuda_fused_gelu", "cuda_fused_linear_attention"}
	npu := []string{"npu_fused_rmsnorm", "npu_fused_swiglu", "npu_fused_rope", "npu_fused_moe",
		"npu_fused_attention", "npu_glu"}
	tests := []struct {
		backend, include, library string
		want                      []string
		err                       string
		device                    bool // whether the error is about a device
	}{
		{"+ALL", Auto, with, cpu, "", false},
		{"+CPU,NPU", Auto, with, append(slices.Clone(cpu), "npu_glu"), "", false},
		{"+NPU", Auto, with, []string{"npu_glu"}, "", false},
		{"+CPU", Auto, with, cpu, "", false},
		{"+NPU,ALL", Auto, without, []string{"npu_glu"}, "", false},
		{"+NPU,ALL,REF", Auto, without, []string{"npu_glu", "definition"}, "", false},
		{"+ALL,REF", Auto, without, []string{"definition"}, "", false},
		{"+REF", Auto, without, []string{"definition"}, "", false},
		{"+CPU", Auto, without, nil, "no kernel for CPU: kernel library not found", true},
		{"+CUDA", Auto, with, nil, "no kernel for CUDA: kernel library not found", true},
		{"+CUDA", Auto, both, cuda, "", false},
		{"+CUDA,+CPU", Auto, both, append(slices.Clone(cuda), cpu...), "", false},
		{"+NPU", Auto, both, npu, "", false},
		{"+NPU,+CPU", Auto, both, append(slices.Clone(npu), cpu[:5]...), "", false},
		{"+ALL", Auto, both, cpu, "", false},
		{"+CPU,CUDA", "cpu_fused_rope", with, cpu[2:3], "", false},
		{"+CPU", "cuda_fused_rope", both, nil,
			"kernel cuda_fused_rope is not available: it runs on CUDA, which is not in the backend +CPU", false},
		{"+CPU", "cpu_fused_rope", with, cpu[2:3], "", false},
		{"+NPU", "cpu_fused_rope", with, nil,
			"kernel cpu_fused_rope is not available: it runs on CPU, which is not in the backend +NPU", false},
		{"+REF", "cpu_fused_rope", with, nil, "which is not in the backend +REF", false},
		{"+CUDA", None, with, nil, "", false},
	}
	for _, c := range tests {
		t.Run(c.backend+" "+c.include+" "+c.err, func(t *testing.T) {
			b, err := ParseBackend(c.backend)
			if err != nil {
				t.Fatal(err)
			}
			chosen, reports, err := Choose(c.include, NewEnvironment(c.library), b, false)
			if (err == nil) != (c.err == "") || err != nil && !strings.Contains(err.Error(), c.err) {
				t.Fatalf("got error %v, want %q", err, c.err)
			}
			var device *DeviceError
			if errors.As(err, &device) != c.device {
				t.Errorf("got %T", err)
			}
			var ids []string
			for _, k := range chosen {
				if k.Device != DeviceAny { // these stay with any backend
					ids = append(ids, k.ID)
				}
			}
			if !slices.Equal(ids, c.want) {
				t.Errorf("chose %v, want %v", ids, c.want)
			}
			for _, r := range reports {
				if err == nil && r.Device != DeviceAny && r.Selected != slices.Contains(c.want, r.ID) {
					t.Errorf("%s: selected %v", r.ID, r.Selected)
				}
			}
		})
	}
}

func TestPassedOver(t *testing.T) {
	none := []KernelReport{{Device: "cpu"}, {Device: "cuda"}}
	all := []KernelReport{{Device: "cpu", Available: true}, {Device: "cuda"}, {Device: "cuda", Available: true}}
	for _, c := range []struct {
		text    string
		reports []KernelReport
		want    []string
	}{
		{"+ALL", none, []string{"CUDA", "NPU"}}, {"+ALL", all, []string{"NPU"}}, {"+CPU", none, nil},
		{"+CUDA,CPU", none, nil},
		{"+ALL,REF", all, []string{"NPU"}}, {"+ALL", nil, []string{"CUDA", "NPU", "CPU"}},
	} {
		b, err := ParseBackend(c.text)
		if err != nil {
			t.Fatal(err)
		}
		if got := b.PassedOver(c.reports); !slices.Equal(got, c.want) {
			t.Errorf("%s: got %v, want %v", c.text, got, c.want)
		}
	}
	if d := definition(); len(d.Ops) != len(fused.Ops()) || !IsDefinition(d) || IsDefinition(registry[0]) ||
		IsDefinition(nil) {
		t.Errorf("got %+v", d)
	}
}
