package doctor

import (
	"errors"
	"runtime"
	"strings"
	"testing"

	"github.com/mojo-patch/mojo-patch/ort"
)

func TestAdvice(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("apt is Debian's")
	}
	missing := errors.New("no such file")
	linker := func(library string) error {
		return errors.New("cannot load libx.so: " + library + ": cannot open shared object file: No such file")
	}
	old := errors.New("/lib/x86_64-linux-gnu/libc.so.6: version `GLIBC_2.34' not found (required by libx.so)")
	for _, c := range []struct{ got, want string }{
		{adviceOnnxruntime(missing), "pip install 'onnxruntime==" + ort.BundledVersion + "'"},
		{adviceOnnxruntime(linker("libstdc++.so.6")), "apt-get install libstdc++6"},
		{adviceOnnxruntime(old), "needs glibc 2.28"},
		{adviceKernels(missing), "pip install --force-reinstall mojo-patch, or in a clone make (apt-get install g++"},
		{adviceOnnxruntime(errors.New("$ONNXRUNTIME_LIB: no such file")), "unset ONNXRUNTIME_LIB; if that does not"},
		{adviceKernels(linker("libgcc_s.so.1")), "apt-get install libgcc-s1"},
		{adviceKernels(old), "glibc"},
		{adviceProvider("CUDA", missing), "pip install 'onnxruntime-gpu[cuda,cudnn]'"},
		{adviceProvider("QNNExecutionProvider", missing), "pip install onnxruntime-qnn;"},
		{adviceProvider("openvino", linker("libOpenCL.so.1")), "apt-get install ocl-icd-libopencl1"},
		{adviceProvider("none", missing), "mojo-patch run --help"},
		{adviceKernels(nil), ""},
	} {
		if !strings.Contains(c.got, c.want) || c.want == "" && c.got != "" {
			t.Errorf("got %q, want %q in it", c.got, c.want)
		}
	}
	t.Setenv("PATH", t.TempDir())
	if got := adviceKernels(missing); !strings.Contains(got, "apt-get install python3-pip, then python3 -m pip") {
		t.Errorf("without Python: %q", got)
	}
}
