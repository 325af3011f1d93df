package tokenizer

import "golang.org/x/text/unicode/norm"

// normalizer changes text before it is split.
type normalizer func(string) string

var forms = map[string]norm.Form{"NFC": norm.NFC, "NFD": norm.NFD, "NFKC": norm.NFKC, "NFKD": norm.NFKD}
