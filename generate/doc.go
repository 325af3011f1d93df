// Package generate generates text with a language model in onnxruntime.
package generate
