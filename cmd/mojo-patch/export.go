package main

import "github.com/spf13/cobra"

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
	c.AddCommand(newExportGenAI(a))
	return c
}
