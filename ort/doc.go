// Package ort runs models in onnxruntime, with the fused kernels registered.
//
// Sessions, options and the environment come from github.com/yalue/onnxruntime_go. Runs go through a small C file of
// this package (shim.c), because that module cannot return outputs of types Go has no name for: an output of type
// float16 or bfloat16 must be allocated by the caller there, and a caller seldom knows its shape.
//
// onnxruntime is loaded when the first session is opened (see Find) and stays loaded: a process can have one only. It
// is the only package of the module that uses cgo; everything else works without a C compiler and without onnxruntime.
// Built without cgo it is there all the same, and finds no onnxruntime.
package ort
