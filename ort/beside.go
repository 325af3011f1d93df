//go:build cgo

package ort

import (
	"fmt"

	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/ort/providers"
)

// enableCUDAGraph is the option that makes the CUDA provider record the work of a run and launch it as one.
const enableCUDAGraph = "enable_cuda_graph"

// RecordsGraphs reports whether the session's CUDA provider records a run as a CUDA graph and replays it in later runs:
// its option enable_cuda_graph is 1. A replay reads and writes the memory that was bound during recording. Runs of a
// binding that is configured with "gpu_graph_id" -1 are not recorded; runs with another number are recorded under it.
func (s *Session) RecordsGraphs() bool {
	for _, p := range s.providers {
		if providers.Full(p.name) == providers.CUDA && p.options[enableCUDAGraph] == "1" {
			return true
		}
	}
	return false
}

// Beside opens a small model on the session's device, for work between its runs; values can be bound in both. The model
// runs unoptimized and without a CUDA graph. Closing the session does not close it.
func (s *Session) Beside(m *onnx.Model) (*Session, error) {
	model, err := onnx.Marshal(m)
	if err != nil {
		return nil, err
	}
	options := []Option{WithLibrary(s.api.path), WithOptimization(OptimizeNone), WithThreads(1),
		WithProviderDevice(s.deviceType)}
	for _, p := range s.providers {
		device := map[string]string{}
		if id, ok := p.options["device_id"]; ok {
			device["device_id"] = id
		}
		options = append(options, WithProvider(p.name, device))
	}
	for _, plugin := range s.plugins {
		options = append(options, WithProviderLibrary(plugin))
	}
	beside, err := OpenBytes(model, "", options...)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", s.path, err)
	}
	return beside, nil
}
