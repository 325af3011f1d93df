// Package english writes numbers of things.
package english

import "fmt"

// Counted is, for example, "1 node" or "3 nodes".
func Counted(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}
