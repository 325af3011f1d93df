package progress

import (
	"strings"
	"testing"
	"time"
)

func TestBar(t *testing.T) {
	var out strings.Builder
	at := time.Unix(1, 0)
	b := New(&out, "case")
	b.now = func() time.Time { return at }
	draw := func(after time.Duration, done, total int) string {
		out.Reset()
		at = at.Add(after)
		b.Set(done, total)
		return out.String()
	}
	if b.Clear(); out.Len() > 0 {
		t.Errorf("Clear before Set wrote %q", out.String())
	}
	bar := func(full int) string { return strings.Repeat("█", full) + strings.Repeat(" ", width-full) }
	for _, c := range []struct {
		after       time.Duration
		done, total int
		want        string
	}{
		{0, 10, 1000, "\rcase   1% |" + bar(0) + "| (10/1000)"},
		{redraw - 1, 500, 1000, ""},
		{1, 500, 1000, "\rcase  50% |" + bar(15) + "| (500/1000)"},
		{redraw, 3, 4, "\rcase  75% |" + bar(22) + "| (3/4)     "}, // over the end of the longer line
		{0, 4, 4, "\rcase 100% |" + bar(30) + "| (4/4)"},           // the last step is always drawn
		{redraw, 9, 4, "\rcase 100% |" + bar(30) + "| (4/4)"},
		{redraw, -1, 4, "\rcase   0% |" + bar(0) + "| (0/4)"},
		{redraw, 0, 0, ""},
	} {
		if got := draw(c.after, c.done, c.total); got != c.want {
			t.Errorf("Set(%d, %d) after %v wrote\n%q, want\n%q", c.done, c.total, c.after, got, c.want)
		}
	}
	out.Reset()
	b.Clear()
	b.Clear()
	last := "case   0% |" + bar(0) + "| (0/4)"
	if got, want := out.String(), "\r"+strings.Repeat(" ", len(last))+"\r"; got != want {
		t.Errorf("Clear wrote %q, want %q", got, want)
	}
}
