package english

import (
	"fmt"
	"strings"
)

// Suggestion asks whether the known word nearest to word was meant, as ` (did you mean "x"?)`. It is empty if no known
// word is near: in other case, with a few letters wrong, missing or exchanged, or going on behind word.
func Suggestion(word string, known []string) string {
	best, least := "", max(1, len(word)/4)+1
	for _, k := range known {
		d := distance(strings.ToLower(word), strings.ToLower(k))
		if len(word) >= 3 && strings.HasPrefix(strings.ToLower(k), strings.ToLower(word)) {
			d = min(d, 1)
		}
		if d < least {
			best, least = k, d
		}
	}
	if best == "" {
		return ""
	}
	return fmt.Sprintf(" (did you mean %q?)", best)
}

// distance is the least number of letters to insert, remove, replace, or exchange with the next one, to make b of a.
func distance(a, b string) int {
	rows := [3][]int{make([]int, len(b)+1), make([]int, len(b)+1), make([]int, len(b)+1)}
	before, last, row := rows[0], rows[1], rows[2]
	for j := range last {
		last[j] = j
	}
	for i := range len(a) {
		row[0] = i + 1
		for j := range len(b) {
			replaced := last[j]
			if a[i] != b[j] {
				replaced++
			}
			row[j+1] = min(replaced, last[j+1]+1, row[j]+1)
			if i > 0 && j > 0 && a[i] == b[j-1] && a[i-1] == b[j] {
				row[j+1] = min(row[j+1], before[j-1]+1)
			}
		}
		before, last, row = last, row, before
	}
	return last[len(b)]
}
