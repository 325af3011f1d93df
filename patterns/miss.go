package patterns

import "github.com/mojo-patch/mojo-patch/patterns/match"

// Miss says why a node that looked like part of a pattern did not match.
type Miss = match.Miss
