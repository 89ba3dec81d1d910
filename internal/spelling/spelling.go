// Package spelling guesses which word a misspelt one was meant to be.
package spelling

import (
	"strings"
	"unicode/utf8"
)

// Nearest returns the word that differs only in case, or else the nearest one if that is a
// likely slip, or else one with the same beginning; empty if there is none.
func Nearest(word string, words []string) string {
	if len(word) > 64 {
		return ""
	}
	for _, w := range words {
		if strings.EqualFold(w, word) {
			return w
		}
	}
	best, distance := "", max(2, utf8.RuneCountInString(word)/3)+1
	for _, w := range words {
		if d := Distance(word, w); d < distance && 2*d < len(w) {
			best, distance = w, d
		}
	}
	for _, w := range words {
		if best == "" && min(len(w), len(word)) >= 3 && (strings.HasPrefix(w, word) || strings.HasPrefix(word, w)) {
			best = w
		}
	}
	return best
}

// Suggest says which of the names a word was meant to be, or else which there are. It goes on
// with a sentence that says that there is no such name.
func Suggest(word string, names []string) string {
	if best := Nearest(word, names); best != "" {
		return ", did you mean " + best + "?"
	}
	return "; there are " + strings.Join(names, ", ")
}

// Distance counts the insertions, deletions, replacements and swaps of neighbours that
// turn one word into the other.
func Distance(from, to string) int {
	a, b := []rune(from), []rune(to)
	rows := make([][]int, len(a)+1)
	for i := range rows {
		rows[i] = make([]int, len(b)+1)
		rows[i][0] = i
	}
	for j := range rows[0] {
		rows[0][j] = j
	}
	for i := range a {
		for j := range b {
			cost := 1
			if a[i] == b[j] {
				cost = 0
			}
			d := min(rows[i][j+1]+1, rows[i+1][j]+1, rows[i][j]+cost)
			if i > 0 && j > 0 && a[i] == b[j-1] && a[i-1] == b[j] {
				d = min(d, rows[i-1][j-1]+1)
			}
			rows[i+1][j+1] = d
		}
	}
	return rows[len(a)][len(b)]
}
