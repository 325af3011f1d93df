package cli

import (
	"strings"
	"testing"
)

func TestVisible(t *testing.T) {
	for text, want := range map[string]string{
		"":                          "",
		"plain, größer\n\tand 😀":    "plain, größer\n\tand 😀",
		"\x1b[31mred\x1b[0m":        "\x1b[31mred\x1b[0m",
		"\x1b[2J":                   `\x1b[2J`,
		"a\x1b]0;title\x07b":        `a\x1b]0;title\x07b`,
		"over\rwritten\b":           `over\x0dwritten\x08`,
		"\u009b31m \u202egnp.x\x7f": `\u009b31m \u202egnp.x\x7f`,
		"cut \xf0\x9f":              "cut \xf0\x9f",
		"\x00":                      `\x00`,
	} {
		var b strings.Builder
		if n, err := (shown{&b}).Write([]byte(text)); n != len(text) || err != nil || b.String() != want {
			t.Errorf("%q: %q, want %q (%d, %v)", text, b.String(), want, n, err)
		}
	}
}
