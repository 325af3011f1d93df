// Package tune measures the fastest configuration of the CUDA kernels of experts for each number of tokens, and writes
// the tables that the kernel library reads (fused/moe/cuda/moe_tables.h).
package tune

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/mojo-patch/mojo-patch/internal/atomicfile"
)

// The supported formats of experts. MXFP4 experts take bfloat16 activations without rounding, FP8 experts take
// activations rounded to FP8.
const (
	BFloat16 = "bfloat16"
	Float16  = "float16"
	MXFP4    = "mxfp4"
	FP8      = "fp8"
)

// Formats lists the formats.
func Formats() []string { return []string{BFloat16, Float16, MXFP4, FP8} }

// Shape identifies the experts that a table is for.
type Shape struct {
	Format string `json:"format"`
	// Layout is in_out, or empty for out_in.
	Layout  string `json:"layout,omitempty"`
	Experts int64  `json:"experts"`
	TopK    int64  `json:"top_k"`
	Hidden  int64  `json:"hidden"`
	Inner   int64  `json:"inner"`
	// Capability is the measured device's compute capability: 90 for 9.0; 0 matches any.
	Capability int `json:"capability,omitempty"`
	// Device is the device's name, for people.
	Device string `json:"device,omitempty"`
}

// String describes the experts: "128 experts, 8 chosen, 2048 x 768, mxfp4".
func (s Shape) String() string {
	text := fmt.Sprintf("%d experts, %d chosen, %d x %d, %s", s.Experts, s.TopK, s.Hidden, s.Inner, s.Format)
	if s.Layout != "" {
		text += " " + s.Layout
	}
	return text
}

// Config selects the kernel for a number of tokens.
type Config struct {
	// Kernel is few, mma or wgmma; auto, without other fields, leaves the choice to the library.
	Kernel string `json:"kernel"`
	// BlockM is the number of choices in a tile, and Split the number of blocks that share its columns; 0 if the kernel
	// has no such parameter or chooses it.
	BlockM int `json:"block_m,omitempty"`
	Split  int `json:"split,omitempty"`
}

// Auto lets the library choose.
var Auto = Config{Kernel: "auto"}

// String formats the config: "wgmma, tiles of 64, split in 2".
func (c Config) String() string {
	text := c.Kernel
	if c.BlockM > 0 {
		text += fmt.Sprintf(", tiles of %d", c.BlockM)
	}
	if c.Split > 0 {
		text += fmt.Sprintf(", split in %d", c.Split)
	}
	return text
}

// Entry is a Config and the time of a call in microseconds.
type Entry struct {
	Config
	Micros float64 `json:"us"`
}

// Table holds the fastest config for each number of tokens.
type Table struct {
	Shape   Shape
	Entries map[int64]Entry
}

// Write writes the table as JSON, a line for each number of tokens.
func (t *Table) Write(w io.Writer) error {
	var lines []string
	line := func(key string, value any) error {
		b, err := json.Marshal(value)
		spaced := strings.NewReplacer(`":`, `": `, `,"`, `, "`).Replace(string(b))
		lines = append(lines, fmt.Sprintf("  %q: %s", key, spaced))
		return err
	}
	if err := line("shape", t.Shape); err != nil {
		return err
	}
	for _, tokens := range slices.Sorted(maps.Keys(t.Entries)) {
		if err := line(fmt.Sprint(tokens), t.Entries[tokens]); err != nil {
			return err
		}
	}
	_, err := fmt.Fprintf(w, "{\n%s\n}\n", strings.Join(lines, ",\n"))
	return err
}

// WriteFile writes the table to a file atomically.
func (t *Table) WriteFile(path string) error { return atomicfile.WriteFile(path, t.Write) }
