package main

import (
	"os/exec"
	"runtime"
	"strings"

	"github.com/mojo-patch/mojo-patch/fused"
	"github.com/mojo-patch/mojo-patch/ort"
)

// systemPackages are Debian's packages with the libraries that onnxruntime and the kernels are linked against.
var systemPackages = map[string]string{
	"libstdc++.so.6": "libstdc++6",
	"libgcc_s.so.1":  "libgcc-s1",
	"libgomp.so.1":   "libgomp1",
	"libOpenCL.so.1": "ocl-icd-libopencl1",
}

// providerPackages are Python packages that bring an execution provider, by the names that ort.ShortProvider returns,
// in lower case.
var providerPackages = map[string]string{
	"cuda":     "onnxruntime-gpu[cuda,cudnn]",
	"tensorrt": "onnxruntime-gpu[cuda,cudnn]",
	"qnn":      "onnxruntime-qnn",
	"openvino": "onnxruntime-ep-openvino",
	"dml":      "onnxruntime-directml",
}

// pip is the command that installs a Python package, with what it needs where that is missing too.
func pip(name string) string {
	if strings.ContainsAny(name, "[<>=") && runtime.GOOS != "windows" {
		name = "'" + name + "'" // a shell would read it otherwise
	}
	command := "python3 -m pip install " + name
	if runtime.GOOS == "linux" {
		if _, err := exec.LookPath("python3"); err != nil {
			return "apt-get install python3-pip, then " + command
		}
	}
	return command
}

// adviceFor says what brings a library that is missing or does not load: the system's package where the linker lacks
// one that it needs, and otherwise what pip installs. variable is the one of the environment that can name it: while it
// names the wrong file, none is looked for.
func adviceFor(err error, variable, pipName, otherwise string) string {
	if err == nil {
		return ""
	}
	for library, name := range systemPackages {
		if strings.Contains(err.Error(), library+": cannot open shared object file") && runtime.GOOS == "linux" {
			return "to get it: apt-get install " + name
		}
	}
	if strings.Contains(err.Error(), "GLIBC_") {
		return "this system's C library is older than what it was built for: take the wheel (" + pip(pipName) +
			"), which needs glibc 2.28, or build it here"
	}
	advice := "to get it: "
	if variable != "" && strings.Contains(err.Error(), "$"+variable) {
		advice += "unset " + variable + "; if that does not do, "
	}
	return advice + pip(pipName) + otherwise
}

// adviceOnnxruntime says what brings an onnxruntime that this program can use.
func adviceOnnxruntime(err error) string {
	return adviceFor(err, ort.LibraryVariable, "onnxruntime=="+ort.BundledVersion,
		", or in a clone tools/fetch-onnxruntime.sh")
}

// adviceKernels says what brings the kernel library.
func adviceKernels(err error) string {
	return adviceFor(err, fused.LibraryVariable, "--force-reinstall mojo-patch",
		", or in a clone make (apt-get install g++ cmake)")
}

// adviceProvider says what brings an execution provider of onnxruntime.
func adviceProvider(name string, err error) string {
	const help = "mojo-patch run --help says how providers are named and found"
	if p := providerPackages[strings.ToLower(ort.ShortProvider(name))]; p != "" {
		return adviceFor(err, "", p, "; "+help)
	}
	return help
}
