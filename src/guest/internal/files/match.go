package files

import (
	"regexp"
	"slices"
	"strings"

	"holdfast/guest/internal/wire"
)

// How many files are looked at for a match.
const maxLooked = 100_000

// Patterns are the files that a run is to give back.
type Patterns []*regexp.Regexp

var wildcard = regexp.MustCompile(`\*\*/|\*\*|\*|\?`)

var wildcards = map[string]string{"**/": "(?:.*/)?", "**": ".*", "*": "[^/]*", "?": "[^/]"}

// Compile makes patterns of texts. `*` and `?` stay within one folder, `**` goes through any number; a folder stands
// for all that is in it.
func Compile(texts []string) (Patterns, error) {
	patterns := make(Patterns, 0, len(texts))
	for _, text := range texts {
		raw, err := wire.FromWire(text)
		if err != nil {
			return nil, wire.Fail(wire.ErrorCodeInvalidRequest, "the pattern %q: %v", text, err)
		}
		raw = strings.TrimRight(strings.TrimPrefix(raw, "./"), "/")
		var out strings.Builder
		at := 0
		for _, found := range wildcard.FindAllStringIndex(raw, -1) {
			out.WriteString(regexp.QuoteMeta(raw[at:found[0]]))
			out.WriteString(wildcards[raw[found[0]:found[1]]])
			at = found[1]
		}
		out.WriteString(regexp.QuoteMeta(raw[at:]))
		pattern, err := regexp.Compile("(?s)^(?:" + out.String() + "(?:/.*)?)$")
		if err != nil {
			return nil, wire.Fail(wire.ErrorCodeInvalidRequest, "%q is no pattern of files: %v", text, err)
		}
		patterns = append(patterns, pattern)
	}
	return patterns, nil
}

func (p Patterns) match(wireName string) bool {
	name, _ := wire.FromWire(wireName) // we wrote it ourselves
	return slices.ContainsFunc(p, func(one *regexp.Regexp) bool { return one.MatchString(name) })
}

// Matching gives the regular files that match, by name; unlisted tells that not all were looked at.
func (w *Workspace) Matching(wanted Patterns) (found []wire.FileEntry, unlisted bool, err error) {
	listed, err := w.List(wire.FileList{Recursive: true, MaxEntries: maxLooked}, func(page []wire.FileEntry) error {
		for _, entry := range page {
			if entry.Kind == wire.FileKindFile && wanted.match(entry.Path) {
				found = append(found, entry)
			}
		}
		return nil
	})
	slices.SortFunc(found, func(a, b wire.FileEntry) int { return strings.Compare(a.Path, b.Path) })
	return found, listed.Truncated, err
}
