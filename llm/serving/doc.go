// Package serving writes models as serving engines want them: a folder for onnxruntime-genai, a model repository for
// NVIDIA's Triton Inference Server. Each holds the model with its weights and, where it has fused ops, the library of
// their kernels.
//
// What an engine feeds a model is fixed, so the model is made to fit: its inputs and outputs get the engine's names,
// and what the engine does not give is computed in the graph from what it gives. A model that cannot be made to fit is
// an error that says what was found and what to do.
package serving
