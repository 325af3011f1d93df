// Package english writes numbers of things.
package english

import (
	"fmt"
	"strings"
)

// Counted is, for example, "1 node" or "3 nodes".
func Counted(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

// listed bounds how many names are written out, such as those of sites that one reason refuses.
const listed = 3

// Some lists the first names, and says how many more there are.
func Some(names []string) string {
	text := strings.Join(names[:min(listed, len(names))], ", ")
	if more := len(names) - listed; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}
