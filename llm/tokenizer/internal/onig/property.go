package onig

import (
	"strings"
	"sync"
	"unicode"
)

// longNames maps the long names of general categories, as canonical writes them.
var longNames = map[string]string{
	"letter": "L", "uppercaseletter": "Lu", "lowercaseletter": "Ll", "titlecaseletter": "Lt", "modifierletter": "Lm",
	"otherletter": "Lo",
	"mark":        "M", "nonspacingmark": "Mn", "spacingmark": "Mc", "enclosingmark": "Me",
	"number": "N", "decimalnumber": "Nd", "letternumber": "Nl", "othernumber": "No",
	"punctuation": "P", "connectorpunctuation": "Pc", "dashpunctuation": "Pd", "openpunctuation": "Ps",
	"closepunctuation":   "Pe",
	"initialpunctuation": "Pi", "finalpunctuation": "Pf", "otherpunctuation": "Po",
	"symbol": "S", "mathsymbol": "Sm", "currencysymbol": "Sc", "modifiersymbol": "Sk", "othersymbol": "So",
	"separator": "Z", "spaceseparator": "Zs", "lineseparator": "Zl", "paragraphseparator": "Zp",
	"other": "C", "control": "Cc", "format": "Cf", "surrogate": "Cs", "privateuse": "Co", "unassigned": "Cn",
}

// properties are all named sets: general categories, scripts and POSIX brackets, computed once.
var properties = sync.OnceValue(func() map[string]set {
	p := map[string]set{}
	categories(p)
	scripts(p)
	alphabetic := union(p["l"], p["nl"], fromTables(unicode.Other_Alphabetic), derived("A"), combiningLetters)
	p["upper"] = union(p["lu"], fromTables(unicode.Other_Uppercase), derived("U"))
	p["lower"] = union(p["ll"], fromTables(unicode.Other_Lowercase), derived("L"))
	p["alpha"], p["alphabetic"], p["uppercase"], p["lowercase"] = alphabetic, alphabetic, p["upper"], p["lower"]
	p["digit"] = p["nd"]
	p["space"] = fromTables(unicode.White_Space)
	p["whitespace"] = p["space"]
	p["alnum"] = union(alphabetic, p["nd"])
	p["word"] = union(alphabetic, p["m"], p["nd"], p["pc"])
	p["punct"] = union(p["p"], p["s"])
	p["cntrl"] = p["cc"]
	p["graph"] = union(p["space"], p["cc"], p["cn"], p["cs"]).complement()
	p["print"] = union(p["graph"], p["zs"])
	p["blank"] = union(p["zs"], single('\t'))
	p["xdigit"] = set{{'0', '9'}, {'A', 'F'}, {'a', 'f'}}
	p["ascii"] = set{{0, 0x7f}}
	p["any"] = anything
	p["assigned"] = p["cn"].complement()
	return p
})

// combiningLetters became Alphabetic in Unicode 16.0.
var combiningLetters = set{{0x363, 0x36F}, {0x1DD3, 0x1DE6}}

// categories adds general categories, the major ones as unions.
func categories(p map[string]set) {
	minor := map[string][]set{}
	for name, table := range unicode.Categories {
		if len(name) == 2 && name != "Cn" && name != "LC" {
			minor[name] = []set{fromTables(table)}
		}
	}
	// The only character whose category changed between 15.0 and 16.0.
	const ahomMedialRa = 0x1171E
	minor["Mn"][0] = intersection(minor["Mn"][0], single(ahomMedialRa).complement())
	minor["Mc"] = append(minor["Mc"], single(ahomMedialRa))
	for _, a := range added {
		minor[a.category] = append(minor[a.category], set{a.span})
	}
	assigned := set{}
	major := map[string][]set{}
	for name, sets := range minor {
		s := union(sets...)
		p[strings.ToLower(name)] = s
		major[name[:1]] = append(major[name[:1]], s)
		assigned = union(assigned, s)
	}
	p["cn"] = assigned.complement()
	major["C"] = append(major["C"], p["cn"])
	for name, sets := range major {
		p[strings.ToLower(name)] = union(sets...)
	}
	p["lc"] = union(p["lu"], p["ll"], p["lt"])
	for long, short := range longNames {
		p[long] = p[strings.ToLower(short)]
	}
}

func scripts(p map[string]set) {
	all := map[string][]set{}
	for name, table := range unicode.Scripts {
		all[name] = []set{fromTables(table)}
	}
	for _, a := range added {
		if a.script != "" {
			all[a.script] = append(all[a.script], set{a.span})
		}
	}
	for name, sets := range all {
		p[canonical(name)] = union(sets...)
	}
}

// derived returns the added characters with a property.
func derived(letter string) set {
	var spans []span
	for _, a := range added {
		if strings.Contains(a.derived, letter) {
			spans = append(spans, a.span)
		}
	}
	return normal(spans)
}

// canonical writes a property's name as a key of properties. Oniguruma ignores case, spaces, hyphens and underscores.
func canonical(name string) string {
	return strings.ToLower(strings.NewReplacer(" ", "", "-", "", "_", "").Replace(name))
}

func property(name string) (set, bool) {
	s, ok := properties()[canonical(name)]
	return s, ok
}

// wordAlone is \w outside brackets, and \p{Word}. Unlike [\w] they contain the superscripts and fractions of Latin-1.
func wordAlone() set {
	return union(properties()["word"], set{{0xB2, 0xB3}, {0xB9, 0xB9}, {0xBC, 0xBE}})
}

// Is reports whether r has a property: a general category, a script, or the name of a POSIX bracket.
func Is(name string, r rune) bool { return properties()[strings.ToLower(name)].contains(r) }
