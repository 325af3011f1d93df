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

// Placement lists the assignments of nodes to providers at open time. It returns an error without WithPlacement.
func (s *Session) Placement() ([]PlacedNode, error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if s.session == nil {
		return nil, ErrClosed
	}
	var records *C.char
	err := take(C.mojo_placement(s.api.c, s.raw, &records))
	defer C.free(unsafe.Pointer(records))
	if err != nil {
		return nil, fmt.Errorf("%s: onnxruntime does not report the providers of the nodes: %w", s.path, err)
	}
	var nodes []PlacedNode
	for record := range strings.SplitSeq(strings.TrimSuffix(C.GoString(records), "\x1e"), "\x1e") {
		if f := strings.SplitN(record, "\x1f", 4); len(f) == 4 {
			nodes = append(nodes, PlacedNode{Provider: f[0], Domain: f[1], Op: f[2], Name: f[3]})
		}
	}
	return nodes, nil
}
