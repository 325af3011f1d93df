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

// Bytes returns a number of bytes in the unit that suits it, such as 151.6 MB.
func Bytes(n int64) string {
	units := []string{"bytes", "KB", "MB", "GB", "TB"}
	x, i := float64(n), 0
	for x >= 1000 && i < len(units)-1 {
		x, i = x/1000, i+1
	}
	if i == 0 {
		return fmt.Sprintf("%d %s", n, units[0])
	}
	return strings.TrimSuffix(fmt.Sprintf("%.1f", x), ".0") + " " + units[i]
}
