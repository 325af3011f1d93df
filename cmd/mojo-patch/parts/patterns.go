package parts

import (
	"fmt"
	"os"
	"path"
	"path/filepath"

	"github.com/mojo-patch/mojo-patch/internal/regular"
	"github.com/mojo-patch/mojo-patch/patterns"
)

// extractedPatterns is the folder of the user's pattern files in a folder that extract writes.
const extractedPatterns = "patterns"

// CopyPatterns copies the pattern files of paths to a folder, so that it is self-contained, and returns the paths of
// the copies in the same order.
func CopyPatterns(paths []string, folder string) (copied []string, err error) {
	if len(paths) == 0 {
		return nil, nil
	}
	files, err := patterns.Files(paths...)
	if err != nil {
		return nil, err
	}
	if err := os.Mkdir(filepath.Join(folder, extractedPatterns), 0o755); err != nil {
		return nil, err
	}
	taken := map[string]bool{}
	for i, file := range files {
		text, err := regular.ReadFile(file, patterns.MaxFile)
		if err != nil {
			return nil, fmt.Errorf("cannot read the patterns: %w", err)
		}
		name := filepath.Base(file)
		if taken[name] {
			name = fmt.Sprintf("%d-%s", i, name)
		}
		taken[name] = true
		if err := os.WriteFile(filepath.Join(folder, extractedPatterns, name), text, 0o644); err != nil {
			return nil, err
		}
		copied = append(copied, path.Join(extractedPatterns, name))
	}
	return copied, nil
}
