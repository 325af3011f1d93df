package ort

/*
#include <stdlib.h>
#include "shim.h"
*/
import "C"

import (
	"errors"
	"fmt"
	"path/filepath"
	"sync"
	"unsafe"

	"github.com/yalue/onnxruntime_go"

	"github.com/mojo-patch/mojo-patch/internal/regular"
)

// Session is a model opened by onnxruntime. Its methods are safe for concurrent use.
type Session struct {
	path string // of the model, for messages
	api  *api

	mu      sync.RWMutex // read-locked during a run, so that Close waits for it
	session *onnxruntime_go.DynamicAdvancedSession
	raw     *C.OrtSession

	inputs, outputs, overridable []Info
	names                        map[string]*C.char // of all three
	// the places of inputs and outputs, once requested; guarded by held.Mutex
	places map[C.int][]C.mojo_place

	providers  []provider
	plugins    []string
	deviceType string
	held       held
}

// Open opens the model at path. Errors of onnxruntime include the path of the model.
func Open(path string, options ...Option) (*Session, error) {
	if err := regular.Check(path); err != nil {
		return nil, fmt.Errorf("cannot open model: %w", err)
	}
	return open(path, options, func(o *onnxruntime_go.SessionOptions) (*onnxruntime_go.DynamicAdvancedSession, error) {
		return onnxruntime_go.NewDynamicAdvancedSession(path, nil, nil, o)
	})
}

// OpenBytes opens a model in memory. It looks for external data beside path, which also names the model in messages.
// path may be empty for a model without external data.
func OpenBytes(model []byte, path string, options ...Option) (*Session, error) {
	name := path
	if name == "" {
		name = "model in memory"
	} else {
		options = append([]Option{WithConfig("session.model_external_initializers_file_folder_path",
			filepath.Dir(path))}, options...)
	}
	if len(model) == 0 {
		return nil, fmt.Errorf("%s: the model is empty", name)
	}
	return open(name, options, func(o *onnxruntime_go.SessionOptions) (*onnxruntime_go.DynamicAdvancedSession, error) {
		return onnxruntime_go.NewDynamicAdvancedSessionWithONNXData(model, nil, nil, o)
	})
}

// opening is held while a session is created: onnxruntime looks up and adds the domains of custom ops in two steps, and
// fails if two sessions do so at once.
var opening sync.Mutex

func open(name string, options []Option,
	create func(*onnxruntime_go.SessionOptions) (*onnxruntime_go.DynamicAdvancedSession, error)) (*Session, error) {
	c := newConfig(options)
	a, err := load(c.library)
	if err != nil {
		return nil, err
	}
	opening.Lock()
	defer opening.Unlock()
	o, err := c.apply()
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	defer o.Destroy() // a session outlives its options
	session, err := create(o)
	if err != nil {
		return nil, fmt.Errorf("%s: onnxruntime %s cannot open it: %w", name, a.version, err)
	}
	s := &Session{path: name, api: a, session: session, names: map[string]*C.char{},
		providers: c.providers, plugins: c.plugins, deviceType: c.deviceType}
	if err := s.describe(); err != nil {
		return nil, errors.Join(fmt.Errorf("%s: %w", name, err), s.Close())
	}
	return s, nil
}

func (s *Session) describe() (err error) {
	if s.raw, err = rawSession(s.session); err != nil {
		return err
	}
	for kind, list := range map[C.int]*[]Info{C.MOJO_INPUTS: &s.inputs, C.MOJO_OUTPUTS: &s.outputs,
		C.MOJO_OVERRIDABLE: &s.overridable} {
		if *list, err = s.ports(kind); err != nil {
			return err
		}
		for _, p := range *list {
			if s.names[p.Name] == nil {
				s.names[p.Name] = C.CString(p.Name)
			}
		}
	}
	return nil
}

// rawSession gets the C session from onnxruntime_go's, which does not export it.
func rawSession(session *onnxruntime_go.DynamicAdvancedSession) (*C.OrtSession, error) {
	p, err := dig(session, "session", "s", "ortSession")
	return (*C.OrtSession)(p), err
}

// EndProfiling stops profiling and returns the name of the profile. It returns an error without WithProfiling.
func (s *Session) EndProfiling() (string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.session == nil {
		return "", ErrClosed
	}
	var path *C.char
	if err := take(C.mojo_end_profiling(s.api.c, s.raw, &path)); err != nil {
		return "", fmt.Errorf("%s: cannot end profiling: %w", s.path, err)
	}
	defer C.free(unsafe.Pointer(path))
	if name := C.GoString(path); name != "" {
		return name, nil
	}
	return "", fmt.Errorf("%s: the session was opened without profiling", s.path)
}

// Close waits for active runs and frees the session, with its bindings and their values. It may be called twice.
func (s *Session) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.session == nil {
		return nil
	}
	err := errors.Join(s.held.close(s.api), s.session.Destroy())
	s.session, s.raw = nil, nil
	for _, name := range s.names {
		C.free(unsafe.Pointer(name))
	}
	s.names = nil
	if err != nil {
		return fmt.Errorf("%s: cannot close the session: %w", s.path, err)
	}
	return nil
}
