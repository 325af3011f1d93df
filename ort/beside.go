//go:build cgo

package ort

import (
	"fmt"

	"github.com/mojo-patch/mojo-patch/onnx"
)

// enableCUDAGraph is the option of the CUDA provider that has it record the work of a run and launch it as one.
const enableCUDAGraph = "enable_cuda_graph"

// RecordsGraphs reports whether the session's CUDA provider records what a run does as a CUDA graph, and replays that
// in later runs: its option enable_cuda_graph is 1. A replay reads and writes the memory that was bound when it was
// recorded. Runs of a binding that is configured with "gpu_graph_id" -1 are not recorded; those with another number are
// recorded under it.
func (s *Session) RecordsGraphs() bool {
	for _, p := range s.providers {
		if FullProvider(p.name) == cudaProvider && p.options[enableCUDAGraph] == "1" {
			return true
		}
	}
	return false
}

// Beside opens a small model on the device of the session, for work between its runs: values of the one can be bound to
// the other. The model runs as it is written, and no CUDA graph is made of it. Closing the session does not close it.
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
