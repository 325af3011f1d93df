package main

import (
	"github.com/mojo-patch/mojo-patch/internal/english"
	"github.com/mojo-patch/mojo-patch/onnx"
)

// worthSaying is the size in bytes from which a copy is mentioned.
const worthSaying = 1 << 20

// sayData says how the output got its data file, since copying gigabytes takes time and space.
func (f *applyFlags) sayData(a *app) {
	d := f.dataWritten
	if f.linkWeights && d.Linked == 0 {
		if d.File == "" {
			a.say("--link-weights made no link: no weights were copied to another folder")
		} else {
			a.say("--link-weights made no link: %s differs from every data file of the input",
				d.File)
		}
	}
	sayCarried(a, d)
	if d.Copied >= worthSaying && !f.linkWeights {
		a.say("to avoid the copy, write to the folder of the input or use --link-weights")
	}
}

// sayCarried says how many bytes of a data file were copied, shared or linked.
func sayCarried(a *app, d onnx.DataWritten) {
	switch {
	case d.Linked > 0:
		a.say("%s is a hard link of %s (%s): a program that writes to one of them in place changes both", d.File,
			d.Source, english.Bytes(d.Linked))
	case d.Shared > 0:
		a.say("%s shares %s with %s until one of them is changed; %s were copied", d.File, english.Bytes(d.Shared),
			d.Source, english.Bytes(d.Copied))
	case d.Copied >= worthSaying || d.Copied > 0 && a.verbose:
		a.say("copied %s of weights from %s to %s", english.Bytes(d.Copied), d.Source, d.File)
	}
}
