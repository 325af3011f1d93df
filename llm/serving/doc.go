// Package serving writes models for serving engines: a folder for onnxruntime-genai, or a model repository for NVIDIA's
// Triton Inference Server. Each contains the model with its weights and, if it has fused ops, their kernel library.
//
// An engine's inputs are fixed, so the package changes the model to fit. It gives inputs and outputs the engine's
// names, and computes missing inputs in the graph. For a model that cannot fit it returns an error with the cause and
// the remedy.
package serving
