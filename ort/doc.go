// Package ort runs models in onnxruntime, with the fused kernels registered.
//
// Sessions, options and the environment come from github.com/yalue/onnxruntime_go. Runs use a small C file of this
// package (shim.c), because that module cannot return outputs of types that Go lacks: the caller must allocate an
// output of type float16 or bfloat16, and seldom knows its shape.
//
// onnxruntime is loaded when the first session is opened (see Find) and stays loaded: a process can have only one. This
// is the only package of the module that uses cgo; everything else works without a C compiler and without onnxruntime.
// Built without cgo, the package exists but finds no onnxruntime.
package ort
