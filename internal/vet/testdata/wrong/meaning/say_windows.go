// Package meaning compiles for Windows, and prints what it does not mean.
package meaning

import "fmt"

func Say() { fmt.Printf("%d\n", "a word") }
