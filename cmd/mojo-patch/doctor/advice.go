package doctor

import (
	"os/exec"
	"runtime"
	"strings"

	"github.com/mojo-patch/mojo-patch/fused"
	"github.com/mojo-patch/mojo-patch/ort"
	"github.com/mojo-patch/mojo-patch/ort/providers"
)

// systemPackages are the Debian packages of the libraries that onnxruntime and the kernels are linked against.
var systemPackages = map[string]string{
	"libstdc++.so.6": "libstdc++6",
	"libgcc_s.so.1":  "libgcc-s1",
	"libgomp.so.1":   "libgomp1",
	"libOpenCL.so.1": "ocl-icd-libopencl1",
}

// providerPackages are the Python packages of execution providers, by the lower-case names that providers.Short
// returns.
var providerPackages = map[string]string{
	"cuda":     "onnxruntime-gpu[cuda,cudnn]",
	"tensorrt": "onnxruntime-gpu[cuda,cudnn]",
	"qnn":      "onnxruntime-qnn",
	"openvino": "onnxruntime-ep-openvino",
	"dml":      "onnxruntime-directml",
}

// pip returns the command that installs a Python package, with the installation of pip if pip is missing.
func pip(name string) string {
	if strings.ContainsAny(name, "[<>=") && runtime.GOOS != "windows" {
		name = "'" + name + "'" // quoted for the shell
	}
	command := "python3 -m pip install " + name
	if runtime.GOOS == "linux" {
		if _, err := exec.LookPath("python3"); err != nil {
			return "apt-get install python3-pip, then " + command
		}
	}
	return command
}

// adviceFor says how to get a library that is missing or does not load: from a Debian package if the linker lacks a
// dependency, otherwise with pip. variable is the environment variable that can name the library. While it names a
// wrong file, no other file is searched.
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
		return "this system's C library is older than the one it was built for: install the wheel (" + pip(pipName) +
			"), which needs glibc 2.28, or build it here"
	}
	advice := "to get it: "
	if variable != "" && strings.Contains(err.Error(), "$"+variable) {
		advice += "unset " + variable + "; if that does not help, "
	}
	return advice + pip(pipName) + otherwise
}

// adviceOnnxruntime says how to get an onnxruntime that this program can use.
func adviceOnnxruntime(err error) string {
	return adviceFor(err, ort.LibraryVariable, "onnxruntime=="+ort.BundledVersion,
		", or in a clone tools/fetch-onnxruntime.sh")
}

// adviceKernels says how to get the kernel library.
func adviceKernels(err error) string {
	return adviceFor(err, fused.LibraryVariable, "--force-reinstall mojo-patch",
		", or in a clone make (apt-get install g++ cmake)")
}

// adviceProvider says how to get an execution provider of onnxruntime.
func adviceProvider(name string, err error) string {
	const help = "mojo-patch run --help explains how to name providers, and the folders that are searched"
	if p := providerPackages[strings.ToLower(providers.Short(name))]; p != "" {
		return adviceFor(err, "", p, "; "+help)
	}
	return help
}
