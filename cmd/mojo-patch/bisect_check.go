package main

import (
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/mojo-patch/mojo-patch/internal/delta"
)

// cannotTell is the exit code of a command that cannot judge a model, as for git bisect. The other codes are those of a
// shell that cannot run the command.
const (
	cannotTell     = 125
	cannotBeRun    = 126
	cannotBeFound  = 127
	shellOfASignal = 128 // plus the signal's number, if a signal ended the command
)

// checkModel reports whether a patched model is good, and if not, why. An error ends the search.
func (b *bisection) checkModel(path string) (delta.Outcome, string, error) {
	if b.check != "" {
		return b.userCheck(path)
	}
	return b.compare(path, b.want, arguments(b.command, b.criteria))
}

// compare runs diff on a model and recorded outputs.
func (b *bisection) compare(path, want string, criteria []string) (delta.Outcome, string, error) {
	args := slices.Concat([]string{"diff", path, "--golden", want, "--json", "-q"}, arguments(b.command, b.run),
		criteria)
	r, err := b.app.itself(b.ctx, b.timeout, args...)
	if err != nil {
		return "", "", err
	}
	switch {
	case r.ended != "":
		return b.crashed(), r.ended, nil
	case r.code == exitDone:
		return delta.Passes, "", nil
	case r.code == exitFailed:
		return delta.Fails, r.compared(), nil
	}
	return "", "", r.failure()
}

// userCheck runs the user's command.
func (b *bisection) userCheck(path string) (delta.Outcome, string, error) {
	line, quoted := b.check, quote(path)
	if strings.Contains(line, "{}") {
		line = strings.ReplaceAll(line, "{}", quoted)
	} else {
		line += " " + quoted
	}
	b.app.detail("%s", line)
	c := shell(line)
	c.Env = append(os.Environ(), "MOJO_PATCH_MODEL="+path)
	r, err := startChild(b.ctx, b.timeout, c)
	if err != nil {
		return "", "", err
	}
	if b.app.verbose {
		b.app.say("%s", strings.TrimSpace(r.stdout+r.stderr))
	}
	switch {
	case r.ended != "":
		return b.crashed(), r.ended, nil
	case r.code > shellOfASignal:
		return b.crashed(), fmt.Sprintf("ended by signal %d", r.code-shellOfASignal), nil
	case r.code == cannotBeRun, r.code == cannotBeFound:
		return "", "", fmt.Errorf("--check: %s: %s", b.check, strings.TrimSpace(r.stderr))
	case r.code == cannotTell:
		return delta.Unknown, "", nil
	case r.code == exitDone:
		return delta.Passes, "", nil
	}
	return delta.Fails, fmt.Sprintf("exit code %d", r.code), nil
}

func (b *bisection) crashed() delta.Outcome {
	if b.crash == crashUnknown {
		return delta.Unknown
	}
	return delta.Fails
}

// compared summarizes the difference that diff found, or why diff could not run the model.
func (r *child) compared() string {
	var result struct{ Comparisons []comparison }
	if json.Unmarshal([]byte(r.stdout), &result) != nil || len(result.Comparisons) == 0 {
		return firstLine(r.failure())
	}
	for _, c := range result.Comparisons[0].Cases {
		for _, s := range c.Outputs {
			if !s.Passed {
				return fmt.Sprintf("%s is %.3g off", s.Name, float64(s.MaxAbs))
			}
		}
		if c.Error != "" {
			return c.Error
		}
	}
	return ""
}
