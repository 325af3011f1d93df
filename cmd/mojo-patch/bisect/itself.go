package bisect

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"time"

	"github.com/mojo-patch/mojo-patch/cmd/mojo-patch/cli"
	"github.com/mojo-patch/mojo-patch/cmd/mojo-patch/compare"
	"github.com/mojo-patch/mojo-patch/internal/child"
)

// itself runs a command of this program in a child process. If the child's output lacks our name, the child crashed:
// Go's runtime exits with the code of wrong arguments when a library crashes.
func itself(ctx context.Context, a *cli.App, limit time.Duration, args ...string) (*child.Process, error) {
	program, err := os.Executable()
	if err != nil {
		return nil, err
	}
	if a.AllowLinks {
		args = append(args, "--allow-links")
	}
	a.Detail("mojo-patch %s", strings.Join(args, " "))
	c := exec.Command(program, args...)
	c.Args[0] = os.Args[0]
	r, err := child.Run(ctx, limit, c)
	if err != nil {
		return nil, err
	}
	if r.Ended == "" && (r.Code < cli.ExitDone || r.Code > cli.ExitEnvironment ||
		r.Code != cli.ExitDone && r.Stdout == "" && !strings.Contains("\n"+r.Stderr, "\n"+cli.OwnName)) {
		r.Ended = "crashed: " + child.Crash(r.Stderr)
	}
	return r, nil
}

// compared summarizes the difference that diff found, or why diff could not run the model.
func compared(r *child.Process) string {
	var result struct{ Comparisons []compare.Comparison }
	if json.Unmarshal([]byte(r.Stdout), &result) != nil || len(result.Comparisons) == 0 {
		return cli.FirstLine(failure(r))
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

// failure returns the last message of a failed child as an error with the child's exit code.
func failure(r *child.Process) error {
	if r.Ended != "" {
		return cli.Failed(errors.New(r.Ended))
	}
	_, said, found := strings.Cut("\n"+r.Stderr, "\n"+cli.OwnName)
	if !found {
		said = fmt.Sprintf("exit code %d\n%s", r.Code, r.Stderr)
	}
	return cli.ExitWith(r.Code, errors.New(strings.TrimSpace(said)))
}
