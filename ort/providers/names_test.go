package providers_test

import (
	"testing"

	"github.com/mojo-patch/mojo-patch/ort/providers"
)

func TestProviderNames(t *testing.T) {
	for name, want := range map[string]string{
		"qnn": "QNNExecutionProvider", "QNNExecutionProvider": "QNNExecutionProvider",
		"qnnexecutionprovider": "QNNExecutionProvider",
		"openvino":             "OpenVINOExecutionProvider", "OpenVINOExecutionProvider.AUTO": "OpenVINOExecutionProvider.AUTO",
		"cuda": "CUDAExecutionProvider", "Mine": "MineExecutionProvider",
	} {
		if got := providers.Full(name); got != want {
			t.Errorf("%s is %s, want %s", name, got, want)
		}
	}
	if got := providers.Short("xnnpackexecutionprovider"); got != "Xnnpack" {
		t.Errorf("the short name of Xnnpack is %s", got)
	}
	if !providers.Same("cpu", "CPUExecutionProvider") || providers.Same("CPU", "CUDA") {
		t.Error("providers are not told apart by their names")
	}
}
