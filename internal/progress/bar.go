// Package progress draws a progress bar on a terminal.
package progress

import (
	"fmt"
	"io"
	"strings"
	"time"
)

const (
	width  = 30                    // columns of the bar
	redraw = 50 * time.Millisecond // the least time between two drawings
)

// A Bar is one line: the job, the percentage, the bar and the count.
type Bar struct {
	w     io.Writer
	what  string
	drawn time.Time
	line  int // columns that the last drawing takes
	now   func() time.Time
}

// New returns the bar of a job. It writes nothing before the first Set.
func New(w io.Writer, what string) *Bar {
	return &Bar{w: w, what: what, now: time.Now}
}

// Set draws that done of total steps are done, unless it drew less than 50 ms ago and steps remain.
func (b *Bar) Set(done, total int) {
	now := b.now()
	if total <= 0 || done < total && now.Sub(b.drawn) < redraw {
		return
	}
	b.drawn = now
	done = min(max(done, 0), total)
	full := done * width / total
	line := fmt.Sprintf("%s %3d%% |%s%s| (%d/%d)", b.what, done*100/total, strings.Repeat("█", full),
		strings.Repeat(" ", width-full), done, total)
	columns := len([]rune(line))
	// Spaces instead of an escape sequence, which old consoles of Windows print as text.
	fmt.Fprint(b.w, "\r", line, strings.Repeat(" ", max(b.line-columns, 0)))
	b.line = columns
}

// Clear removes the bar, so that the next line of output begins in its place.
func (b *Bar) Clear() {
	if b.line > 0 {
		fmt.Fprint(b.w, "\r", strings.Repeat(" ", b.line), "\r")
		b.line = 0
	}
}
