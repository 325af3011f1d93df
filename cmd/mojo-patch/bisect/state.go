package bisect

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"
	"strings"

	"github.com/mojo-patch/mojo-patch/cmd/mojo-patch/cli"
	"github.com/mojo-patch/mojo-patch/cmd/mojo-patch/planning"
	"github.com/mojo-patch/mojo-patch/internal/atomicfile"
	"github.com/mojo-patch/mojo-patch/internal/delta"
	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/rewrite"
)

// bisectState is the progress of a search, which --state keeps.
type bisectState struct {
	Schema int    `json:"schema"`
	Model  string `json:"model_sha256"`
	// Check holds the settings that decide an outcome: the flags of the comparison, or the command.
	Check string            `json:"check"`
	Plan  *rewrite.PlanFile `json:"plan"`
	// Outcomes maps sets of sites to their outcomes. Sites are numbered from 0 among the plan's applied sites.
	Outcomes map[string]delta.Outcome `json:"outcomes"`
}

// loadState reads the plan and the outcomes from the state file, or starts from scratch.
func (b *bisection) loadState() error {
	sum, err := onnx.SHA256(b.path)
	if err != nil {
		return err
	}
	b.state = &bisectState{Schema: cli.JSONSchema, Model: sum, Check: b.deciding(),
		Outcomes: map[string]delta.Outcome{}}
	kept, err := readState(b.stateFile)
	switch {
	case err != nil:
		return err
	case kept != nil:
		if err := b.state.goesOn(kept); err != nil {
			return fmt.Errorf("%s holds the state of another search: %w\n(remove it, or choose another file with "+
				"--state)",
				b.stateFile, err)
		}
		b.state = kept
		b.app.Say("continuing from %s: %s are known", b.stateFile, cli.Counted(len(kept.Outcomes), "outcome"))
	case b.plan.File != nil:
		if err := b.planFits(); err != nil {
			return err
		}
		b.state.Plan = b.plan.File
	default:
		if b.state.Plan, err = b.findPlan(); err != nil {
			return err
		}
	}
	b.sites = b.state.Plan.Applied()
	return nil
}

// planFits returns an error if --plan was made for another model or other patterns.
func (b *bisection) planFits() error {
	paths := planning.PatternFlag{Paths: b.plan.File.Flags["patterns"]}
	set, err := paths.Set()
	if err != nil {
		return fmt.Errorf("--patterns: %w", err)
	}
	return b.plan.Fits(b.path, set.Digest())
}

// deciding returns all settings that an outcome depends on, besides the model and the plan.
func (b *bisection) deciding() string {
	var parts []string
	if b.check != "" {
		parts = append(parts, "--check="+b.check)
	} else {
		parts = slices.Concat([]string{"--golden=" + b.golden, fmt.Sprint("--cases=", b.cases)},
			arguments(b.command, b.inputs), arguments(b.command, b.run), arguments(b.command, b.criteria))
	}
	parts = append(parts, arguments(b.command, b.match)...)
	if b.plan.Path != "" {
		parts = append(parts, "--plan="+strings.Join(b.plan.File.Applied(), " "))
	}
	return strings.Join(append(parts, "--crash="+b.crash), " ")
}

func readState(path string) (*bisectState, error) {
	if path == "" {
		return nil, nil
	}
	text, err := rewrite.PlanText(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("cannot read the state: %w", err)
	}
	s := &bisectState{}
	if err := json.Unmarshal(text, s); err != nil || s.Schema != cli.JSONSchema || s.Plan == nil || s.Outcomes == nil {
		return nil, fmt.Errorf("%s does not hold a search state that this version reads", path)
	}
	return s, nil
}

// goesOn returns an error if a saved state belongs to another search.
func (s *bisectState) goesOn(kept *bisectState) error {
	switch {
	case kept.Model != s.Model:
		return errors.New("the model has changed")
	case kept.Check != s.Check:
		return fmt.Errorf("it was run with %s, but this run has %s", kept.Check, s.Check)
	}
	return nil
}

// save writes the state atomically.
func (b *bisection) save() error {
	if b.stateFile == "" {
		return nil
	}
	err := atomicfile.WriteFile(b.stateFile, func(w io.Writer) error {
		return json.NewEncoder(w).Encode(b.state)
	})
	if err != nil {
		return fmt.Errorf("cannot write the state: %w", err)
	}
	return nil
}
