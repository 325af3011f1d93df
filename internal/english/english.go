// Package english formats counts and lists for messages.
package english

import (
	"fmt"
	"strings"
)

// Counted returns, for example, "1 node" or "3 nodes".
func Counted(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

// listed limits how many names are listed, such as the sites that one reason refuses.
const listed = 3

// Some lists the first names, and the number of the others.
func Some(names []string) string {
	text := strings.Join(names[:min(listed, len(names))], ", ")
	if more := len(names) - listed; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}

// Bytes formats a number of bytes in a suitable unit, such as 151.6 MB.
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
