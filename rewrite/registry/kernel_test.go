package registry

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/mojo-patch/mojo-patch/fused"
)

// libraryFolder returns a folder with a file instead of the kernel library, and a folder without one.
func libraryFolder(t *testing.T) (with, without string) {
	t.Helper()
	with, without = t.TempDir(), t.TempDir()
	if err := os.WriteFile(filepath.Join(with, fused.CPU.LibraryName()), nil, 0o666); err != nil {
		t.Fatal(err)
	}
	return with, without
}

// everyFolder returns a folder with a file instead of each kernel library.
func everyFolder(t *testing.T) string {
	t.Helper()
	both, _ := libraryFolder(t)
	for _, name := range []string{fused.CUDA.LibraryName(), fused.NPU.LibraryName()} {
		if err := os.WriteFile(filepath.Join(both, name), nil, 0o666); err != nil {
			t.Fatal(err)
		}
	}
	return both
}

func TestChoose(t *testing.T) {
	with, without := everyFolder(t), t.TempDir()
	cpuOnly, _ := libraryFolder(t)
	all := []string{"cpu_fused_rmsnorm", "cpu_fused_swiglu", "cpu_fused_rope", "cpu_fused_moe", "cpu_fused_attention",
		"cpu_fused_layernorm", "cpu_fused_gelu", "cpu_fused_linear_attention",
		"cuda_fused_rmsnorm", "cuda_fused_swiglu", "cuda_fused_rope", "cuda_fused_moe", "cuda_fused_attention",
		"cuda_fused_layernorm", "cuda_fused_gelu", "cuda_fused_linear_attention",
		"npu_fused_rmsnorm", "npu_fused_swiglu", "npu_fused_rope", "npu_fused_moe", "npu_fused_attention",
		"onnx_layernorm", "onnx_softmax", "onnx_transpose"}
	standard := all[21:]
	tests := []struct {
		include, library string
		assume           bool
		want             []string
		err              string
	}{
		{Auto, with, false, all, ""},
		{" auto ", with, false, all, ""},
		{None, with, false, nil, ""},
		{"", with, false, nil, ""},
		{"cpu_fused_rope", with, false, all[2:3], ""},
		{" cpu_fused_rope , cpu_fused_rmsnorm,", with, false, []string{all[0], all[2]}, ""},
		{Auto, without, false, standard, ""}, // needs no library
		{"onnx_layernorm", without, false, standard[:1], ""},
		{"cuda_fused_moe", with, false, all[11:12], ""},
		{"cuda_fused_moe", cpuOnly, false, nil, "cuda_fused_moe is not available: kernel library not found"},
		{"npu_fused_moe", with, false, all[19:20], ""},
		{"npu_fused_moe", cpuOnly, false, nil, "npu_fused_moe is not available: kernel library not found"},
		{Auto, without, true, all, ""},
		{"cpu_fused_rope", without, false, nil, "cpu_fused_rope is not available"},
		{"cpu_fused_rope", without, true, all[2:3], ""},
		{"cpu_fused_rope,tpu_fused_moe", with, false, nil, "cpu_fused_rmsnorm, cpu_fused_swiglu, cpu_fused_rope"},
		{"auto,none", with, false, nil, "unknown kernel"},
	}
	for _, c := range tests {
		t.Run(c.include+"/"+c.err, func(t *testing.T) {
			env, named := NewEnvironment(c.library), Backend{listed: []string{"CUDA", "NPU", "CPU"}}
			chosen, reports, err := choose(c.include, env, named, func(*Kernel) bool { return c.assume })
			if (err == nil) != (c.err == "") || err != nil && !strings.Contains(err.Error(), c.err) {
				t.Fatalf("got error %v, want one with %q", err, c.err)
			}
			if err != nil {
				return
			}
			var ids []string
			for _, k := range chosen {
				ids = append(ids, k.ID)
			}
			if !slices.Equal(ids, c.want) {
				t.Errorf("got %v, want %v", ids, c.want)
			}
			for _, r := range reports {
				if available := c.library == with || c.assume || r.Device == DeviceAny; r.Available != available ||
					available == (r.Reason != "") {
					t.Errorf("%s: available %v, reason %q", r.ID, r.Available, r.Reason)
				}
			}
		})
	}
}

func TestRegisterRefusesBadKernels(t *testing.T) {
	before := len(ScanAllKernels())
	for _, k := range []*Kernel{nil, {}, {ID: Auto}, {ID: "a,b"}, {ID: "cpu_fused_rope"},
		{ID: "x", Ops: []string{"NoSuchOp"}}} {
		if err := Register(k); err == nil {
			t.Errorf("%+v was registered", k)
		}
	}
	if n := len(ScanAllKernels()); n != before {
		t.Errorf("%d kernels are registered, %d were before", n, before)
	}
}
