// Command opsdoc writes the documentation of the fused ops to the file it is given.
package main

import (
	"bytes"
	"fmt"
	"os"

	"github.com/mojo-patch/mojo-patch/fused"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "opsdoc:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	if len(args) != 1 {
		return fmt.Errorf("usage: opsdoc FILE")
	}
	var b bytes.Buffer
	if err := fused.WriteMarkdown(&b); err != nil {
		return err
	}
	return os.WriteFile(args[0], b.Bytes(), 0o666)
}
