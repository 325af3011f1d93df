package patterns

import (
	"fmt"
	"sync"

	"github.com/mojo-patch/mojo-patch/patterns/builtin"
	"github.com/mojo-patch/mojo-patch/patterns/match"
	"github.com/mojo-patch/mojo-patch/patterns/rotary"
)

var builtinPatterns = sync.OnceValue(func() *Set {
	s := NewSet()
	for _, name := range builtin.Blocks {
		if err := s.Add(name, builtin.Text(name)); err != nil {
			panic(fmt.Sprintf("built-in patterns: %v", err)) // a bug here, which any test catches
		}
	}
	for _, d := range forms {
		s.addForm(d)
	}
	return s
})

// builtinLanguage is the language of the built-in patterns and of users' patterns.
var builtinLanguage = match.NewLanguage(rotary.Views)

// Builtin returns the patterns of builtin/*.pat and the patterns written in Go.
func Builtin() *Set { return builtinPatterns() }
