package patterns

import (
	"embed"
	"fmt"
	"sync"
)

//go:embed builtin/*.pat
var builtinFiles embed.FS

// order puts views first, and a pattern that holds another before it.
var builtinOrder = []string{"views.pat", "rmsnorm.pat", "layernorm.pat", "glu.pat", "rotary.pat", "softmax.pat", "attention.pat"}

var builtin = sync.OnceValue(func() *Set {
	s := builtinSet(builtinOrder...)
	for _, d := range goForms {
		s.add(d.pattern())
	}
	return s
})

// builtinSet returns the patterns of files of builtin/.
func builtinSet(names ...string) *Set {
	s := NewSet()
	for _, name := range names {
		src, err := builtinFiles.ReadFile("builtin/" + name)
		if err == nil {
			err = s.Add(name, string(src))
		}
		if err != nil {
			panic(fmt.Sprintf("built-in patterns: %v", err)) // a mistake of the build, caught by any test
		}
	}
	return s
}

// Builtin returns the patterns of builtin/*.pat, and those that are written in Go.
func Builtin() *Set { return builtin() }
