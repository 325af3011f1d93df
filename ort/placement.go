package ort

/*
#include <stdlib.h>
#include "shim.h"
*/
import "C"

import (
	"fmt"
	"strings"
	"unsafe"
)

// Placement counts the nodes on each execution provider by their ops, as onnxruntime gave them away when it opened the
// model; the providers have onnxruntime's names. It errs without WithPlacement.
func (s *Session) Placement() (map[string]map[string]int, error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if s.session == nil {
		return nil, ErrClosed
	}
	var lines *C.char
	err := take(C.mojo_placement(s.api.c, s.raw, &lines))
	defer C.free(unsafe.Pointer(lines))
	if err != nil {
		return nil, fmt.Errorf("%s: onnxruntime does not tell the providers of the nodes: %w", s.path, err)
	}
	nodes := map[string]map[string]int{}
	for line := range strings.Lines(C.GoString(lines)) {
		provider, op, _ := strings.Cut(strings.TrimSpace(line), " ")
		if nodes[provider] == nil {
			nodes[provider] = map[string]int{}
		}
		nodes[provider][op]++
	}
	return nodes, nil
}
