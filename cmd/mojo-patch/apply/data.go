package apply

import "github.com/mojo-patch/mojo-patch/cmd/mojo-patch/cli"

// sayData says how the output got its data file, since copying gigabytes takes time and space.
func (f *options) sayData(a *cli.App) {
	d := f.dataWritten
	if f.linkWeights && d.Linked == 0 {
		if d.File == "" {
			a.Say("--link-weights made no link: no weights were copied to another folder")
		} else {
			a.Say("--link-weights made no link: %s differs from every data file of the input",
				d.File)
		}
	}
	cli.SayCarried(a, d)
	if d.Copied >= cli.WorthSaying && !f.linkWeights {
		a.Say("to avoid the copy, write to the folder of the input or use --link-weights")
	}
}
