package main

import "github.com/spf13/cobra"

func newWeights(a *app) *cobra.Command {
	c := &cobra.Command{
		Use:   "weights",
		Short: "Put weights into a graph, take them out, list tensors",
		Long: `A graph without weights has initializers whose external data are missing. weights load fills them from GGUF or
safetensors files, weights strip makes such a graph, and weights show lists the tensors of a model or a checkpoint.
docs/weights.md shows all three on a model.`,
		Example: `  mojo-patch weights load graph.onnx --from model.gguf -o model.onnx
  mojo-patch weights strip model.onnx -o graph.onnx
  mojo-patch weights show model.gguf`,
		RunE: group,
	}
	c.AddCommand(newWeightsLoad(a), newWeightsStrip(a), newWeightsShow(a))
	return c
}
