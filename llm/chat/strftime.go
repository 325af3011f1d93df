package chat

import (
	"regexp"
	"strings"
	"time"
)

var strftimeLayouts = map[byte]string{'Y': "2006", 'm': "01", 'd': "02", 'H': "15", 'M': "04", 'S': "05",
	'B': "January",
	'b': "Jan", 'h': "Jan", 'A': "Monday", 'a': "Mon", 'p': "PM", 'I': "03", 'y': "06", 'j': "002", 'F': "2006-01-02",
	'T': "15:04:05", 'R': "15:04", 'D': "01/02/06", 'e': "_2", 'z': "-0700", 'Z': "MST"}

var conversion = regexp.MustCompile(`(?s)%-?.?`)

// strftime is Python's in the C locale; conversions that hardly any template has fail.
func strftime(t time.Time, format string) string {
	return conversion.ReplaceAllStringFunc(format, func(c string) string {
		if c == "%%" {
			return "%"
		}
		layout := strftimeLayouts[c[len(c)-1]]
		if layout == "" {
			panic(failure("strftime: %s is not supported", c))
		}
		s := t.Format(layout)
		if strings.HasPrefix(c, "%-") { // glibc's: without leading zeros
			if s = strings.TrimLeft(s, "0 "); s == "" {
				s = "0"
			}
		}
		return s
	})
}
