package cli

import (
	"errors"
	"fmt"
)

// PageFlag is --html of diff, or "".
type PageFlag struct{ HTML string }

// Check returns an error if the page cannot be written or would overwrite a model. The page covers one comparison.
func (f *PageFlag) Check(models []string, recorded bool) error {
	if f.HTML == "" {
		return nil
	}
	if recorded && len(models) > 1 {
		return errors.New("--html reports on one compared model: name only one")
	}
	for _, path := range models {
		if Same(path, f.HTML) {
			return fmt.Errorf("--html %s is the model: choose another file", f.HTML)
		}
	}
	if err := Writable(f.HTML); err != nil {
		return fmt.Errorf("--html: %w", err)
	}
	return nil
}
