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

// Placement counts the nodes on each execution provider, by onnxruntime's names, as onnxruntime gave them away when it opened
// the model. It errs without WithPlacement.
func (s *Session) Placement() (map[string]int, error) {
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
	nodes := map[string]int{}
	for line := range strings.Lines(C.GoString(lines)) {
		var name string
		var n int
		if _, err := fmt.Sscan(line, &name, &n); err != nil {
			return nil, fmt.Errorf("%s: the provider of nodes is %q: %w", s.path, line, err)
		}
		nodes[name] += n
	}
	return nodes, nil
}
