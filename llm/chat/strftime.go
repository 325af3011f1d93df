package chat

import (
	"fmt"
	"strings"
	"time"
)

var strftimeLayouts = map[byte]string{'Y': "2006", 'm': "01", 'd': "02", 'H': "15", 'M': "04", 'S': "05", 'B': "January",
	'b': "Jan", 'h': "Jan", 'A': "Monday", 'a': "Mon", 'p': "PM", 'I': "03", 'y': "06", 'j': "002", 'F': "2006-01-02",
	'T': "15:04:05", 'R': "15:04", 'D': "01/02/06", 'e': "_2", 'z': "-0700", 'Z': "MST"}

// strftime is Python's in the C locale, without the conversions that hardly any template has; those are an error.
func strftime(t time.Time, format string) (string, error) {
	var b strings.Builder
	for i := 0; i < len(format); i++ {
		if format[i] != '%' {
			b.WriteByte(format[i])
			continue
		}
		i++
		strip := i < len(format) && format[i] == '-' // glibc: without leading zeros
		if strip {
			i++
		}
		if i == len(format) {
			return "", fmt.Errorf("strftime: the format %q ends with %%", format)
		}
		if format[i] == '%' {
			b.WriteByte('%')
			continue
		}
		layout := strftimeLayouts[format[i]]
		if layout == "" {
			return "", fmt.Errorf("strftime: %%%c is not supported", format[i])
		}
		s := t.Format(layout)
		if strip {
			if s = strings.TrimLeft(s, "0 "); s == "" {
				s = "0"
			}
		}
		b.WriteString(s)
	}
	return b.String(), nil
}
