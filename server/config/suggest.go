package config

import (
	"strings"
	"unicode/utf8"
)

// didYouMean is a suggestion of the nearest of some words, or is empty if none
// is near.
func didYouMean(word string, words []string) string {
	if best := nearest(word, words); best != "" {
		return "did you mean " + best + "?"
	}
	return ""
}

// nearest is the word that differs in case only, or the one with the smallest
// edit distance if that is small enough for a slip, or one that begins the same.
func nearest(word string, words []string) string {
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
		if d := editDistance([]rune(word), []rune(w)); d < distance && 2*d < len(w) {
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

// editDistance counts insertions, deletions, replacements and swaps of
// neighbours that make one word of another.
func editDistance(a, b []rune) int {
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
