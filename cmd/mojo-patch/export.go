package main

import (
	"fmt"
	"strings"

	"github.com/mojo-patch/mojo-patch/fused"
	"github.com/mojo-patch/mojo-patch/llm/serving"
	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/spf13/cobra"
)

func newExport(a *app) *cobra.Command {
	c := &cobra.Command{
		Use:   "export",
		Short: "Write a model as a serving engine wants it: onnxruntime-genai, Triton Inference Server",
		Long: `export writes what a serving engine opens: the model with its weights, the library of its kernels, and
the engine's configuration. The model is one that apply has patched, or any other. docs/serving.md says
which engine to choose.`,
		Example: `  mojo-patch export genai patched.onnx --tokenizer checkpoint -o folder
  mojo-patch export triton patched.onnx -o repository`,
		RunE: group,
	}
	c.AddCommand(newExportGenAI(a), newExportTriton(a))
	return c
}

// libraryFor finds the library of the kernels that a model needs, or "" for a model without fused ops.
func libraryFor(m *onnx.Model, device fused.Device, given string) (string, error) {
	if !serving.HasFusedOps(m) {
		return "", nil
	}
	library, err := device.FindLibrary(given)
	if err != nil {
		return "", environment(err)
	}
	return library, nil
}

// exportProviders lists the providers that a serving engine may use.
func exportProviders() []string { return []string{"cpu", "cuda"} }

// exportDevice returns the device of such a provider.
func exportDevice(provider string) (fused.Device, error) {
	switch strings.ToLower(provider) {
	case "cpu":
		return fused.CPU, nil
	case "cuda":
		return fused.CUDA, nil
	}
	return "", fmt.Errorf("--provider %s: it is cpu or cuda", provider)
}
