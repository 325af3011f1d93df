// Package export is the command export.
package export

import (
	"fmt"
	"strings"

	"github.com/mojo-patch/mojo-patch/cmd/mojo-patch/cli"
	"github.com/mojo-patch/mojo-patch/fused"
	"github.com/mojo-patch/mojo-patch/llm/serving"
	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/spf13/cobra"
)

// New returns the command export.
func New(a *cli.App) *cobra.Command {
	c := &cobra.Command{
		Use:   "export",
		Short: "Write a model for a serving engine: onnxruntime-genai or Triton Inference Server",
		Long: `export writes the files that a serving engine opens: the model with its weights, the library of its
kernels, and the engine's configuration. The model may be patched by apply or not. docs/serving.md
explains which engine to choose.`,
		Example: `  mojo-patch export genai patched.onnx --tokenizer checkpoint -o folder
  mojo-patch export triton patched.onnx -o repository`,
		RunE: cli.Group,
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
		return "", cli.Environment(err)
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
	return "", fmt.Errorf("--provider %s: must be cpu or cuda", provider)
}
