package bisect

import (
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/mojo-patch/mojo-patch/cmd/mojo-patch/cli"
	"github.com/mojo-patch/mojo-patch/internal/child"
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
	r, err := itself(b.ctx, b.app, b.timeout, args...)
	if err != nil {
		return "", "", err
	}
	switch {
	case r.Ended != "":
		return b.crashed(), r.Ended, nil
	case r.Code == cli.ExitDone:
		return delta.Passes, "", nil
	case r.Code == cli.ExitFailed:
		return delta.Fails, compared(r), nil
	}
	return "", "", failure(r)
}

// userCheck runs the user's command.
func (b *bisection) userCheck(path string) (delta.Outcome, string, error) {
	line, quoted := b.check, child.Quote(path)
	if strings.Contains(line, "{}") {
		line = strings.ReplaceAll(line, "{}", quoted)
	} else {
		line += " " + quoted
	}
	b.app.Detail("%s", line)
	c := child.Shell(line)
	c.Env = append(os.Environ(), "MOJO_PATCH_MODEL="+path)
	r, err := child.Run(b.ctx, b.timeout, c)
	if err != nil {
		return "", "", err
	}
	if b.app.Verbose {
		b.app.Say("%s", strings.TrimSpace(r.Stdout+r.Stderr))
	}
	switch {
	case r.Ended != "":
		return b.crashed(), r.Ended, nil
	case r.Code > shellOfASignal:
		return b.crashed(), fmt.Sprintf("ended by signal %d", r.Code-shellOfASignal), nil
	case r.Code == cannotBeRun, r.Code == cannotBeFound:
		return "", "", fmt.Errorf("--check: %s: %s", b.check, strings.TrimSpace(r.Stderr))
	case r.Code == cannotTell:
		return delta.Unknown, "", nil
	case r.Code == cli.ExitDone:
		return delta.Passes, "", nil
	}
	return delta.Fails, fmt.Sprintf("exit code %d", r.Code), nil
}

func (b *bisection) crashed() delta.Outcome {
	if b.crash == crashUnknown {
		return delta.Unknown
	}
	return delta.Fails
}
